import { ByteReader } from './bytes.ts';
import { snapshotDamaged, SNAPSHOT_LIMITS } from './objects.ts';

const {
  entryBytes,
  nameBytes,
  targetBytes,
  linkGroupBytes,
  hashBytes,
  inlinePieces,
  depth: maxDepth,
} = SNAPSHOT_LIMITS;

export const ENTRY_TYPES = { file: 0, directory: 1, symlink: 2, fifo: 3, socket: 4 } as const;
export const ENTRY_FLAGS = { xattrs: 1, linkGroup: 2, sparse: 4 } as const;
/** The flags allowed for each type of entry. */
const FLAGS_OF = [
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.linkGroup | ENTRY_FLAGS.sparse,
  ENTRY_FLAGS.xattrs,
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.linkGroup,
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.linkGroup,
  ENTRY_FLAGS.xattrs | ENTRY_FLAGS.linkGroup,
] as const;
const MODE_BITS = 0o7777;
const TIME_BYTES = 8;
const SLASH = 0x2f;
const DOT = 0x2e;

/**
 * Iterates over encoded entries and validates them without allocating objects, because most readers of a large tree
 * need only a hash or the end of an entry. The fields describe the entry that `next` has read; positions are offsets in
 * the body.
 */
export class EntryCursor {
  readonly #bytes: Buffer;
  readonly #reader: ByteReader;
  readonly #isRoot: boolean;
  begin = 0;
  end = 0;
  nameAt = 0;
  nameEnd = 0;
  /** One of `ENTRY_TYPES`. */
  type = 0;
  flags = 0;
  mode = 0;
  /** Position of the seconds (i64) and nanoseconds (u32). */
  timeAt = 0;
  size = 0;
  depth = 0;
  pieces = 0;
  /** Position of the link target. */
  targetAt = 0;
  targetEnd = 0;
  /** Position of the number of extended attributes, if there are any. */
  xattrsAt = 0;
  linkGroupAt = 0;
  readonly #hashes = new Uint32Array(inlinePieces);
  readonly #indexes = new Float64Array(inlinePieces);

  /** `isRoot`: the entry is the root and has no name. */
  constructor(bytes: Buffer, from = 0, isRoot = false) {
    this.#bytes = bytes;
    this.#reader = new ByteReader(bytes, from);
    this.#isRoot = isRoot;
  }

  /** Position of the hash of a piece. */
  hashAt(piece: number): number {
    return this.#hashes[piece] ?? 0;
  }

  /** Index of a piece: the block of the file, or the part of the directory. */
  indexOf(piece: number): number {
    return this.#indexes[piece] ?? 0;
  }

  get isAtEnd(): boolean {
    return this.#reader.isAtEnd;
  }

  /** Reads the next entry; false at the end. Throws `snapshot_damaged` for an invalid entry or a name out of order. */
  next(): boolean {
    const bytes = this.#bytes;
    if (this.isAtEnd) return false;
    const before = this.nameAt;
    const beforeEnd = this.nameEnd;
    this.begin = this.#reader.position;
    const length = this.#reader.varint(nameBytes);
    this.nameAt = this.#reader.skip(length);
    this.nameEnd = this.#reader.position;
    if (this.#isRoot ? length > 0 : !this.#isName()) throw snapshotDamaged('an invalid file name');
    if (beforeEnd > 0 && !isBefore(bytes, before, beforeEnd, this.nameAt, this.nameEnd)) {
      throw snapshotDamaged('names are out of order');
    }
    const type = this.#reader.byte();
    const known = FLAGS_OF[type];
    if (known === undefined) throw snapshotDamaged('an entry of an unknown type');
    const flags = this.#reader.byte();
    if ((flags & ~known) !== 0) throw snapshotDamaged('an entry with an unknown flag');
    this.type = type;
    this.flags = flags;
    this.mode = this.#reader.varint(MODE_BITS);
    this.timeAt = this.#reader.skip(TIME_BYTES);
    if (this.#reader.u32() >= 1e9) throw snapshotDamaged('an invalid time');
    this.size = type === ENTRY_TYPES.file ? this.#reader.varint(Number.MAX_SAFE_INTEGER) : 0;
    if (type === ENTRY_TYPES.file || type === ENTRY_TYPES.directory) this.#ref();
    else this.depth = this.pieces = 0;
    if (type === ENTRY_TYPES.symlink) this.#target();
    this.xattrsAt = this.#reader.position;
    if ((flags & ENTRY_FLAGS.xattrs) !== 0) this.#xattrs();
    this.linkGroupAt = (flags & ENTRY_FLAGS.linkGroup) === 0 ? 0 : this.#reader.skip(linkGroupBytes);
    this.end = this.#reader.position;
    if (this.end - this.begin > entryBytes) throw snapshotDamaged('an entry is too large');
    return true;
  }

  #ref(): void {
    this.depth = this.#reader.varint(maxDepth);
    this.pieces = this.#reader.varint(inlinePieces);
    if (this.depth > 0 && this.pieces === 0) throw snapshotDamaged('a list without pieces');
    let expected = 0;
    for (let piece = 0; piece < this.pieces; piece += 1) {
      const index = expected + this.#reader.varint(Number.MAX_SAFE_INTEGER - expected - 1);
      this.#indexes[piece] = index;
      this.#hashes[piece] = this.#reader.skip(hashBytes);
      expected = index + 1;
    }
  }

  #target(): void {
    const length = this.#reader.varint(targetBytes);
    this.targetAt = this.#reader.skip(length);
    this.targetEnd = this.#reader.position;
    if (length === 0 || this.#has(this.targetAt, this.targetEnd, 0)) {
      throw snapshotDamaged('an invalid link target');
    }
  }

  #xattrs(): void {
    const count = this.#reader.varint(entryBytes);
    if (count === 0) throw snapshotDamaged('an empty set of extended attributes');
    let before = 0;
    let beforeEnd = 0;
    for (let each = 0; each < count; each += 1) {
      const length = this.#reader.varint(nameBytes);
      const at = this.#reader.skip(length);
      const isInOrder =
        beforeEnd === 0 || isBefore(this.#bytes, before, beforeEnd, at, this.#reader.position);
      if (length === 0 || this.#has(at, this.#reader.position, 0) || !isInOrder) {
        throw snapshotDamaged('extended attributes are out of order');
      }
      before = at;
      beforeEnd = this.#reader.position;
      this.#reader.skip(this.#reader.varint(entryBytes));
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
}

/** Compares bytewise. */
function isBefore(bytes: Uint8Array, one: number, oneEnd: number, other: number, otherEnd: number): boolean {
  const length = Math.min(oneEnd - one, otherEnd - other);
  for (let at = 0; at < length; at += 1) {
    const difference = (bytes[one + at] ?? 0) - (bytes[other + at] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return oneEnd - one < otherEnd - other;
}
