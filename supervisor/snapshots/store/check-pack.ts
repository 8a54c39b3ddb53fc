import { objectInFrame, unpackFrame } from '../../../snapshot-format/frames.ts';
import { letGo } from '../../../snapshot-format/let-go.ts';
import { damaged, type Hash } from '../../../snapshot-format/objects.ts';
import { type PackFile, PackIndex, readStored } from '../../../snapshot-format/pack-index.ts';
import { Slices } from '../../../protocol/slices.ts';
import { Lacking } from './lacking.ts';
import { ObjectTable } from './object-table.ts';
import { eachReference, isAmong } from './references.ts';

export interface CheckedPack {
  readonly index: PackIndex;
  /** What its objects name and no pack that was checked has. */
  readonly lacking: Lacking;
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
  async checkShort(file: PackFile, mostRawBytes: number): Promise<CheckedPack | null> {
    const index = await PackIndex.read(file);
    return index.rawBytes > mostRawBytes ? null : await this.#checked(index, file);
  }

  async #checked(index: PackIndex, frames: PackFile): Promise<CheckedPack> {
    this.#indexes.push(index);
    this.#table.add(index);
    const lacking = new Lacking();
    await checkObjects(frames, index, (hash, kinds) => {
      if (!this.#has(hash, kinds)) lacking.note(hash, kinds);
    });
    return { index, lacking };
  }

  #has(hash: Hash, kinds: number): boolean {
    const place = this.#table.find(hash);
    const kind = place === null ? undefined : this.#indexes[place.pack]?.kindAt(place.index);
    return kind !== undefined && isAmong(kind, kinds);
  }
}

/** Objects must not share bytes, so that what is hashed is never more than what was sent. `onReference` keeps nothing of what it is told. */
async function checkObjects(
  file: PackFile,
  index: PackIndex,
  onReference: (hash: Hash, kinds: number) => void,
): Promise<void> {
  const slices = new Slices();
  for (const [at, objects] of index.byFrame().entries()) {
    if (slices.isLong) await slices.rest();
    const frame = index.frame(at);
    const stored = await readStored(file, frame);
    const raw = unpackFrame(frame.encoding, frame.rawLength, stored);
    let end = 0;
    for (const object of objects) {
      if (object.offset < end) throw damaged('objects share bytes of their frame');
      end = object.offset + object.length;
      const body = objectInFrame(raw, object, true);
      eachReference(object.kind, body, onReference);
    }
    if (raw !== stored) letGo(raw);
  }
}
