import { FRAME } from '../../snapshot-format/frames.ts';
import { SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';

/** What is collected at most while the store is asked which of it it has. */
export const BATCH_BYTES = 4 * 2 ** 20;
/** What one `store/put` carries at most. */
export const PUT_BYTES = 4 * 2 ** 20;
/** What a scan may have sent for its memory to be kept: untouched memory costs nothing. */
const KEPT_BYTES = 4 * 2 ** 20;
/** Of a short frame, into which most files fit, and of any other. */
const FRAME_BYTES = { least: 3 * FRAME.shortBytes, most: FRAME.maxBytes } as const;

/**
 * Memory that scans use one after the other. Fresh memory for each would count as garbage, for which after a few small scans all that is
 * known would be searched.
 */
export class UploadBuffers {
  #waiting: Buffer | null = null;
  #unsent: Buffer | null = null;
  /** Threads see them together: what is handed over would count as garbage, too. */
  #frames: SharedArrayBuffer[] = [];
  #longFrames: SharedArrayBuffer[] = [];

  /** For bodies that the store is to be asked for: a batch, and one object more. */
  get pending(): Buffer {
    return (this.#waiting ??= Buffer.allocUnsafeSlow(BATCH_BYTES + SNAPSHOT_LIMITS.objectBytes));
  }

  /** PUT_BYTES, for those of a pack that were not sent yet. */
  get unsentPack(): Buffer {
    return (this.#unsent ??= Buffer.allocUnsafeSlow(PUT_BYTES));
  }

  /**
   * For a frame of which at least so many bytes will be filled: FRAME.targetBytes, or a first object. It is the caller's until it is given
   * back; what is not is only lost.
   */
  acquireFrame(length: number): SharedArrayBuffer {
    return length <= FRAME_BYTES.least
      ? (this.#frames.pop() ?? new SharedArrayBuffer(FRAME_BYTES.least))
      : (this.#longFrames.pop() ?? new SharedArrayBuffer(FRAME_BYTES.most));
  }

  releaseFrame(frame: ArrayBufferLike): void {
    if (!(frame instanceof SharedArrayBuffer)) return;
    if (frame.byteLength === FRAME_BYTES.least) this.#frames.push(frame);
    else this.#longFrames.push(frame);
  }

  /** A scan is over that had so many bytes of objects: what a large one has filled goes. */
  trim(bytes: number): void {
    if (bytes <= KEPT_BYTES) return;
    this.#waiting = null;
    this.#unsent = null;
    this.#frames = [];
    this.#longFrames = [];
  }
}
