import { FRAME } from '../../snapshot-format/frames.ts';
import { SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';

/** Limit of the bytes collected while the store is asked which objects it has. */
export const BATCH_BYTES = 4 * 2 ** 20;
/** Limit of one `store/put`. */
export const PUT_BYTES = 4 * 2 ** 20;
/** A scan may upload this much and retain its buffers. Untouched memory costs nothing. */
const RETAINED_BYTES = 4 * 2 ** 20;
/** Memory of a short frame, into which most files fit, and of any other. */
const FRAME_BYTES = { least: 3 * FRAME.shortBytes, most: FRAME.maxBytes } as const;

/**
 * Buffers that one scan uses after another. New buffers for each scan would trigger garbage collections that walk the
 * whole scan state.
 */
export class UploadBuffers {
  #pending: Buffer | null = null;
  #unsentPack: Buffer | null = null;
  /** Shared with the compressor thread. Transferring them would create garbage too. */
  #frames: SharedArrayBuffer[] = [];
  #longFrames: SharedArrayBuffer[] = [];

  /** For objects that the store is asked about: a batch and one more object. */
  get pending(): Buffer {
    return (this.#pending ??= Buffer.allocUnsafeSlow(BATCH_BYTES + SNAPSHOT_LIMITS.objectBytes));
  }

  /** PUT_BYTES, for the part of a pack that was not uploaded. */
  get unsentPack(): Buffer {
    return (this.#unsentPack ??= Buffer.allocUnsafeSlow(PUT_BYTES));
  }

  /**
   * Memory for a frame of at least this length: FRAME.targetBytes, or its first object. The caller owns it until
   * `releaseFrame`. A frame that is not released is only garbage.
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

  /** Called after a scan with this number of object bytes. Drops the buffers that a large scan has filled. */
  trim(bytes: number): void {
    if (bytes <= RETAINED_BYTES) return;
    this.#pending = null;
    this.#unsentPack = null;
    this.#frames = [];
    this.#longFrames = [];
  }
}
