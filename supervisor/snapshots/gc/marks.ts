import type { Hash, ObjectKind } from '../../../snapshot-format/objects.ts';
import { snapshotDamaged, OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import type { TimeSlice } from '../../../protocol/time-slice.ts';
import type { LineageStore, StoredPack } from '../store/lineage-store.ts';
import { kindBit, isKindIn, type Reference, referencesOf } from '../store/references.ts';

const { tree, list, root: rootKind } = OBJECT_KINDS;

/** An object's pack, and its index in the pack's order of hashes. */
export interface ObjectLocation {
  readonly pack: StoredPack;
  readonly index: number;
}

/** A set of objects of a store: one bit for each object. */
export class Marks {
  readonly #bits = new Map<string, Uint8Array>();

  has({ name }: StoredPack, index: number): boolean {
    return (((this.#bits.get(name)?.[index >> 3] ?? 0) >> (index & 7)) & 1) === 1;
  }

  /** False if the object was already marked. */
  add({ name, index: { objects } }: StoredPack, index: number): boolean {
    let bits = this.#bits.get(name);
    if (bits === undefined) {
      bits = new Uint8Array(Math.ceil(objects / 8));
      this.#bits.set(name, bits);
    }
    const byte = bits[index >> 3] ?? 0;
    const bit = 1 << (index & 7);
    if ((byte & bit) !== 0) return false;
    bits[index >> 3] = byte | bit;
    return true;
  }
}

/** Finds an object in the newest pack that holds it, as `LineageStore.find` does; null when none does. */
export function locateObject(packs: readonly StoredPack[], hash: Hash): ObjectLocation | null {
  for (let at = packs.length - 1; at >= 0; at -= 1) {
    const pack = packs[at];
    const index = pack?.index.indexOf(hash) ?? -1;
    if (pack !== undefined && index !== -1) return { pack, index };
  }
  return null;
}

/** An object's estimated share of its frame on disk: objects that are compressed together have no size of their own. */
export function storedBytes({ pack, index }: ObjectLocation): number {
  const { frame, length } = pack.index.object(index);
  const { storedLength, rawLength } = pack.index.frame(frame);
  return rawLength === 0 ? 0 : (length * storedLength) / rawLength;
}

export const REFERENCING_KINDS = kindBit(tree) | kindBit(list) | kindBit(rootKind);

/** Whether an object of this kind references others. Such an object must not stay without them. */
export function hasReferences(kind: ObjectKind): boolean {
  return isKindIn(kind, REFERENCING_KINDS);
}

export interface MarkListener {
  /** Called for each newly marked object. */
  readonly onMark?: (place: ObjectLocation) => void;
  /** Called for an object that is missing, or unreadable although it references others. May throw to stop the walk. */
  readonly onLost: (reference: Reference, error: Error) => void;
}

/** Marks every object that a tree needs and that is not yet marked. */
export async function markTree(
  store: LineageStore,
  marks: Marks,
  root: Hash,
  slices: TimeSlice,
  { onMark, onLost }: MarkListener,
): Promise<void> {
  const open: Reference[] = [{ hash: root, kinds: kindBit(rootKind) }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (slices.isUsedUp) await slices.yieldToEventLoop();
    const { hash, kinds } = next;
    const place = locateObject(store.packs, hash);
    if (place === null) {
      onLost(next, snapshotDamaged('an object is not in the store', { object: hash.toString('hex') }));
      continue;
    }
    if (!marks.add(place.pack, place.index)) continue;
    onMark?.(place);
    const { kind } = place.pack.index.object(place.index);
    try {
      if (!isKindIn(kind, kinds)) throw snapshotDamaged('an object is of another kind');
      if (hasReferences(kind)) open.push(...referencesOf(kind, await store.read(hash, kind)));
    } catch (error) {
      onLost(next, error instanceof Error ? error : new Error(String(error)));
    }
  }
}
