import { FRAME } from '../../protocol/snapshots/frames.ts';
import { SNAPSHOT_LIMITS } from '../../protocol/snapshots/objects.ts';

/** What is collected before the store is asked for all of it together. */
export const BATCH_BYTES = 4 * 2 ** 20;
/** What one `store/put` carries at most. */
export const PUT_BYTES = 4 * 2 ** 20;
/** What a scan may have sent for its memory to be kept: untouched memory costs nothing. */
const KEPT_BYTES = 4 * 2 ** 20;

/**
 * Memory that scans use one after the other. Fresh memory for each would count as garbage, for which after a few small scans all that is
 * known would be searched.
 */
export class OutboxMemory {
  #waiting: Buffer | null = null;
  #unsent: Buffer | null = null;
  /** Threads see them together: what is handed over would count as garbage, too. */
  readonly #frames: SharedArrayBuffer[] = [];

  /** For bodies that the store is to be asked for: a batch, and one object more. */
  get waiting(): Buffer {
    return (this.#waiting ??= Buffer.allocUnsafeSlow(BATCH_BYTES + SNAPSHOT_LIMITS.objectBytes));
  }

  /** PUT_BYTES, for those of a pack that were not sent yet. */
  get unsent(): Buffer {
    return (this.#unsent ??= Buffer.allocUnsafeSlow(PUT_BYTES));
  }

  /** FRAME.mostBytes that are the caller's until they are given back; what is not is only lost. */
  frame(): SharedArrayBuffer {
    return this.#frames.pop() ?? new SharedArrayBuffer(FRAME.mostBytes);
  }

  giveBack(frame: SharedArrayBuffer): void {
    this.#frames.push(frame);
  }

  /** A scan is over that had so many bytes of objects: what a large one has filled goes. */
  rest(bytes: number): void {
    if (bytes <= KEPT_BYTES) return;
    this.#waiting = null;
    this.#unsent = null;
    this.#frames.length = 0;
  }
}
