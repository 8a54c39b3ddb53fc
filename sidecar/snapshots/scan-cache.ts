import { createHash } from 'node:crypto';
import { ByteReader, ByteWriter } from '../../snapshot-format/bytes.ts';
import { encodeRoot, parseRoot, parseTree, writeEntry } from '../../snapshot-format/entries.ts';
import { compressFrame, decompressFrame } from '../../snapshot-format/frames.ts';
import { snapshotDamaged, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import { FINGERPRINT_WORDS } from './fingerprint.ts';
import { CachedDirectory, detachedCopy } from './cached-directory.ts';
import { isDotEntry, DIRENT_NAME_OFFSET, direntLength, direntType, TYPE_DIRECTORY } from './dirents.ts';
import { STAT, type SystemCalls } from './system-calls.ts';

/** Must change with the format below, and with the meaning of fingerprints and entries. */
const MAGIC = Buffer.from('HFSCAN2\n');
/** Uncompressed bytes of a piece. */
const PIECE_BYTES = 2 ** 20;
/** Header of a piece: stored and raw length, encoding, and a hash chain over everything so far. */
const HEAD_BYTES = 12 + SNAPSHOT_LIMITS.hashBytes;
/** Limit of the uncompressed cache, enough for about three million names. */
export const MAX_CACHE_BYTES = 512 * 2 ** 20;
const NAMES = 0xff_ffff;
const WORD = 4;
const IS_TYPED = 1;
const IS_DIRTY = 2;
const IS_ENTRY_NEW = 4;

/** The state of a scan that the next one can start from. */
export interface CachedScan {
  readonly top: CachedDirectory;
  /** Hash of the tree (hexadecimal) that the clean directories belong to. */
  readonly root: string;
  /** Number of names of files with several hard links. */
  readonly linked: number | null;
  readonly files: number;
}

/** Where the fingerprints are valid. A cache of another machine or of an earlier boot is ignored. */
export interface CacheOrigin {
  /** Boot id: after a power failure the last writes before it may appear under an earlier ctime. */
  readonly boot: string;
  /** Device and inode of the workspace's top directory. */
  readonly top: readonly [major: number, minor: number, inode: bigint];
  /** The file clock, ns. After a clock was set back, the same ctime could occur twice. */
  readonly clock: bigint;
}

/** Null if the system has no boot id. Then no cache can be stored. */
export function cacheOriginOf(system: SystemCalls, root: number): CacheOrigin | null {
  const boot = system.bootId();
  if (boot === null) return null;
  system.statFd(root);
  const { stat } = system;
  const word = (at: number): number => stat[at] ?? 0;
  const inode = BigInt(word(STAT.inode)) + (BigInt(word(STAT.inode + 1)) << 32n);
  return { boot, top: [word(STAT.device), word(STAT.device + 1), inode], clock: system.fileClock() };
}

/**
 * Encodes a cache as pieces. Throws RangeError if it is too large, or if an entry belongs to no tree yet. The
 * directories must not change meanwhile.
 */
export function* writeCache({ top, root, linked, files }: CachedScan, place: CacheOrigin): Generator<Buffer> {
  const pieces = new PieceWriter();
  yield MAGIC;
  const begin = new ByteWriter(256);
  begin.varint(place.boot.length);
  begin.bytes(Buffer.from(place.boot, 'latin1'));
  begin.u32(place.top[0]);
  begin.u32(place.top[1]);
  begin.i64(BigInt.asIntN(64, place.top[2]));
  begin.i64(place.clock);
  begin.bytes(Buffer.from(root, 'hex'));
  begin.varint(linked === null ? 0 : linked + 1);
  begin.varint(files);
  yield* pieces.add(withLength(begin));
  for (const directory of inOrder(top)) {
    if (directory.changedEntries.size > 0 || directory.encodedChanges.length > 0)
      throw new RangeError('an entry belongs to no tree yet');
    yield* pieces.add(withLength(headOf(directory)));
    yield* pieces.add(directory.dirents);
    yield* pieces.add(
      Buffer.from(
        directory.fingerprints.buffer,
        directory.fingerprints.byteOffset,
        directory.fingerprints.byteLength,
      ),
    );
    yield* pieces.add(directory.encodedEntries);
  }
  yield* pieces.end();
}

/**
 * Decodes what `writeCache` wrote. `read` returns the next bytes from an offset, and none at the end. Null if there is
 * no cache or it is from elsewhere. Throws if it is damaged or truncated; nothing is used before it is verified.
 */
export async function readCache(
  read: (offset: number) => Promise<Buffer>,
  place: CacheOrigin,
): Promise<CachedScan | null> {
  const pieces = new PieceReader(read);
  if (!(await pieces.begin())) return null;
  const begin = new ByteReader(await pieces.take(await lengthOf(pieces)));
  const boot = begin.bytes(begin.varint(100)).toString('latin1');
  const found = [begin.u32(), begin.u32(), BigInt.asUintN(64, begin.i64())] as const;
  const clock = begin.i64();
  if (boot !== place.boot || clock > place.clock || found.some((part, at) => part !== place.top[at]))
    return null;
  const root = begin.bytes(SNAPSHOT_LIMITS.hashBytes).toString('hex');
  const linked = begin.varint(Number.MAX_SAFE_INTEGER);
  const files = begin.varint(Number.MAX_SAFE_INTEGER);
  /** Directories whose children are still to come, the innermost last. */
  const open: { readonly directory: CachedDirectory; missing: number }[] = [];
  let top: CachedDirectory | null = null;
  do {
    const above = open.at(-1);
    const { directory, childCount } = await readDirectory(pieces, above?.directory ?? null);
    top ??= directory;
    if (above !== undefined) {
      above.directory.children.push(directory);
      above.missing -= 1;
    }
    open.push({ directory, missing: childCount });
    while (open.at(-1)?.missing === 0) open.pop();
  } while (open.length > 0);
  await pieces.end();
  return { top, root, linked: linked === 0 ? null : linked - 1, files };
}

/** Each directory before its children, and children in their order. */
function* inOrder(top: CachedDirectory): Generator<CachedDirectory> {
  const waiting = [top];
  for (let directory = waiting.pop(); directory !== undefined; directory = waiting.pop()) {
    yield directory;
    for (let at = directory.children.length - 1; at >= 0; at -= 1) {
      const below = directory.children[at];
      if (below !== undefined) waiting.push(below);
    }
  }
}

function headOf(directory: CachedDirectory): ByteWriter {
  const head = new ByteWriter(512);
  head.byte(
    (directory.hasKnownTypes ? IS_TYPED : 0) |
      (directory.isDirty ? IS_DIRTY : 0) |
      (directory.hasEntryChanged ? IS_ENTRY_NEW : 0),
  );
  for (const word of directory.fingerprint) head.u32(word);
  head.varint(directory.children.length);
  head.varint(directory.dirents.length);
  head.varint(directory.fingerprints.length);
  head.varint(directory.encodedEntries.length);
  if (directory.parent === null) head.bytes(encodeRoot(directory.entry));
  else writeEntry(head, directory.entry);
  return head;
}

async function readDirectory(
  pieces: PieceReader,
  parent: CachedDirectory | null,
): Promise<{ readonly directory: CachedDirectory; readonly childCount: number }> {
  const head = new ByteReader(await pieces.take(await lengthOf(pieces)));
  const flags = head.byte();
  const fingerprint = Array.from({ length: FINGERPRINT_WORDS }, () => head.u32());
  const childCount = head.varint(NAMES);
  const lengths = [head.varint(MAX_CACHE_BYTES), head.varint(MAX_CACHE_BYTES), head.varint(MAX_CACHE_BYTES)];
  const encoded = head.rest();
  const entry = parent === null ? parseRoot(encoded) : parseTree(encoded)[0];
  if (entry?.type !== 'directory') throw snapshotDamaged('a directory has another type');
  const directory = new CachedDirectory(parent, detachedCopy(entry.name));
  directory.entry = { ...entry, name: directory.name };
  directory.fingerprint.set(fingerprint);
  directory.hasKnownTypes = (flags & IS_TYPED) !== 0;
  directory.isDirty = (flags & IS_DIRTY) !== 0;
  directory.hasEntryChanged = (flags & IS_ENTRY_NEW) !== 0;
  const [dirents = 0, words = 0, body = 0] = lengths;
  directory.dirents = await pieces.take(dirents);
  const stats = await pieces.take(words * WORD);
  directory.fingerprints = new Uint32Array(words);
  Buffer.from(directory.fingerprints.buffer).set(stats);
  directory.encodedEntries = await pieces.take(body);
  checkNames(directory, childCount);
  return { directory, childCount };
}

/** A walk reads names and fingerprints side by side, so their numbers must match. */
function checkNames({ dirents, fingerprints, hasKnownTypes }: CachedDirectory, childCount: number): void {
  let names = 0;
  let directories = 0;
  for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
    const end = at + direntLength(dirents, at);
    const nul = dirents.indexOf(0, at + DIRENT_NAME_OFFSET);
    if (nul <= at + DIRENT_NAME_OFFSET || nul >= end || end > dirents.length) {
      throw snapshotDamaged('it has names that no system lists');
    }
    if (isDotEntry(dirents, at)) continue;
    names += 1;
    if (direntType(dirents, at) === TYPE_DIRECTORY) directories += 1;
  }
  if (fingerprints.length !== names * FINGERPRINT_WORDS || (hasKnownTypes && directories !== childCount)) {
    throw snapshotDamaged('the numbers of names and fingerprints differ');
  }
}

function withLength(writer: ByteWriter): Buffer {
  const bytes = Buffer.allocUnsafe(WORD + writer.length);
  bytes.writeUInt32LE(writer.length, 0);
  bytes.set(writer.view(), WORD);
  return bytes;
}

async function lengthOf(pieces: PieceReader): Promise<number> {
  return (await pieces.take(WORD)).readUInt32LE(0);
}

/** Writes a byte stream as compressed pieces, each with a hash of everything up to its end. The last piece is empty. */
class PieceWriter {
  #parts: Buffer[] = [];
  #length = 0;
  #total = 0;
  #chain: Buffer = MAGIC;

  *add(bytes: Buffer): Generator<Buffer> {
    for (let at = 0; at < bytes.length;) {
      const part = bytes.subarray(at, at + PIECE_BYTES - this.#length);
      this.#parts.push(part);
      this.#length += part.length;
      at += part.length;
      if (this.#length === PIECE_BYTES) yield* this.#piece();
    }
  }

  *end(): Generator<Buffer> {
    if (this.#length > 0) yield* this.#piece();
    yield* this.#piece();
  }

  *#piece(): Generator<Buffer> {
    this.#total += this.#length;
    if (this.#total > MAX_CACHE_BYTES) throw new RangeError('the scan cache would be too large');
    const raw = Buffer.concat(this.#parts);
    const { encoding, stored } = compressFrame(raw);
    const head = Buffer.allocUnsafe(HEAD_BYTES);
    head.writeUInt32LE(stored.length, 0);
    head.writeUInt32LE(raw.length, 4);
    head.writeUInt32LE(encoding, 8);
    this.#chain = chained(this.#chain, head, stored);
    head.set(this.#chain, 12);
    this.#parts = [];
    this.#length = 0;
    yield head;
    yield stored;
  }
}

class PieceReader {
  readonly #read: (offset: number) => Promise<Buffer>;
  /** Stored bytes that were read but not used, and the offset of the next. */
  #stored: Buffer = NOTHING;
  #offset = 0;
  #raw: Buffer = NOTHING;
  #total = 0;
  #chain: Buffer = MAGIC;

  constructor(read: (offset: number) => Promise<Buffer>) {
    this.#read = read;
  }

  /** False if there is no cache, or one of another version. */
  async begin(): Promise<boolean> {
    await this.#more(MAGIC.length);
    if (!this.#stored.subarray(0, MAGIC.length).equals(MAGIC)) return false;
    this.#stored = this.#stored.subarray(MAGIC.length);
    return true;
  }

  /** A copy with its own memory. */
  async take(count: number): Promise<Buffer> {
    if (this.#total - this.#raw.length + count > MAX_CACHE_BYTES)
      throw snapshotDamaged('the cache is larger than its limit');
    // Allocates memory only for bytes that have arrived.
    if (count > this.#raw.length + PIECE_BYTES) {
      const parts: Buffer[] = [];
      for (let missing = count; missing > 0; missing -= parts.at(-1)?.length ?? 0) {
        parts.push(await this.take(Math.min(missing, PIECE_BYTES)));
      }
      const whole = Buffer.allocUnsafeSlow(count);
      let at = 0;
      for (const part of parts) {
        whole.set(part, at);
        at += part.length;
      }
      return whole;
    }
    const taken = Buffer.allocUnsafeSlow(count);
    for (let at = 0; at < count;) {
      if (this.#raw.length === 0 && !(await this.#next())) throw snapshotDamaged('the cache ends too early');
      const part = this.#raw.subarray(0, count - at);
      taken.set(part, at);
      at += part.length;
      this.#raw = this.#raw.subarray(part.length);
    }
    return taken;
  }

  async end(): Promise<void> {
    if (this.#raw.length > 0 || (await this.#next())) throw snapshotDamaged('the cache has trailing bytes');
    await this.#more(1);
    if (this.#stored.length > 0) throw snapshotDamaged('the cache has trailing bytes');
  }

  /** False for the empty piece at the end. */
  async #next(): Promise<boolean> {
    await this.#more(HEAD_BYTES);
    const head = this.#stored.subarray(0, HEAD_BYTES);
    if (head.length < HEAD_BYTES) throw snapshotDamaged('the cache is truncated');
    const [length, raw, encoding] = [head.readUInt32LE(0), head.readUInt32LE(4), head.readUInt32LE(8)];
    if (length > PIECE_BYTES || raw > PIECE_BYTES) throw snapshotDamaged('a piece of the cache is too large');
    await this.#more(HEAD_BYTES + length);
    const stored = this.#stored.subarray(HEAD_BYTES, HEAD_BYTES + length);
    this.#chain = chained(this.#chain, head, stored);
    if (stored.length < length || !this.#chain.equals(head.subarray(12)))
      throw snapshotDamaged('the hash of a piece does not match');
    this.#raw = decompressFrame(encoding, raw, stored);
    this.#total += raw;
    this.#stored = this.#stored.subarray(HEAD_BYTES + length);
    return raw > 0;
  }

  /** Reads until this number of bytes is there, or the end is reached. */
  async #more(count: number): Promise<void> {
    const parts = [this.#stored];
    let there = this.#stored.length;
    while (there < count) {
      const bytes = await this.#read(this.#offset);
      if (bytes.length === 0) break;
      this.#offset += bytes.length;
      there += bytes.length;
      parts.push(bytes);
    }
    if (parts.length > 1) this.#stored = Buffer.concat(parts);
  }
}

const NOTHING: Buffer = Buffer.alloc(0);

function chained(before: Buffer, head: Buffer, stored: Buffer): Buffer {
  return createHash('sha256').update(before).update(head.subarray(0, 12)).update(stored).digest();
}
