import {
  type FrameRecord,
  objectInFrame,
  unpackFrame,
  unpackFrameBeside,
} from '../../../protocol/snapshots/frames.ts';
import { letGo } from '../../../protocol/snapshots/let-go.ts';
import { damaged, type Hash } from '../../../protocol/snapshots/objects.ts';
import { type PackFile, PackIndex, readStored } from '../../../protocol/snapshots/pack-index.ts';
import { Lacking } from './lacking.ts';
import { ObjectTable } from './object-table.ts';
import { eachReference, isAmong } from './references.ts';

export interface CheckedPack {
  readonly index: PackIndex;
  /** What its objects name and no pack that was checked has. */
  readonly lacking: Lacking;
}

/** Frames that are read and unpacked at once. */
const AHEAD = 4;

interface Unpacked {
  readonly raw: Buffer;
  readonly objects: readonly FrameRecord[];
  /** Nobody else has its memory. */
  readonly isOwn: boolean;
}

/** Checks the packs of one snapshot, one at a time. Whoever made them need not be believed. */
export class PackChecker {
  readonly #indexes: PackIndex[] = [];
  /** Of `#indexes`. */
  readonly #table = new ObjectTable();

  /**
   * Reads all of a pack and checks every frame and every object in it, frames unpacked beside this thread. `ownThread`: in this one, with
   * the same file again, of which what `read` gives need only last until the next one. Throws `snapshot_damaged`, `invalid_params`, and what reading throws; nothing is to be checked after that.
   */
  async check(file: PackFile, ownThread?: PackFile): Promise<CheckedPack> {
    const index = await PackIndex.read(file);
    this.#indexes.push(index);
    this.#table.add(index);
    const lacking = new Lacking();
    const frames = ownThread === undefined ? unpackedBeside(file, index) : unpacked(ownThread, index);
    await checkObjects(frames, (hash, kinds) => {
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
  frames: AsyncIterable<Unpacked>,
  onReference: (hash: Hash, kinds: number) => void,
): Promise<void> {
  for await (const { raw, objects, isOwn } of frames) {
    let end = 0;
    for (const object of objects) {
      if (object.offset < end) throw damaged('objects share bytes of their frame');
      end = object.offset + object.length;
      const body = objectInFrame(raw, object, true);
      eachReference(object.kind, body, onReference);
    }
    if (isOwn) letGo(raw);
  }
}

async function* unpacked(file: PackFile, index: PackIndex): AsyncGenerator<Unpacked> {
  for (const [at, objects] of index.byFrame().entries()) {
    const frame = index.frame(at);
    const stored = await readStored(file, frame);
    const raw = unpackFrame(frame.encoding, frame.rawLength, stored);
    yield { raw, objects, isOwn: raw !== stored };
  }
}

async function* unpackedBeside(file: PackFile, index: PackIndex): AsyncGenerator<Unpacked> {
  const coming: Promise<Unpacked>[] = [];
  const begin = async (at: number, objects: readonly FrameRecord[]): Promise<Unpacked> => {
    const frame = index.frame(at);
    const stored = await readStored(file, frame);
    const raw = await unpackFrameBeside(frame.encoding, frame.rawLength, stored);
    return { raw, objects, isOwn: true };
  };
  for (const [at, objects] of index.byFrame().entries()) {
    const next = begin(at, objects);
    // Its failure is met when its turn comes.
    next.catch(() => undefined);
    coming.push(next);
    const first = coming.length < AHEAD ? undefined : coming.shift();
    if (first !== undefined) yield await first;
  }
  for (const next of coming) yield await next;
}
