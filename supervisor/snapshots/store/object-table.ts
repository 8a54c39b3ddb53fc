import type { Hash } from '../../../snapshot-format/objects.ts';
import type { PackIndex } from '../../../snapshot-format/pack-index.ts';

/** Words of a slot: the pack number plus one, and the object's index in the pack. */
const SLOT_WORDS = 2;
const MIN_SLOTS = 256;
/** The table grows before it exceeds this load factor. */
const MAX_LOAD = 2 / 3;

/** The number of an object's pack, and its index in the pack. */
export interface TableLocation {
  readonly pack: number;
  readonly index: number;
}

/**
 * A hash table over the indexes of all packs, because a lineage gets a pack with every snapshot. 8 bytes a slot; the
 * hashes stay in the indexes. If several packs hold an object, the pack added last wins.
 */
export class ObjectTable {
  #packs: PackIndex[] = [];
  #slots = new Uint32Array(MIN_SLOTS * SLOT_WORDS);
  #used = 0;

  /** Packs are numbered in the order in which they are added. */
  add(pack: PackIndex): void {
    this.#packs.push(pack);
    if (this.#used + pack.objects > this.#capacity) this.#rebuild();
    else this.#insertAll(this.#packs.length - 1, pack);
  }

  /** Replaces all packs, numbered from 0. */
  replace(packs: readonly PackIndex[]): void {
    this.#packs = [...packs];
    this.#rebuild();
  }

  find(hash: Hash): TableLocation | null {
    const prefix = hash.readUInt32LE(0);
    for (let at = this.#firstSlot(prefix); ; at = this.#nextSlot(at)) {
      const number = this.#slots[at] ?? 0;
      if (number === 0) return null;
      const pack = this.#packs[number - 1];
      const index = this.#slots[at + 1] ?? 0;
      if (pack?.prefixOf(index) === prefix && pack.hasHashAt(index, hash)) return { pack: number - 1, index };
    }
  }

  #firstSlot(prefix: number): number {
    return (prefix * SLOT_WORDS) & (this.#slots.length - 1);
  }

  #nextSlot(at: number): number {
    return (at + SLOT_WORDS) & (this.#slots.length - 1);
  }

  get #capacity(): number {
    return (this.#slots.length / SLOT_WORDS) * MAX_LOAD;
  }

  #rebuild(): void {
    let slots = MIN_SLOTS;
    const objects = this.#packs.reduce((sum, pack) => sum + pack.objects, 0);
    while (slots * MAX_LOAD < objects) slots *= 2;
    this.#slots = new Uint32Array(slots * SLOT_WORDS);
    this.#used = 0;
    this.#packs.forEach((pack, number) => this.#insertAll(number, pack));
  }

  #insertAll(number: number, pack: PackIndex): void {
    for (let index = 0; index < pack.objects; index += 1) {
      const at = this.#slotFor(pack, index);
      if (this.#slots[at] === 0) this.#used += 1;
      this.#slots[at] = number + 1;
      this.#slots[at + 1] = index;
    }
  }

  /** The slot that holds the object, else the first free one. */
  #slotFor(pack: PackIndex, index: number): number {
    const prefix = pack.prefixOf(index);
    for (let at = this.#firstSlot(prefix); ; at = this.#nextSlot(at)) {
      const number = this.#slots[at] ?? 0;
      if (number === 0) return at;
      const other = this.#packs[number - 1];
      const place = this.#slots[at + 1] ?? 0;
      if (other?.prefixOf(place) === prefix && other.hasHashAt(place, pack.hashAt(index))) return at;
    }
  }
}
