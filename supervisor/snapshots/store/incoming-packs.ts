import { randomBytes } from 'node:crypto';
import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../../protocol/errors.ts';
import { type Hash, OBJECT_KINDS, parseHash, SNAPSHOT_LIMITS } from '../../../snapshot-format/objects.ts';
import type { PackIndex } from '../../../snapshot-format/pack-index.ts';
import { PACK } from '../../../snapshot-format/pack-layout.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import { hasErrorCode, storageError } from '../../store/storage-error.ts';
import { type CheckedPack, PackChecker } from './check-pack.ts';
import { CheckThread } from './check-thread.ts';
import { MissingObjects, protocolViolation } from './missing-objects.ts';
import type { LineageStore } from './lineage-store.ts';
import { InMemoryPackFile } from './pack-files.ts';
import { kindBit, isKindIn } from './references.ts';

/** Free space that a snapshot leaves on the home's disk. */
export const MIN_FREE_MIB = 64;
const { hashBytes } = SNAPSHOT_LIMITS;
/** Packs of one scan that may be written at once. */
const MAX_OPEN_PACKS = 4;
/**
 * Limits the packs that wait for their check while more arrive, and so the disk space that is wasted if one of them is
 * rejected.
 */
const MAX_PENDING_CHECKS = { packs: 8, bytes: 256 * 2 ** 20 } as const;
/** A smaller pack is checked in this thread: that takes less time than starting another one. */
const IN_PLACE_BYTES = 2 ** 20;
/** Unless it holds more uncompressed bytes than this. */
const IN_PLACE_RAW_BYTES = 16 * 2 ** 20;

interface OpenPack {
  readonly path: string;
  readonly opened: Promise<FileHandle>;
  /** Settles when all received bytes are in the file. */
  written: Promise<void>;
  length: number;
  /** All bytes of a small pack, which is checked while it is written; null for a larger one. */
  inMemory: Buffer[] | null;
}

interface SealedPack {
  readonly path: string;
  readonly bytes: number;
  readonly index: PackIndex;
}

/**
 * The packs that a sidecar sends for one snapshot. The sidecar is not trusted: each sealed pack is checked completely
 * while more arrive, and none is published until all are checked and every object they reference exists. Errors:
 * `invalid_params` and `snapshot_damaged` for what the sidecar sends, `no_space` for a full disk. After an error
 * nothing more is accepted.
 */
export class IncomingPacks {
  readonly #store: LineageStore;
  readonly #maxBytes: () => Promise<number>;
  #available: Promise<number> | null = null;
  /** Prefix of the file names. */
  readonly #filePrefix = randomBytes(8).toString('hex');
  /** Paths of unpublished files. */
  readonly #files = new Set<string>();
  readonly #sealed: SealedPack[] = [];
  readonly #thread: CheckThread;
  readonly #checker = new PackChecker();
  /** Running checks; these promises never reject. */
  readonly #checks = new Set<Promise<void>>();
  /** Bytes of the packs being checked. */
  #checkingBytes = 0;
  #openPacks = new Map<number, OpenPack>();
  #sealedNumbers = new Set<number>();
  #scans = 0;
  readonly #missing = new MissingObjects();
  #bytes = 0;
  #published = 0;
  #queue: Promise<unknown> = Promise.resolve();
  #error: HoldfastError | null = null;

  /**
   * `maxBytes`: the limit for all packs together, computed when the first bytes are announced. `thread`: closed by
   * `close`.
   */
  constructor(store: LineageStore, maxBytes: () => Promise<number>, thread: CheckThread = new CheckThread()) {
    this.#store = store;
    this.#maxBytes = maxBytes;
    this.#thread = thread;
  }

  /** Bytes of the published packs. */
  get publishedBytes(): number {
    return this.#published;
  }

  /** Starts the pack numbering of another scan. Unsealed packs of the previous scan are discarded. */
  beginScan(): Promise<void> {
    return this.#enqueue(async () => {
      await this.#waitForChecks();
      await this.#closeOpenPacks();
      this.#sealedNumbers = new Set();
      this.#scans += 1;
    });
  }

  /** `store/have`: one bit for each hash. */
  have(hashes: Buffer): Promise<Buffer> {
    // Packs will follow. A failure is reported with the first of them.
    this.#availableBytes().catch(() => undefined);
    return this.#enqueue(() => {
      const count = hashes.length / hashBytes;
      if (!Number.isInteger(count)) throw protocolViolation('a truncated list of hashes');
      const bits = Buffer.alloc(Math.ceil(count / 8));
      for (let at = 0; at < count; at += 1) {
        const hash = hashes.subarray(at * hashBytes, (at + 1) * hashBytes);
        if (this.#has(hash)) bits[at >> 3] = (bits[at >> 3] ?? 0) | (1 << (at & 7));
      }
      return Promise.resolve(bits);
    });
  }

  put(pack: number, offset: number, bytes: Buffer): Promise<void> {
    return this.#enqueue(async () => {
      if (this.#sealedNumbers.has(pack)) throw protocolViolation('more bytes of a sealed pack');
      const openPack = this.#openPacks.get(pack) ?? this.#openPack(pack);
      if (offset !== openPack.length) throw protocolViolation('bytes that do not continue the pack');
      if (openPack.length + bytes.length > PACK.maxBytes) throw protocolViolation('a pack that is too long');
      const available = await this.#availableBytes();
      if (this.#bytes + bytes.length > available) {
        throw new HoldfastError('no_space', 'The snapshot could not be stored', {
          why:
            available === 0
              ? `the home's disk has less than the ${MIN_FREE_MIB} MiB free that snapshots leave for other data`
              : `it needs more than the ${Math.floor(available / 2 ** 20)} MiB available; snapshots leave ` +
                `${MIN_FREE_MIB} MiB of the disk free for other data`,
          next: 'free some space (`holdfast gc`, or delete snapshots or sessions you no longer need) and try again',
        });
      }
      this.#bytes += bytes.length;
      openPack.length += bytes.length;
      if (openPack.inMemory !== null && openPack.length < IN_PLACE_BYTES) {
        // The caller reuses its buffer.
        const own = Buffer.from(bytes);
        openPack.inMemory.push(own);
        openPack.written = openPack.written.then(() => writeAll(openPack.opened, own, offset));
        // A failure is reported by the next call, at the latest by the check.
        openPack.written.catch(() => undefined);
        return;
      }
      openPack.inMemory = null;
      await openPack.written;
      openPack.written = writeAll(openPack.opened, bytes, offset);
      await openPack.written;
      if (openPack.length >= IN_PLACE_BYTES) this.#thread.start();
    });
  }

  /**
   * Resolves when the pack is checked and its objects count as present. Meanwhile more packs are accepted, within
   * limits.
   */
  async seal(pack: number, bytes: number, objects: number): Promise<void> {
    await (
      await this.#sealPack(pack, bytes, objects)
    ).done;
  }

  /**
   * As `seal`, but resolves before a small pack is checked. A rejection is then reported by the next call, at the
   * latest by `publish`.
   */
  async sealWithDeferredCheck(pack: number, bytes: number, objects: number): Promise<void> {
    const check = await this.#sealPack(pack, bytes, objects);
    if (bytes >= IN_PLACE_BYTES) await check.done;
  }

  #sealPack(pack: number, bytes: number, objects: number): Promise<{ readonly done: Promise<void> }> {
    return this.#enqueue(async () => {
      const openPack = this.#openPacks.get(pack);
      if (openPack?.length !== bytes)
        throw protocolViolation('a pack whose length differs from the bytes sent');
      this.#openPacks.delete(pack);
      this.#sealedNumbers.add(pack);
      while (
        this.#checks.size >= MAX_PENDING_CHECKS.packs ||
        this.#checkingBytes >= MAX_PENDING_CHECKS.bytes
      ) {
        await Promise.race(this.#checks);
      }
      // Wrapped in an object, because returning the promise itself would await it.
      return { done: this.#startCheck(openPack, objects) };
    });
  }

  /**
   * Moves all received packs into the store. `root` and all objects that it needs must exist.
   */
  publish(root: string): Promise<void> {
    return this.#enqueue(async () => {
      await this.#waitForChecks();
      await this.#forEachMissing(this.#missing, (hash) => {
        throw protocolViolation(`a tree that references a missing object (${hash.toString('hex')})`);
      });
      this.#missing.clear();
      if (!this.#exists(parseHash(root), kindBit(OBJECT_KINDS.root)))
        throw protocolViolation('a root that does not exist');
      await this.#store.publish(this.#sealed);
      for (const { path, bytes } of this.#sealed.splice(0)) {
        this.#files.delete(path);
        this.#published += bytes;
      }
    });
  }

  /** Closes the files and deletes everything unpublished. */
  async close(): Promise<void> {
    await this.#thread.close();
    await this.#queue.catch(() => undefined);
    await Promise.all(this.#checks);
    await this.#closeOpenPacks();
    for (const path of this.#files) await rm(path, { force: true });
  }

  #availableBytes(): Promise<number> {
    return (this.#available ??= this.#maxBytes());
  }

  #openPack(pack: number): OpenPack {
    if (this.#openPacks.size >= MAX_OPEN_PACKS) throw protocolViolation('too many packs at once');
    const path = join(this.#store.incomingDirectory, `${this.#filePrefix}-${this.#scans}-${pack}.pack`);
    this.#files.add(path);
    const opened = this.#createFile(path);
    const written = opened.then(() => undefined);
    written.catch(() => undefined);
    const openPack = { path, opened, written, length: 0, inMemory: [] };
    this.#openPacks.set(pack, openPack);
    return openPack;
  }

  async #createFile(path: string): Promise<FileHandle> {
    try {
      return await open(path, 'wx+', 0o600);
    } catch (error) {
      if (!hasErrorCode(error, 'ENOENT')) throw error;
    }
    await mkdir(this.#store.incomingDirectory, { recursive: true, mode: 0o700 });
    return await open(path, 'wx+', 0o600);
  }

  async #closeOpenPacks(): Promise<void> {
    const left = [...this.#openPacks.values()];
    this.#openPacks = new Map();
    for (const { opened, written } of left) {
      await written.catch(() => undefined);
      const handle = await opened.catch(() => null);
      await handle?.close();
    }
  }

  /** Checks the pack and closes its file. Rejects as `seal` does. */
  #startCheck(openPack: OpenPack, objects: number): Promise<void> {
    const done = this.#check(openPack, objects).catch((error: unknown) => {
      throw this.#fail(error);
    });
    const settled = done.then(
      () => undefined,
      () => undefined,
    );
    const counted = settled.finally(() => {
      this.#checks.delete(counted);
      this.#checkingBytes -= openPack.length;
    });
    this.#checks.add(counted);
    this.#checkingBytes += openPack.length;
    return done;
  }

  async #check(openPack: OpenPack, objects: number): Promise<void> {
    const { path, length, opened } = openPack;
    let checked: CheckedPack;
    try {
      const [first, second] = await Promise.allSettled([this.#checkContent(openPack), syncFile(openPack)]);
      if (first.status === 'rejected') throw first.reason;
      if (second.status === 'rejected') throw second.reason;
      checked = first.value;
    } finally {
      await (await opened.catch(() => null))?.close();
    }
    const { index, missing } = checked;
    if (index.objects !== objects)
      throw protocolViolation('a pack whose number of objects differs from the index');
    await this.#forEachMissing(missing, (hash, kinds) => this.#missing.add(hash, kinds));
    this.#sealed.push({ path, bytes: length, index });
  }

  /** Checks every object of a pack, in this thread if it is small. */
  async #checkContent({ path, length, inMemory, written }: OpenPack): Promise<CheckedPack> {
    if (inMemory !== null && !this.#thread.isStarted) {
      const checked = await this.#checker.checkIfSmall(
        new InMemoryPackFile(Buffer.concat(inMemory)),
        IN_PLACE_RAW_BYTES,
      );
      if (checked !== null) return checked;
    }
    await written;
    return await this.#thread.check(path, length);
  }

  /** Waits for all running checks. Throws if one of them has rejected a pack. */
  async #waitForChecks(): Promise<void> {
    while (this.#checks.size > 0) await Promise.all(this.#checks);
    if (this.#error !== null) throw this.#error;
  }

  /** Calls `act` for each object that does not exist yet. */
  async #forEachMissing(missing: MissingObjects, act: (hash: Hash, kinds: number) => void): Promise<void> {
    const slices = new TimeSlice();
    for (const { hash, kinds } of missing) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      if (!this.#exists(hash, kinds)) act(hash, kinds);
    }
  }

  #has(hash: Hash): boolean {
    return this.#store.hasTrustedCopy(hash) || this.#sealed.some(({ index }) => index.find(hash) !== null);
  }

  #exists(hash: Hash, kinds: number): boolean {
    const kind = this.#store.kindOf(hash);
    if (kind !== null) return isKindIn(kind, kinds);
    for (const { index } of this.#sealed) {
      const object = index.find(hash);
      if (object !== null) return isKindIn(object.kind, kinds);
    }
    return false;
  }

  /** Runs calls one after another in order of arrival, because the sidecar pipelines them. */
  #enqueue<T>(act: () => Promise<T>): Promise<T> {
    const mine = this.#queue.then(async () => {
      if (this.#error !== null) throw this.#error;
      try {
        return await act();
      } catch (error) {
        throw this.#fail(error);
      }
    });
    this.#queue = mine.catch(() => undefined);
    return mine;
  }

  /** Records the first error, after which nothing more is accepted, and returns it. */
  #fail(error: unknown): HoldfastError {
    this.#error ??= storageError(error, 'The snapshot could not be stored');
    return this.#error;
  }
}

async function writeAll(opened: Promise<FileHandle>, bytes: Buffer, offset: number): Promise<void> {
  const handle = await opened;
  let written = 0;
  while (written < bytes.length) {
    const { bytesWritten } = await handle.write(bytes, written, bytes.length - written, offset + written);
    written += bytesWritten;
  }
}

/** Makes all bytes of the file durable. */
async function syncFile({ opened, written }: OpenPack): Promise<void> {
  await written;
  await (await opened).datasync();
}
