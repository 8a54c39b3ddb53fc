import { FRAME_LIMITS } from './limits.ts';

/** Memory is lent in pieces of this size: what the largest message carries, and a page, because a reader sees the end of a file by one byte more. */
export const BUFFER_BYTES = FRAME_LIMITS.payloadBytes + 4096;
/** Smaller payloads come out of the allocator as fast, and would waste a piece. */
const WORTH_IT_BYTES = 2 ** 20;
/** Two transfers, each with a payload that comes and one that goes. */
const MOST_FREE = 4;
/** A transfer takes the next one within this; after it the memory goes back to the system. */
const KEPT_MS = 1000;

/**
 * Memory of large payloads, used again: fresh memory costs a page fault every 4 KiB, more than copying the bytes.
 *
 * Who takes bytes, or is handed a payload, owns them, and may keep them for ever. Who is certain that nobody reads them any more – no
 * write to a socket or a disk is under way – may give them back, and from then on every view of them is empty: the memory moves to
 * another `ArrayBuffer`, so that a late reader sees nothing, and never what came next.
 */
export class BufferPool {
  readonly #free: ArrayBuffer[] = [];
  readonly #lent = new WeakSet<ArrayBufferLike>();
  #letGo: NodeJS.Timeout | undefined;

  /** Bytes that are kept for the next payload. */
  get freeBytes(): number {
    return this.#free.length * BUFFER_BYTES;
  }

  /** `length` bytes of whatever content. */
  acquire(length: number): Buffer {
    if (!fits(length)) return Buffer.allocUnsafeSlow(length);
    return this.#lend(this.#free.pop() ?? new ArrayBuffer(BUFFER_BYTES), length);
  }

  /** The same where that costs nothing now; else undefined. */
  acquireFree(length: number): Buffer | undefined {
    const piece = fits(length) ? this.#free.pop() : undefined;
    return piece === undefined ? undefined : this.#lend(piece, length);
  }

  /** May be called with any bytes, any number of times: what was not taken here, or was given back already, is left alone. */
  release(bytes: Uint8Array): void {
    if (!this.#lent.delete(bytes.buffer)) return;
    const lent = bytes.buffer as ArrayBuffer;
    if (this.#free.length >= MOST_FREE) {
      lent.transfer(0);
      return;
    }
    this.#free.push(lent.transfer());
    if (this.#letGo === undefined) this.#letGo = setTimeout(this.#onQuiet, KEPT_MS).unref();
    else this.#letGo.refresh();
  }

  #lend(piece: ArrayBuffer, length: number): Buffer {
    this.#lent.add(piece);
    return Buffer.from(piece, 0, length);
  }

  readonly #onQuiet = (): void => {
    this.#letGo = undefined;
    // At once, and not when the collector comes by.
    for (const piece of this.#free.splice(0)) piece.transfer(0);
  };
}

function fits(length: number): boolean {
  return length > WORTH_IT_BYTES && length <= BUFFER_BYTES;
}
