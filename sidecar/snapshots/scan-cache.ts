import { createHash } from 'node:crypto';
import { ByteReader, ByteWriter } from '../../snapshot-format/bytes.ts';
import { encodeRoot, parseRoot, parseTree, writeEntry } from '../../snapshot-format/entries.ts';
import { compressFrame, decompressFrame } from '../../snapshot-format/frames.ts';
import { snapshotDamaged, SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import { FINGERPRINT_WORDS } from './fingerprint.ts';
import { CachedDirectory, detachedCopy } from './cached-directory.ts';
import { isDotEntry, DIRENT_NAME_OFFSET, direntLength, direntType, TYPE_DIRECTORY } from './dirents.ts';
import { STAT, type SystemCalls } from './system-calls.ts';

/** Changes with whatever is written here, and with what the facts and entries of a folder mean. */
const MAGIC = Buffer.from('HFSCAN2\n');
/** Unpacked bytes of a piece. */
const PIECE_BYTES = 2 ** 20;
/** Of a piece: stored and unpacked length, encoding, and a hash over all that came before and this. */
const HEAD_BYTES = 12 + SNAPSHOT_LIMITS.hashBytes;
/** Unpacked; what is known of some three million names. */
export const MAX_CACHE_BYTES = 512 * 2 ** 20;
const NAMES = 0xff_ffff;
const WORD = 4;
const IS_TYPED = 1;
const IS_DIRTY = 2;
const IS_ENTRY_NEW = 4;

/** What a scan knows when it begins, and has found when it has ended. */
export interface CachedScan {
  readonly top: CachedDirectory;
  /** The tree that this is (hexadecimal), with all that is not dirty in it. */
  readonly root: string;
  /** Names of files with several. */
  readonly linked: number | null;
  readonly files: number;
}

/** Whose facts they are. What is known elsewhere, or was on a machine that has been off meanwhile, is not believed. */
export interface CacheOrigin {
  /** Of the machine that runs: what it wrote last before it lost its power may be there under an earlier change time. */
  readonly boot: string;
  /** Device and inode of the workspace's top folder. */
  readonly top: readonly [major: number, minor: number, inode: bigint];
  /** The clock that change times are taken from, ns. One that was set back could give the same time twice. */
  readonly clock: bigint;
}

/** Null on a system that does not tell when it was started: nothing can be kept there. */
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
 * The pieces of a cache, in their order. Throws RangeError where there is more than a cache may have, and where something is
 * known that is in no tree yet. The folders must not change meanwhile.
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
  for (const folder of inOrder(top)) {
    if (folder.changedEntries.size > 0 || folder.encodedChanges.length > 0)
      throw new RangeError('it is in no tree yet');
    yield* pieces.add(withLength(headOf(folder)));
    yield* pieces.add(folder.dirents);
    yield* pieces.add(
      Buffer.from(folder.fingerprints.buffer, folder.fingerprints.byteOffset, folder.fingerprints.byteLength),
    );
    yield* pieces.add(folder.encodedEntries);
  }
  yield* pieces.end();
}

/**
 * What `writeCache` wrote, `read` from an offset on: the next bytes, none at the end. Null for one that was written elsewhere, or
 * where there is none. Throws for one that is damaged or was cut off; nothing in it is believed before it was checked.
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
  /** Folders whose folders are still to come, the innermost last. */
  const open: { readonly folder: CachedDirectory; missing: number }[] = [];
  let top: CachedDirectory | null = null;
  do {
    const above = open.at(-1);
    const { folder, folders } = await readFolder(pieces, above?.folder ?? null);
    top ??= folder;
    if (above !== undefined) {
      above.folder.children.push(folder);
      above.missing -= 1;
    }
    open.push({ folder, missing: folders });
    while (open.at(-1)?.missing === 0) open.pop();
  } while (open.length > 0);
  await pieces.end();
  return { top, root, linked: linked === 0 ? null : linked - 1, files };
}

/** Each before those in it, those of one folder in their order. */
function* inOrder(top: CachedDirectory): Generator<CachedDirectory> {
  const waiting = [top];
  for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
    yield folder;
    for (let at = folder.children.length - 1; at >= 0; at -= 1) {
      const below = folder.children[at];
      if (below !== undefined) waiting.push(below);
    }
  }
}

function headOf(folder: CachedDirectory): ByteWriter {
  const head = new ByteWriter(512);
  head.byte(
    (folder.hasKnownTypes ? IS_TYPED : 0) |
      (folder.isDirty ? IS_DIRTY : 0) |
      (folder.hasEntryChanged ? IS_ENTRY_NEW : 0),
  );
  for (const word of folder.fingerprint) head.u32(word);
  head.varint(folder.children.length);
  head.varint(folder.dirents.length);
  head.varint(folder.fingerprints.length);
  head.varint(folder.encodedEntries.length);
  if (folder.parent === null) head.bytes(encodeRoot(folder.entry));
  else writeEntry(head, folder.entry);
  return head;
}

async function readFolder(
  pieces: PieceReader,
  parent: CachedDirectory | null,
): Promise<{ readonly folder: CachedDirectory; readonly folders: number }> {
  const head = new ByteReader(await pieces.take(await lengthOf(pieces)));
  const flags = head.byte();
  const facts = Array.from({ length: FINGERPRINT_WORDS }, () => head.u32());
  const folders = head.varint(NAMES);
  const lengths = [head.varint(MAX_CACHE_BYTES), head.varint(MAX_CACHE_BYTES), head.varint(MAX_CACHE_BYTES)];
  const encoded = head.rest();
  const entry = parent === null ? parseRoot(encoded) : parseTree(encoded)[0];
  if (entry?.type !== 'directory') throw snapshotDamaged('a folder is none');
  const folder = new CachedDirectory(parent, detachedCopy(entry.name));
  folder.entry = { ...entry, name: folder.name };
  folder.fingerprint.set(facts);
  folder.hasKnownTypes = (flags & IS_TYPED) !== 0;
  folder.isDirty = (flags & IS_DIRTY) !== 0;
  folder.hasEntryChanged = (flags & IS_ENTRY_NEW) !== 0;
  const [records = 0, words = 0, body = 0] = lengths;
  folder.dirents = await pieces.take(records);
  const stats = await pieces.take(words * WORD);
  folder.fingerprints = new Uint32Array(words);
  Buffer.from(folder.fingerprints.buffer).set(stats);
  folder.encodedEntries = await pieces.take(body);
  checkNames(folder, folders);
  return { folder, folders };
}

/** A walk goes through names and facts side by side. */
function checkNames({ dirents, fingerprints, hasKnownTypes }: CachedDirectory, folders: number): void {
  let names = 0;
  let directories = 0;
  for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
    const end = at + direntLength(dirents, at);
    const nul = dirents.indexOf(0, at + DIRENT_NAME_OFFSET);
    if (nul <= at + DIRENT_NAME_OFFSET || nul >= end || end > dirents.length) {
      throw snapshotDamaged('names that no system lists');
    }
    if (isDotEntry(dirents, at)) continue;
    names += 1;
    if (direntType(dirents, at) === TYPE_DIRECTORY) directories += 1;
  }
  if (fingerprints.length !== names * FINGERPRINT_WORDS || (hasKnownTypes && directories !== folders)) {
    throw snapshotDamaged('not as many facts as names');
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

/** One stream of bytes as compressed pieces, each with a hash of all up to its end. The last one is empty. */
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
    if (this.#total > MAX_CACHE_BYTES) throw new RangeError('too much is known to be kept');
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
  /** As it is stored: what was read and not used yet, and where the next lies. */
  #stored: Buffer = NOTHING;
  #offset = 0;
  #raw: Buffer = NOTHING;
  #total = 0;
  #chain: Buffer = MAGIC;

  constructor(read: (offset: number) => Promise<Buffer>) {
    this.#read = read;
  }

  /** False where there is nothing, or something of another version. */
  async begin(): Promise<boolean> {
    await this.#more(MAGIC.length);
    if (!this.#stored.subarray(0, MAGIC.length).equals(MAGIC)) return false;
    this.#stored = this.#stored.subarray(MAGIC.length);
    return true;
  }

  /** A copy in memory of its own. */
  async take(count: number): Promise<Buffer> {
    if (this.#total - this.#raw.length + count > MAX_CACHE_BYTES)
      throw snapshotDamaged('more than a cache may have');
    // Memory only for what has come.
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
      if (this.#raw.length === 0 && !(await this.#next())) throw snapshotDamaged('a cache ends too early');
      const part = this.#raw.subarray(0, count - at);
      taken.set(part, at);
      at += part.length;
      this.#raw = this.#raw.subarray(part.length);
    }
    return taken;
  }

  async end(): Promise<void> {
    if (this.#raw.length > 0 || (await this.#next())) throw snapshotDamaged('a cache does not end');
    await this.#more(1);
    if (this.#stored.length > 0) throw snapshotDamaged('a cache does not end');
  }

  /** False for the empty piece at the end. */
  async #next(): Promise<boolean> {
    await this.#more(HEAD_BYTES);
    const head = this.#stored.subarray(0, HEAD_BYTES);
    if (head.length < HEAD_BYTES) throw snapshotDamaged('a cache was cut off');
    const [length, raw, encoding] = [head.readUInt32LE(0), head.readUInt32LE(4), head.readUInt32LE(8)];
    if (length > PIECE_BYTES || raw > PIECE_BYTES) throw snapshotDamaged('a piece of a cache is too large');
    await this.#more(HEAD_BYTES + length);
    const stored = this.#stored.subarray(HEAD_BYTES, HEAD_BYTES + length);
    this.#chain = chained(this.#chain, head, stored);
    if (stored.length < length || !this.#chain.equals(head.subarray(12)))
      throw snapshotDamaged('a cache was changed');
    this.#raw = decompressFrame(encoding, raw, stored);
    this.#total += raw;
    this.#stored = this.#stored.subarray(HEAD_BYTES + length);
    return raw > 0;
  }

  /** Reads until there are as many, or no more. */
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
