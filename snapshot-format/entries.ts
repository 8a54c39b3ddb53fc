import type { HoldfastError } from '../protocol/errors.ts';
import { ByteReader, ByteWriter } from './bytes.ts';
import { ENTRY_FLAGS, ENTRY_TYPES, EntryCursor } from './entry-cursor.ts';
import { snapshotDamaged, OBJECT_KINDS, type ObjectReader, SNAPSHOT_LIMITS } from './objects.ts';
import { type Piece, piecesOf, type ContentRef, writeContentRef } from './content-ref.ts';

const { treePieceBytes, entryBytes } = SNAPSHOT_LIMITS;

export interface ExtendedAttribute {
  /** With its namespace: `user.…`. */
  readonly name: Buffer;
  readonly value: Buffer;
}

interface EntryBasics {
  /** Empty only for the root. */
  readonly name: Buffer;
  /** Permission bits, 12 bits. */
  readonly mode: number;
  /** Nanoseconds since 1970. */
  readonly mtimeNs: bigint;
  /** Sorted by name, bytewise. */
  readonly xattrs: readonly ExtendedAttribute[];
}

interface LinkableBasics extends EntryBasics {
  /** 16 bytes shared by all hard links of one file in the workspace; null for a file with one link. */
  readonly linkGroup: Buffer | null;
}

export interface FileEntry extends LinkableBasics {
  readonly type: 'file';
  readonly size: number;
  /**
   * True: pieces are `block` objects, and blocks without data are omitted. False: pieces are `blob` objects, all
   * present.
   */
  readonly sparse: boolean;
  readonly content: ContentRef;
}
export interface DirectoryEntry extends EntryBasics {
  readonly type: 'directory';
  /** Pieces are `tree` objects. */
  readonly content: ContentRef;
}
export interface SymlinkEntry extends LinkableBasics {
  readonly type: 'symlink';
  readonly target: Buffer;
}
export interface SpecialFileEntry extends LinkableBasics {
  readonly type: 'fifo' | 'socket';
}
export type TreeEntry = FileEntry | DirectoryEntry | SymlinkEntry | SpecialFileEntry;

const SECOND = 1_000_000_000n;
const ROOT_VERSION = 1;

/** Appends one entry. Throws RangeError if it is larger than the format allows. */
export function writeEntry(out: ByteWriter, entry: TreeEntry): void {
  const begin = out.length;
  out.varint(entry.name.length);
  out.bytes(entry.name);
  const group = entry.type === 'directory' ? null : entry.linkGroup;
  const flags =
    (entry.xattrs.length > 0 ? ENTRY_FLAGS.xattrs : 0) |
    (group === null ? 0 : ENTRY_FLAGS.linkGroup) |
    (entry.type === 'file' && entry.sparse ? ENTRY_FLAGS.sparse : 0);
  out.byte(ENTRY_TYPES[entry.type]);
  out.byte(flags);
  out.varint(entry.mode);
  let seconds = entry.mtimeNs / SECOND;
  if (seconds * SECOND > entry.mtimeNs) seconds -= 1n;
  out.i64(seconds);
  out.u32(Number(entry.mtimeNs - seconds * SECOND));
  switch (entry.type) {
    case 'file':
      out.varint(entry.size);
      writeContentRef(out, entry.content);
      break;
    case 'directory':
      writeContentRef(out, entry.content);
      break;
    case 'symlink':
      out.varint(entry.target.length);
      out.bytes(entry.target);
      break;
    case 'fifo':
    case 'socket':
      break;
  }
  if (entry.xattrs.length > 0) {
    out.varint(entry.xattrs.length);
    for (const { name, value } of entry.xattrs) {
      out.varint(name.length);
      out.bytes(name);
      out.varint(value.length);
      out.bytes(value);
    }
  }
  if (group !== null) out.bytes(group);
  if (out.length - begin > entryBytes) throw new RangeError('an entry is larger than a snapshot can hold');
}

/** The entry at the cursor, as views of the body. */
function entryOf(body: Buffer, cursor: EntryCursor): TreeEntry {
  const { nameAt, nameEnd, type, flags, mode, timeAt, size, depth, pieces, targetAt, targetEnd } = cursor;
  const mtimeNs = body.readBigInt64LE(timeAt) * SECOND + BigInt(body.readUInt32LE(timeAt + 8));
  const xattrs = (flags & ENTRY_FLAGS.xattrs) === 0 ? [] : readXattrs(body, cursor.xattrsAt);
  const basics = { name: body.subarray(nameAt, nameEnd), mode, mtimeNs, xattrs };
  const group =
    (flags & ENTRY_FLAGS.linkGroup) === 0
      ? null
      : body.subarray(cursor.linkGroupAt, cursor.linkGroupAt + SNAPSHOT_LIMITS.linkGroupBytes);
  const items: Piece[] = [];
  for (let piece = 0; piece < pieces; piece += 1) {
    const at = cursor.hashAt(piece);
    items.push({ index: cursor.indexOf(piece), hash: body.subarray(at, at + SNAPSHOT_LIMITS.hashBytes) });
  }
  switch (type) {
    case ENTRY_TYPES.file: {
      const sparse = (flags & ENTRY_FLAGS.sparse) !== 0;
      return { ...basics, type: 'file', linkGroup: group, size, sparse, content: { depth, items } };
    }
    case ENTRY_TYPES.directory:
      return { ...basics, type: 'directory', content: { depth, items } };
    case ENTRY_TYPES.symlink:
      return { ...basics, type: 'symlink', linkGroup: group, target: body.subarray(targetAt, targetEnd) };
    default:
      return { ...basics, type: type === ENTRY_TYPES.fifo ? 'fifo' : 'socket', linkGroup: group };
  }
}

/** The extended attributes of an entry that the cursor has validated. */
function readXattrs(body: Buffer, from: number): ExtendedAttribute[] {
  const input = new ByteReader(body.subarray(from));
  const xattrs: ExtendedAttribute[] = [];
  for (let left = input.varint(entryBytes); left > 0; left -= 1) {
    const name = input.bytes(input.varint(entryBytes));
    xattrs.push({ name, value: input.bytes(input.varint(entryBytes)) });
  }
  return xattrs;
}

/** A smaller piece of a directory is not ended by a name. */
const MIN_PIECE_BYTES = 8 * 1024;
/** One name in this many ends a piece. */
const NAMES_PER_PIECE = 256;

/**
 * Splits the entries of one directory, sorted by name, into bodies of `tree` objects. The names decide where a piece
 * ends (content-defined chunking), so that a new entry changes one piece and not all that follow.
 */
export class TreeSplitter {
  readonly #out = new ByteWriter(16 * 1024);
  readonly #onPiece: (body: Buffer) => void;

  /** `onPiece` gets a copy of each body. */
  constructor(onPiece: (body: Buffer) => void) {
    this.#onPiece = onPiece;
  }

  add(entry: TreeEntry): void {
    const before = this.#out.length;
    writeEntry(this.#out, entry);
    this.#endPieceIfDue(before, entry.name);
  }

  /** Copies the encoded entry at the cursor of another body. */
  copy(body: Buffer, { begin, end, nameAt, nameEnd }: EntryCursor): void {
    const before = this.#out.length;
    this.#out.bytes(body.subarray(begin, end));
    this.#endPieceIfDue(before, body.subarray(nameAt, nameEnd));
  }

  /** Called after an entry was written at `before`: ends the piece where needed. */
  #endPieceIfDue(before: number, name: Buffer): void {
    if (this.#out.length > treePieceBytes && before > 0) {
      const rest = Buffer.from(this.#out.view(before));
      this.#out.truncate(before);
      this.#flush();
      this.#out.bytes(rest);
    }
    if (this.#out.length >= MIN_PIECE_BYTES && hashName(name) % NAMES_PER_PIECE === 0) this.#flush();
  }

  /** Ends the directory; an empty one has no piece. The splitter can then be used for the next directory. */
  end(): void {
    if (this.#out.length > 0) this.#flush();
  }

  #flush(): void {
    this.#onPiece(this.#out.toBuffer());
    this.#out.truncate(0);
  }
}

/** FNV-1a with murmur's finalizer: cheap, and the same everywhere. */
function hashName(name: Buffer): number {
  let hash = 0x811c9dc5;
  for (const byte of name) hash = Math.imul(hash ^ byte, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  return (hash ^ (hash >>> 13)) >>> 0;
}

/** The entries of one `tree` object. */
export function parseTree(body: Buffer): TreeEntry[] {
  const cursor = new EntryCursor(body);
  const entries: TreeEntry[] = [];
  while (cursor.next()) entries.push(entryOf(body, cursor));
  if (entries.length === 0) throw emptyPieceError();
  return entries;
}

/** The error for a piece of a directory without entries. */
export function emptyPieceError(): HoldfastError {
  return snapshotDamaged('a piece of a directory is empty');
}

/** Body of the `root` object: the top directory's own attributes. Its name is empty. */
export function encodeRoot(entry: DirectoryEntry): Buffer {
  const out = new ByteWriter(256);
  out.byte(ROOT_VERSION);
  writeEntry(out, entry);
  return out.toBuffer();
}

export function parseRoot(body: Buffer): DirectoryEntry {
  if (body[0] !== ROOT_VERSION) throw snapshotDamaged('it was written by another version');
  const cursor = new EntryCursor(body, 1, true);
  const entry = cursor.next() ? entryOf(body, cursor) : null;
  if (entry?.type !== 'directory' || !cursor.isAtEnd) throw snapshotDamaged('the root is not a directory');
  return entry;
}

/** The entries of a directory, sorted by name. Holds one piece at a time. */
export async function* entriesOf(
  reader: ObjectReader,
  { content }: Pick<DirectoryEntry, 'content'>,
): AsyncGenerator<TreeEntry, void, undefined> {
  let last: Buffer | undefined;
  for await (const { hash } of piecesOf(reader, content)) {
    for (const entry of parseTree(await reader.read(hash, OBJECT_KINDS.tree))) {
      if (last !== undefined && last.compare(entry.name) >= 0)
        throw snapshotDamaged('names are out of order');
      last = entry.name;
      yield entry;
    }
  }
}
