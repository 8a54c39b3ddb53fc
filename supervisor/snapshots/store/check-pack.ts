import { extractObject, decompressFrame } from '../../../snapshot-format/frames.ts';
import { releaseBuffer } from '../../../snapshot-format/release-buffer.ts';
import { snapshotDamaged, type Hash } from '../../../snapshot-format/objects.ts';
import { type PackFile, PackIndex, readStoredFrame } from '../../../snapshot-format/pack-index.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import { MissingObjects } from './missing-objects.ts';
import { ObjectTable } from './object-table.ts';
import { forEachReference, isKindIn } from './references.ts';

export interface CheckedPack {
  readonly index: PackIndex;
  /** Objects that this pack references and that are in no pack checked so far. */
  readonly missing: MissingObjects;
}

/** Checks the packs of one snapshot. Their sender is not trusted. */
export class PackChecker {
  readonly #indexes: PackIndex[] = [];
  /** Finds objects in `#indexes`. */
  readonly #table = new ObjectTable();

  /**
   * Reads a whole pack and checks every frame and object in it. `frames`: the same file, whose `read` may reuse its
   * buffer for the next read. Throws `snapshot_damaged`, `invalid_params`, and read errors; the checker cannot be used
   * after that.
   */
  async check(file: PackFile, frames: PackFile = file): Promise<CheckedPack> {
    return await this.#checked(await PackIndex.read(file), frames);
  }

  /** As `check`, but does nothing and returns null if the pack holds more than `maxRawBytes` uncompressed bytes. */
  async checkIfSmall(file: PackFile, maxRawBytes: number): Promise<CheckedPack | null> {
    const index = await PackIndex.read(file);
    return index.rawBytes > maxRawBytes ? null : await this.#checked(index, file);
  }

  async #checked(index: PackIndex, frames: PackFile): Promise<CheckedPack> {
    this.#indexes.push(index);
    this.#table.add(index);
    const lacking = new MissingObjects();
    await checkObjects(frames, index, (hash, kinds) => {
      if (!this.#has(hash, kinds)) lacking.add(hash, kinds);
    });
    return { index, missing: lacking };
  }

  #has(hash: Hash, kinds: number): boolean {
    const place = this.#table.find(hash);
    const kind = place === null ? undefined : this.#indexes[place.pack]?.kindAt(place.index);
    return kind !== undefined && isKindIn(kind, kinds);
  }
}

/**
 * Checks the objects of a pack. They must not overlap, so that no more bytes are hashed than were sent. `onReference`
 * must not keep the hash it gets, which is a view of a reused buffer.
 */
async function checkObjects(
  file: PackFile,
  index: PackIndex,
  onReference: (hash: Hash, kinds: number) => void,
): Promise<void> {
  const slices = new TimeSlice();
  for (const [at, objects] of index.objectsByFrame().entries()) {
    if (slices.isUsedUp) await slices.yieldToEventLoop();
    const frame = index.frame(at);
    const stored = await readStoredFrame(file, frame);
    const raw = decompressFrame(frame.encoding, frame.rawLength, stored);
    let end = 0;
    for (const object of objects) {
      if (object.offset < end) throw snapshotDamaged('objects share bytes of their frame');
      end = object.offset + object.length;
      const body = extractObject(raw, object, true);
      forEachReference(object.kind, body, onReference);
    }
    if (raw !== stored) releaseBuffer(raw);
  }
}
