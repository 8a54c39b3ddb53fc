import type { Hash } from '../../../snapshot-format/objects.ts';
import type { PackIndex } from '../../../snapshot-format/pack-index.ts';

/** Words of a slot: number of the pack and one, index in it. */
const SLOT_WORDS = 2;
const LEAST_SLOTS = 256;
/** A table is made larger before it is fuller than this. */
const FULLEST = 2 / 3;

/** Where an object lies: the number of its pack, and its index in that. */
export interface TableLocation {
  readonly pack: number;
  readonly index: number;
}

/**
 * Finds an object in many packs by one look, not one in each: a lineage gets a pack with every snapshot. 8 bytes a slot; the hashes are those
 * of the indexes. Of an object in several packs the last one that was added counts.
 */
export class ObjectTable {
  #packs: PackIndex[] = [];
  #slots = new Uint32Array(LEAST_SLOTS * SLOT_WORDS);
  #used = 0;

  /** Packs are numbered in the order in which they are added. */
  add(pack: PackIndex): void {
    this.#packs.push(pack);
    if (this.#used + pack.objects > this.#most) this.#grow();
    else this.#fill(this.#packs.length - 1, pack);
  }

  /** From now on it knows these packs, numbered from 0. */
  replace(packs: readonly PackIndex[]): void {
    this.#packs = [...packs];
    this.#grow();
  }

  find(hash: Hash): TableLocation | null {
    const prefix = hash.readUInt32LE(0);
    for (let at = this.#first(prefix); ; at = this.#after(at)) {
      const number = this.#slots[at] ?? 0;
      if (number === 0) return null;
      const pack = this.#packs[number - 1];
      const index = this.#slots[at + 1] ?? 0;
      if (pack?.prefixOf(index) === prefix && pack.hasHashAt(index, hash)) return { pack: number - 1, index };
    }
  }

  #first(prefix: number): number {
    return (prefix * SLOT_WORDS) & (this.#slots.length - 1);
  }

  #after(at: number): number {
    return (at + SLOT_WORDS) & (this.#slots.length - 1);
  }

  get #most(): number {
    return (this.#slots.length / SLOT_WORDS) * FULLEST;
  }

  #grow(): void {
    let slots = LEAST_SLOTS;
    const objects = this.#packs.reduce((sum, pack) => sum + pack.objects, 0);
    while (slots * FULLEST < objects) slots *= 2;
    this.#slots = new Uint32Array(slots * SLOT_WORDS);
    this.#used = 0;
    this.#packs.forEach((pack, number) => this.#fill(number, pack));
  }

  #fill(number: number, pack: PackIndex): void {
    for (let index = 0; index < pack.objects; index += 1) {
      const at = this.#slotFor(pack, index);
      if (this.#slots[at] === 0) this.#used += 1;
      this.#slots[at] = number + 1;
      this.#slots[at + 1] = index;
    }
  }

  /** The object's own where it is there already, else the first that is free. */
  #slotFor(pack: PackIndex, index: number): number {
    const prefix = pack.prefixOf(index);
    for (let at = this.#first(prefix); ; at = this.#after(at)) {
      const number = this.#slots[at] ?? 0;
      if (number === 0) return at;
      const other = this.#packs[number - 1];
      const place = this.#slots[at + 1] ?? 0;
      if (other?.prefixOf(place) === prefix && other.hasHashAt(place, pack.hashAt(index))) return at;
    }
  }
}
