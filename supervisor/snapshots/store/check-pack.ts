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
  /** What its objects name and no pack that was checked has. */
  readonly missing: MissingObjects;
}

/** Checks the packs of one snapshot. Whoever made them need not be believed. */
export class PackChecker {
  readonly #indexes: PackIndex[] = [];
  /** Of `#indexes`. */
  readonly #table = new ObjectTable();

  /**
   * Reads all of a pack and checks every frame and every object in it. `frames`: the same file, where what `read` gives need only
   * last until the next one. Throws `snapshot_damaged`, `invalid_params`, and what reading throws; nothing is to be checked after that.
   */
  async check(file: PackFile, frames: PackFile = file): Promise<CheckedPack> {
    return await this.#checked(await PackIndex.read(file), frames);
  }

  /** The same; null, and nothing done, for a pack of which more than `mostRawBytes` would have to be unpacked. */
  async checkIfSmall(file: PackFile, mostRawBytes: number): Promise<CheckedPack | null> {
    const index = await PackIndex.read(file);
    return index.rawBytes > mostRawBytes ? null : await this.#checked(index, file);
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

/** Objects must not share bytes, so that what is hashed is never more than what was sent. `onReference` keeps nothing of what it is told. */
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
