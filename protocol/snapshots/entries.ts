import { ByteReader, ByteWriter } from './bytes.ts';
import { damaged, OBJECT_KINDS, type ObjectReader, SNAPSHOT_LIMITS } from './objects.ts';
import { piecesOf, readRef, type Ref, writeRef } from './refs.ts';

const { treePieceBytes, entryBytes, nameBytes, targetBytes, groupBytes } = SNAPSHOT_LIMITS;

export interface ExtendedAttribute {
  /** With its namespace: `user.…`. */
  readonly name: Buffer;
  readonly value: Buffer;
}

interface EntryBasics {
  /** Empty for the root only. */
  readonly name: Buffer;
  /** 12 bits. */
  readonly mode: number;
  /** Nanoseconds since 1970. */
  readonly mtimeNs: bigint;
  /** In byte order of their names. */
  readonly xattrs: readonly ExtendedAttribute[];
}

interface LinkableBasics extends EntryBasics {
  /** 16 bytes that all names of one file share, when it has more than one in the workspace. */
  readonly group: Buffer | null;
}

export interface FileEntry extends LinkableBasics {
  readonly type: 'file';
  readonly size: number;
  /** Its pieces are `block` objects, and blocks without data are missing; else `blob` objects, none missing. */
  readonly sparse: boolean;
  readonly content: Ref;
}
export interface DirectoryEntry extends EntryBasics {
  readonly type: 'directory';
  /** Pieces are `tree` objects. */
  readonly content: Ref;
}
export interface SymlinkEntry extends LinkableBasics {
  readonly type: 'symlink';
  readonly target: Buffer;
}
export interface NodeEntry extends LinkableBasics {
  readonly type: 'fifo' | 'socket';
}
export type TreeEntry = FileEntry | DirectoryEntry | SymlinkEntry | NodeEntry;

const TYPES = ['file', 'directory', 'symlink', 'fifo', 'socket'] as const;
const TYPE_NUMBERS = { file: 0, directory: 1, symlink: 2, fifo: 3, socket: 4 } as const;
const HAS_XATTRS = 1;
const HAS_GROUP = 2;
const IS_SPARSE = 4;
const MODE_BITS = 0o7777;
const SECOND = 1_000_000_000n;
const SLASH = 0x2f;
const DOT = 0x2e;
const ROOT_VERSION = 1;

/** Appends one entry. Throws RangeError where it is larger than the format allows. */
export function writeEntry(out: ByteWriter, entry: TreeEntry): void {
  const begin = out.length;
  out.varint(entry.name.length);
  out.bytes(entry.name);
  const group = entry.type === 'directory' ? null : entry.group;
  const flags =
    (entry.xattrs.length > 0 ? HAS_XATTRS : 0) |
    (group === null ? 0 : HAS_GROUP) |
    (entry.type === 'file' && entry.sparse ? IS_SPARSE : 0);
  out.byte(TYPE_NUMBERS[entry.type]);
  out.byte(flags);
  out.varint(entry.mode);
  let seconds = entry.mtimeNs / SECOND;
  if (seconds * SECOND > entry.mtimeNs) seconds -= 1n;
  out.i64(seconds);
  out.u32(Number(entry.mtimeNs - seconds * SECOND));
  switch (entry.type) {
    case 'file':
      out.varint(entry.size);
      writeRef(out, entry.content);
      break;
    case 'directory':
      writeRef(out, entry.content);
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

function readEntry(input: ByteReader, isRoot: boolean): TreeEntry {
  const begin = input.position;
  const name = input.bytes(input.varint(nameBytes));
  if (isRoot ? name.length > 0 : !isName(name)) throw damaged('a name that no file can have');
  const type = TYPES[input.byte()];
  if (type === undefined) throw damaged('an entry of a type that we do not know');
  const flags = input.byte();
  const known = type === 'file' ? 7 : type === 'directory' ? HAS_XATTRS : HAS_XATTRS | HAS_GROUP;
  if ((flags & ~known) !== 0) throw damaged('an entry with a mark that we do not know');
  const mode = input.varint(MODE_BITS);
  const seconds = input.i64();
  const nanoseconds = input.u32();
  if (nanoseconds >= 1e9) throw damaged('a time that does not exist');
  const mtimeNs = seconds * SECOND + BigInt(nanoseconds);
  const size = type === 'file' ? input.varint(Number.MAX_SAFE_INTEGER) : 0;
  const content = type === 'file' || type === 'directory' ? readRef(input) : null;
  const target = type === 'symlink' ? input.bytes(input.varint(targetBytes)) : null;
  const xattrs = (flags & HAS_XATTRS) === 0 ? [] : readXattrs(input);
  const group = (flags & HAS_GROUP) === 0 ? null : input.bytes(groupBytes);
  if (input.position - begin > entryBytes) throw damaged('an entry is too large');
  const basics = { name, mode, mtimeNs, xattrs };
  if (type === 'file' && content !== null) {
    return { ...basics, type, group, size, sparse: (flags & IS_SPARSE) !== 0, content };
  }
  if (type === 'directory' && content !== null) return { ...basics, type, content };
  if (type === 'symlink' && target !== null) {
    if (target.length === 0 || target.includes(0)) throw damaged('a link that no file system has');
    return { ...basics, type, group, target };
  }
  if (type === 'fifo' || type === 'socket') return { ...basics, type, group };
  throw damaged('an entry that lacks something');
}

function readXattrs(input: ByteReader): ExtendedAttribute[] {
  const count = input.varint(entryBytes);
  if (count === 0) throw damaged('extended attributes without one');
  const xattrs: ExtendedAttribute[] = [];
  for (let at = 0; at < count; at += 1) {
    const name = input.bytes(input.varint(nameBytes));
    const value = input.bytes(input.varint(entryBytes));
    const last = xattrs.at(-1);
    if (name.length === 0 || name.includes(0) || (last !== undefined && last.name.compare(name) >= 0)) {
      throw damaged('extended attributes are out of order');
    }
    xattrs.push({ name, value });
  }
  return xattrs;
}

function isName(name: Buffer): boolean {
  if (name.length === 0 || name.includes(SLASH) || name.includes(0)) return false;
  return !(name[0] === DOT && (name.length === 1 || (name.length === 2 && name[1] === DOT)));
}

/** Below this a piece of a directory is not ended by a name. */
const LEAST_PIECE = 8 * 1024;
/** One name in so many ends a piece. */
const NAMES_A_PIECE = 256;

/**
 * The entries of one directory, in byte order of their names, as bodies of `tree` objects. Where a piece ends depends on the
 * names, so that one more entry changes one piece and not all that follow.
 */
export class TreeCutter {
  readonly #out = new ByteWriter(16 * 1024);
  readonly #onPiece: (body: Buffer) => void;

  /** The body is a copy. */
  constructor(onPiece: (body: Buffer) => void) {
    this.#onPiece = onPiece;
  }

  add(entry: TreeEntry): void {
    const before = this.#out.length;
    writeEntry(this.#out, entry);
    if (this.#out.length > treePieceBytes && before > 0) {
      const rest = Buffer.from(this.#out.view(before));
      this.#out.cut(before);
      this.#flush();
      this.#out.bytes(rest);
    }
    if (this.#out.length >= LEAST_PIECE && nameNumber(entry.name) % NAMES_A_PIECE === 0) this.#flush();
  }

  /** Nothing for a directory without entries. The cutter can be used for the next directory. */
  end(): void {
    if (this.#out.length > 0) this.#flush();
  }

  #flush(): void {
    this.#onPiece(this.#out.take());
    this.#out.cut(0);
  }
}

/** FNV-1a with the bits of murmur's end mixed in: cheap, and the same everywhere. */
function nameNumber(name: Buffer): number {
  let hash = 0x811c9dc5;
  for (const byte of name) hash = Math.imul(hash ^ byte, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  return (hash ^ (hash >>> 13)) >>> 0;
}

/** The entries of one `tree` object. */
export function parseTree(body: Buffer): TreeEntry[] {
  const input = new ByteReader(body);
  const entries: TreeEntry[] = [];
  while (!input.isAtEnd) {
    const entry = readEntry(input, false);
    const last = entries.at(-1);
    if (last !== undefined && last.name.compare(entry.name) >= 0) throw damaged('names are out of order');
    entries.push(entry);
  }
  if (entries.length === 0) throw damaged('a piece of a directory is empty');
  return entries;
}

/** Body of the `root` object: the top directory's own attributes. Its name is empty. */
export function encodeRoot(entry: DirectoryEntry): Buffer {
  const out = new ByteWriter(256);
  out.byte(ROOT_VERSION);
  writeEntry(out, entry);
  return out.take();
}

export function parseRoot(body: Buffer): DirectoryEntry {
  const input = new ByteReader(body);
  if (input.byte() !== ROOT_VERSION) throw damaged('it was made by another version');
  const entry = readEntry(input, true);
  if (entry.type !== 'directory' || !input.isAtEnd) throw damaged('the root is no directory');
  return entry;
}

/** Entries of a directory in byte order of their names. Holds one piece at a time. */
export async function* entriesOf(
  reader: ObjectReader,
  { content }: Pick<DirectoryEntry, 'content'>,
): AsyncGenerator<TreeEntry, void, undefined> {
  let last: Buffer | undefined;
  for await (const { hash } of piecesOf(reader, content)) {
    for (const entry of parseTree(await reader.read(hash, OBJECT_KINDS.tree))) {
      if (last !== undefined && last.compare(entry.name) >= 0) throw damaged('names are out of order');
      last = entry.name;
      yield entry;
    }
  }
}
