import {
  decompressFrame,
  extractObject,
  type Frame,
  FrameBuilder,
  isEncoding,
} from '../../../snapshot-format/frames.ts';
import { type PackObject, readStoredFrame } from '../../../snapshot-format/pack-index.ts';
import type { StoredPack } from '../store/lineage-store.ts';

/** Makes frames with some of the objects of stored frames. `put` is called for each, in order. */
export class FrameCopy {
  readonly #put: (frame: Frame) => Promise<void>;
  readonly #builder = new FrameBuilder();

  constructor(put: (frame: Frame) => Promise<void>) {
    this.#put = put;
  }

  /**
   * Copies objects of one frame; the compressed frame as it is if all its objects are needed. Throws `snapshot_damaged`
   * for an unreadable frame.
   */
  async add(
    pack: StoredPack,
    frameIndex: number,
    all: readonly PackObject[],
    needed: readonly PackObject[],
  ): Promise<void> {
    const frame = pack.index.frame(frameIndex);
    const stored = await readStoredFrame(pack.file, frame);
    const raw = decompressFrame(frame.encoding, frame.rawLength, stored);
    const bodies = needed.map((object) => extractObject(raw, object));
    if (needed.length === all.length && isEncoding(frame.encoding)) {
      const { encoding, rawLength, checksum } = frame;
      await this.#put({ encoding, rawLength, stored, checksum, objects: needed });
      return;
    }
    for (const [at, { hash, kind }] of needed.entries()) {
      // A copy, so that one small object does not keep its whole frame in memory.
      const body = Buffer.from(bodies[at] ?? []);
      if (this.#builder.add(hash, kind, body)) continue;
      await this.#put(this.#builder.finish());
      this.#builder.add(hash, kind, body);
    }
  }

  /** Puts the last frame. */
  async end(): Promise<void> {
    if (!this.#builder.isEmpty) await this.#put(this.#builder.finish());
  }
}
