import { FRAME_LIMITS } from './limits.ts';

/** Size of the pooled buffers: the maximum payload, and a page, because detecting the end of a file needs one more byte. */
export const BUFFER_BYTES = FRAME_LIMITS.payloadBytes + 4096;
/** Smaller payloads are allocated, which is as fast and does not waste a pooled buffer. */
const MIN_POOLED_BYTES = 2 ** 20;
/** Enough for two transfers, each with one incoming and one outgoing payload. */
const MAX_FREE_BUFFERS = 4;
/** Free buffers are returned to the system after this time without use. */
const IDLE_MS = 1000;

/**
 * A pool of buffers for large payloads, because fresh memory costs a page fault every 4 KiB, more than copying the bytes.
 *
 * The caller owns an acquired buffer and may keep it. It may release the buffer if nothing reads it any more, which
 * includes writes to a socket or a disk. After that every view of the buffer is empty: its memory moves to another
 * `ArrayBuffer`, so that a late reader never sees the next payload.
 */
export class BufferPool {
  readonly #free: ArrayBuffer[] = [];
  readonly #acquired = new WeakSet<ArrayBufferLike>();
  #idleTimer: NodeJS.Timeout | undefined;

  /** Bytes in free buffers. */
  get freeBytes(): number {
    return this.#free.length * BUFFER_BYTES;
  }

  /** Returns a buffer of `length` bytes with undefined content. */
  acquire(length: number): Buffer {
    if (!fits(length)) return Buffer.allocUnsafeSlow(length);
    return this.#wrap(this.#free.pop() ?? new ArrayBuffer(BUFFER_BYTES), length);
  }

  /** The same if a buffer is free, else undefined. */
  acquireFree(length: number): Buffer | undefined {
    const piece = fits(length) ? this.#free.pop() : undefined;
    return piece === undefined ? undefined : this.#wrap(piece, length);
  }

  /** Releases a buffer. Ignores bytes that were not acquired here, or were already released. */
  release(bytes: Uint8Array): void {
    if (!this.#acquired.delete(bytes.buffer)) return;
    const memory = bytes.buffer as ArrayBuffer;
    if (this.#free.length >= MAX_FREE_BUFFERS) {
      memory.transfer(0);
      return;
    }
    this.#free.push(memory.transfer());
    if (this.#idleTimer === undefined) this.#idleTimer = setTimeout(this.#onIdle, IDLE_MS).unref();
    else this.#idleTimer.refresh();
  }

  #wrap(piece: ArrayBuffer, length: number): Buffer {
    this.#acquired.add(piece);
    return Buffer.from(piece, 0, length);
  }

  readonly #onIdle = (): void => {
    this.#idleTimer = undefined;
    // Frees the memory now instead of at the next garbage collection.
    for (const piece of this.#free.splice(0)) piece.transfer(0);
  };
}

function fits(length: number): boolean {
  return length > MIN_POOLED_BYTES && length <= BUFFER_BYTES;
}
