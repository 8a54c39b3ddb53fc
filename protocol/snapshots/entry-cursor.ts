import { damaged, SNAPSHOT_LIMITS } from './objects.ts';

const {
  entryBytes,
  nameBytes,
  targetBytes,
  groupBytes,
  hashBytes,
  inlinePieces,
  depth: deepest,
} = SNAPSHOT_LIMITS;

export const ENTRY_TYPES = { file: 0, directory: 1, symlink: 2, fifo: 3, socket: 4 } as const;
export const ENTRY_FLAGS = { xattrs: 1, group: 2, sparse: 4 } as const;
/** Flags that an entry of each type may have. */
const FLAGS_OF = [
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.group | ENTRY_FLAGS.sparse,
  ENTRY_FLAGS.xattrs,
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.group,
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.group,
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.group,
] as const;
const MODE_BITS = 0o7777;
const TIME_BYTES = 8;
const SLASH = 0x2f;
const DOT = 0x2e;
const SEVEN_BITS = 0x7f;
const MORE = 0x80;
/** Bytes of the longest varint. */
const VARINT_BYTES = 8;

/**
 * Goes over encoded entries and checks them without making anything of them: who looks through a large tree wants a hash of most of them,
 * or only where they end. What it says is of the entry that `next` has gone over; positions are in the body.
 */
export class EntryCursor {
  readonly #bytes: Uint8Array;
  readonly #isRoot: boolean;
  #at: number;
  begin = 0;
  end = 0;
  nameAt = 0;
  nameEnd = 0;
  /** One of `ENTRY_TYPES`. */
  type = 0;
  flags = 0;
  mode = 0;
  /** Of seconds (i64) and nanoseconds (u32). */
  timeAt = 0;
  size = 0;
  depth = 0;
  pieces = 0;
  /** Of the link's text. */
  targetAt = 0;
  targetEnd = 0;
  /** Of the number of extended attributes, where there are some. */
  xattrsAt = 0;
  groupAt = 0;
  readonly #hashes = new Uint32Array(inlinePieces);
  readonly #indexes = new Float64Array(inlinePieces);

  /** `isRoot`: the entry has no name. */
  constructor(bytes: Uint8Array, from = 0, isRoot = false) {
    this.#bytes = bytes;
    this.#at = from;
    this.#isRoot = isRoot;
  }

  /** Position of the hash of one of the pieces. */
  hashAt(piece: number): number {
    return this.#hashes[piece] ?? 0;
  }

  /** Which block of the file, or part of the directory, it is. */
  indexOf(piece: number): number {
    return this.#indexes[piece] ?? 0;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** To the next entry; false when there is none. Throws `snapshot_damaged` for what is none, or is not in the order of names. */
  next(): boolean {
    const bytes = this.#bytes;
    if (this.#at === bytes.length) return false;
    const before = this.nameAt;
    const beforeEnd = this.nameEnd;
    this.begin = this.#at;
    const length = this.#varint(nameBytes);
    this.nameAt = this.#skip(length);
    this.nameEnd = this.#at;
    if (this.#isRoot ? length > 0 : !this.#isName()) throw damaged('a name that no file can have');
    if (beforeEnd > 0 && !isBefore(bytes, before, beforeEnd, this.nameAt, this.nameEnd)) {
      throw damaged('names are out of order');
    }
    const type = this.#byte();
    const known = FLAGS_OF[type];
    if (known === undefined) throw damaged('an entry of a type that we do not know');
    const flags = this.#byte();
    if ((flags & ~known) !== 0) throw damaged('an entry with a mark that we do not know');
    this.type = type;
    this.flags = flags;
    this.mode = this.#varint(MODE_BITS);
    this.timeAt = this.#skip(TIME_BYTES);
    if (this.#u32() >= 1e9) throw damaged('a time that does not exist');
    this.size = type === ENTRY_TYPES.file ? this.#varint(Number.MAX_SAFE_INTEGER) : 0;
    if (type === ENTRY_TYPES.file || type === ENTRY_TYPES.directory) this.#ref();
    else this.depth = this.pieces = 0;
    if (type === ENTRY_TYPES.symlink) this.#target();
    this.xattrsAt = this.#at;
    if ((flags & ENTRY_FLAGS.xattrs) !== 0) this.#xattrs();
    this.groupAt = (flags & ENTRY_FLAGS.group) === 0 ? 0 : this.#skip(groupBytes);
    this.end = this.#at;
    if (this.end - this.begin > entryBytes) throw damaged('an entry is too large');
    return true;
  }

  #ref(): void {
    this.depth = this.#varint(deepest);
    this.pieces = this.#varint(inlinePieces);
    if (this.depth > 0 && this.pieces === 0) throw damaged('lists without a piece');
    let expected = 0;
    for (let piece = 0; piece < this.pieces; piece += 1) {
      const index = expected + this.#varint(Number.MAX_SAFE_INTEGER - expected - 1);
      this.#indexes[piece] = index;
      this.#hashes[piece] = this.#skip(hashBytes);
      expected = index + 1;
    }
  }

  #target(): void {
    const length = this.#varint(targetBytes);
    this.targetAt = this.#skip(length);
    this.targetEnd = this.#at;
    if (length === 0 || this.#has(this.targetAt, this.targetEnd, 0)) {
      throw damaged('a link that no file system has');
    }
  }

  #xattrs(): void {
    const count = this.#varint(entryBytes);
    if (count === 0) throw damaged('extended attributes without one');
    let before = 0;
    let beforeEnd = 0;
    for (let each = 0; each < count; each += 1) {
      const length = this.#varint(nameBytes);
      const at = this.#skip(length);
      const isInOrder = beforeEnd === 0 || isBefore(this.#bytes, before, beforeEnd, at, this.#at);
      if (length === 0 || this.#has(at, this.#at, 0) || !isInOrder) {
        throw damaged('extended attributes are out of order');
      }
      before = at;
      beforeEnd = this.#at;
      this.#skip(this.#varint(entryBytes));
    }
  }

  #isName(): boolean {
    const { nameAt, nameEnd } = this;
    const length = nameEnd - nameAt;
    if (length === 0 || this.#has(nameAt, nameEnd, 0) || this.#has(nameAt, nameEnd, SLASH)) return false;
    if (this.#bytes[nameAt] !== DOT) return true;
    return length > 2 || (length === 2 && this.#bytes[nameAt + 1] !== DOT);
  }

  #has(from: number, to: number, wanted: number): boolean {
    const bytes = this.#bytes;
    for (let at = from; at < to; at += 1) if (bytes[at] === wanted) return true;
    return false;
  }

  /** Its position. */
  #skip(count: number): number {
    const at = this.#at;
    if (count > this.#bytes.length - at) throw damaged('something ends too early');
    this.#at = at + count;
    return at;
  }

  #byte(): number {
    return this.#bytes[this.#skip(1)] ?? 0;
  }

  #u32(): number {
    const at = this.#skip(4);
    const bytes = this.#bytes;
    const low = (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8) | ((bytes[at + 2] ?? 0) << 16);
    return (low | ((bytes[at + 3] ?? 0) << 24)) >>> 0;
  }

  #varint(most: number): number {
    let value = 0;
    let scale = 1;
    for (let count = 0; count < VARINT_BYTES; count += 1) {
      const byte = this.#byte();
      value += (byte & SEVEN_BITS) * scale;
      if ((byte & MORE) === 0) {
        if (byte === 0 && count > 0) throw damaged('a number is written longer than needed');
        if (value > most) throw damaged('a number is too large');
        return value;
      }
      scale *= 128;
    }
    throw damaged('a number is too large');
  }
}

/** By bytes. */
function isBefore(bytes: Uint8Array, one: number, oneEnd: number, other: number, otherEnd: number): boolean {
  const length = Math.min(oneEnd - one, otherEnd - other);
  for (let at = 0; at < length; at += 1) {
    const difference = (bytes[one + at] ?? 0) - (bytes[other + at] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return oneEnd - one < otherEnd - other;
}
