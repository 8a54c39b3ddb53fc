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

/** What a snapshot leaves free on the disk of the home. */
export const MIN_FREE_MIB = 64;
const { hashBytes } = SNAPSHOT_LIMITS;
/** Packs of one scan that may be written at once. */
const MOST_OPEN = 4;
/**
 * Packs that are checked while more comes, as many and as long together: bounds what lies on the disk for nothing where one of them
 * is refused.
 */
const MOST_CHECKED = { packs: 8, bytes: 256 * 2 ** 20 } as const;
/** A smaller pack is checked before a thread for it has started. */
const IN_PLACE_BYTES = 2 ** 20;
/** Unless it becomes longer than this. */
const IN_PLACE_RAW_BYTES = 16 * 2 ** 20;

interface Writing {
  readonly path: string;
  readonly opened: Promise<FileHandle>;
  /** Settles when all that has come is in the file. */
  written: Promise<void>;
  length: number;
  /** All of it, where it is short: it is checked while it is written. */
  held: Buffer[] | null;
}

interface Sealed {
  readonly path: string;
  readonly bytes: number;
  readonly index: PackIndex;
}

/**
 * What a sidecar sends for one snapshot. Nothing of it is believed: each pack is checked whole once it is sealed, while more of them
 * come, and none is published before all are checked and unless all that their trees name is there too. Errors that a sidecar causes are `invalid_params` or `snapshot_damaged`,
 * a full disk is `no_space`; after one of them nothing more is taken.
 */
export class IncomingPacks {
  readonly #store: LineageStore;
  readonly #mostBytes: () => Promise<number>;
  #room: Promise<number> | null = null;
  /** What the names of its files begin with. */
  readonly #name = randomBytes(8).toString('hex');
  /** Paths of files that are not published. */
  readonly #files = new Set<string>();
  readonly #sealed: Sealed[] = [];
  readonly #thread: CheckThread;
  readonly #checker = new PackChecker();
  /** Packs that are being checked; these never reject. */
  readonly #checks = new Set<Promise<void>>();
  /** Bytes of these. */
  #checking = 0;
  #writing = new Map<number, Writing>();
  #ended = new Set<number>();
  #scans = 0;
  readonly #lacking = new MissingObjects();
  #bytes = 0;
  #published = 0;
  #turn: Promise<unknown> = Promise.resolve();
  #broken: HoldfastError | null = null;

  /** `mostBytes`: what all packs together may have, asked for when something is to come. `thread`: closed with this. */
  constructor(
    store: LineageStore,
    mostBytes: () => Promise<number>,
    thread: CheckThread = new CheckThread(),
  ) {
    this.#store = store;
    this.#mostBytes = mostBytes;
    this.#thread = thread;
  }

  /** Bytes of the packs that were published. */
  get publishedBytes(): number {
    return this.#published;
  }

  /** Another scan begins to number its packs. What an earlier one has not sealed is forgotten. */
  beginScan(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#checked();
      await this.#closeWriting();
      this.#ended = new Set();
      this.#scans += 1;
    });
  }

  /** `store/have`: one bit for each hash. */
  have(hashes: Buffer): Promise<Buffer> {
    // Who asks has something to send: its failure is met when that comes.
    this.#askRoom().catch(() => undefined);
    return this.#inTurn(() => {
      const count = hashes.length / hashBytes;
      if (!Number.isInteger(count)) throw protocolViolation('hashes that are cut off');
      const bits = Buffer.alloc(Math.ceil(count / 8));
      for (let at = 0; at < count; at += 1) {
        const hash = hashes.subarray(at * hashBytes, (at + 1) * hashBytes);
        if (this.#has(hash)) bits[at >> 3] = (bits[at >> 3] ?? 0) | (1 << (at & 7));
      }
      return Promise.resolve(bits);
    });
  }

  put(pack: number, offset: number, bytes: Buffer): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#ended.has(pack)) throw protocolViolation('a pack that has ended');
      const writing = this.#writing.get(pack) ?? this.#begin(pack);
      if (offset !== writing.length) throw protocolViolation('bytes that do not follow those before');
      if (writing.length + bytes.length > PACK.maxBytes) throw protocolViolation('a pack that is too long');
      const room = await this.#askRoom();
      if (this.#bytes + bytes.length > room) {
        throw new HoldfastError('no_space', 'The snapshot could not be stored', {
          why:
            room === 0
              ? `the disk of the home has less than the ${MIN_FREE_MIB} MiB that snapshots leave free for everything else`
              : `it needs more than the ${Math.floor(room / 2 ** 20)} MiB that it may take; ${MIN_FREE_MIB} MiB of the disk stay free for everything else`,
          next: 'free some space (`holdfast gc`, or delete snapshots or sessions you no longer need) and try again',
        });
      }
      this.#bytes += bytes.length;
      writing.length += bytes.length;
      if (writing.held !== null && writing.length < IN_PLACE_BYTES) {
        // The caller uses its memory again.
        const own = Buffer.from(bytes);
        writing.held.push(own);
        writing.written = writing.written.then(() => writeAll(writing.opened, own, offset));
        // Its failure is met with what comes next, at the latest by the check.
        writing.written.catch(() => undefined);
        return;
      }
      writing.held = null;
      await writing.written;
      writing.written = writeAll(writing.opened, bytes, offset);
      await writing.written;
      if (writing.length >= IN_PLACE_BYTES) this.#thread.start();
    });
  }

  /** Its objects are had when it resolves. What follows is taken before that, within bounds. */
  async seal(pack: number, bytes: number, objects: number): Promise<void> {
    await (
      await this.#end(pack, bytes, objects)
    ).done;
  }

  /**
   * The same for who may be told of a refusal with what comes next, at the latest with `publish`: a short pack is checked while the
   * answer is on its way.
   */
  async sealWithDeferredCheck(pack: number, bytes: number, objects: number): Promise<void> {
    const check = await this.#end(pack, bytes, objects);
    if (bytes >= IN_PLACE_BYTES) await check.done;
  }

  #end(pack: number, bytes: number, objects: number): Promise<{ readonly done: Promise<void> }> {
    return this.#inTurn(async () => {
      const writing = this.#writing.get(pack);
      if (writing?.length !== bytes) throw protocolViolation('a pack of another length than it was');
      this.#writing.delete(pack);
      this.#ended.add(pack);
      while (this.#checks.size >= MOST_CHECKED.packs || this.#checking >= MOST_CHECKED.bytes) {
        await Promise.race(this.#checks);
      }
      // In an object, because a promise in its place would be waited for.
      return { done: this.#beginCheck(writing, objects) };
    });
  }

  /**
   * Moves what has come so far into the store. `root` must be there, with all that it needs.
   */
  publish(root: string): Promise<void> {
    return this.#inTurn(async () => {
      await this.#checked();
      await this.#eachLacking(this.#lacking, (hash) => {
        throw protocolViolation(`a tree that names an object which is not there (${hash.toString('hex')})`);
      });
      this.#lacking.clear();
      if (!this.#isThere(parseHash(root), kindBit(OBJECT_KINDS.root)))
        throw protocolViolation('a root that is not there');
      await this.#store.publish(this.#sealed);
      for (const { path, bytes } of this.#sealed.splice(0)) {
        this.#files.delete(path);
        this.#published += bytes;
      }
    });
  }

  /** Ends it. What was not published goes. */
  async close(): Promise<void> {
    await this.#thread.close();
    await this.#turn.catch(() => undefined);
    await Promise.all(this.#checks);
    await this.#closeWriting();
    for (const path of this.#files) await rm(path, { force: true });
  }

  #askRoom(): Promise<number> {
    return (this.#room ??= this.#mostBytes());
  }

  #begin(pack: number): Writing {
    if (this.#writing.size >= MOST_OPEN) throw protocolViolation('more packs at once than it may');
    const path = join(this.#store.incomingDirectory, `${this.#name}-${this.#scans}-${pack}.pack`);
    this.#files.add(path);
    const opened = this.#create(path);
    const written = opened.then(() => undefined);
    written.catch(() => undefined);
    const writing = { path, opened, written, length: 0, held: [] };
    this.#writing.set(pack, writing);
    return writing;
  }

  async #create(path: string): Promise<FileHandle> {
    try {
      return await open(path, 'wx+', 0o600);
    } catch (error) {
      if (!hasErrorCode(error, 'ENOENT')) throw error;
    }
    await mkdir(this.#store.incomingDirectory, { recursive: true, mode: 0o700 });
    return await open(path, 'wx+', 0o600);
  }

  async #closeWriting(): Promise<void> {
    const left = [...this.#writing.values()];
    this.#writing = new Map();
    for (const { opened, written } of left) {
      await written.catch(() => undefined);
      const handle = await opened.catch(() => null);
      await handle?.close();
    }
  }

  /** Takes the file over. Rejects as `seal` does. */
  #beginCheck(writing: Writing, objects: number): Promise<void> {
    const done = this.#check(writing, objects).catch((error: unknown) => {
      throw this.#break(error);
    });
    const settled = done.then(
      () => undefined,
      () => undefined,
    );
    const counted = settled.finally(() => {
      this.#checks.delete(counted);
      this.#checking -= writing.length;
    });
    this.#checks.add(counted);
    this.#checking += writing.length;
    return done;
  }

  async #check(writing: Writing, objects: number): Promise<void> {
    const { path, length, opened } = writing;
    let checked: CheckedPack;
    try {
      const [first, second] = await Promise.allSettled([this.#contentOf(writing), synced(writing)]);
      if (first.status === 'rejected') throw first.reason;
      if (second.status === 'rejected') throw second.reason;
      checked = first.value;
    } finally {
      await (await opened.catch(() => null))?.close();
    }
    const { index, missing } = checked;
    if (index.objects !== objects) throw protocolViolation('a pack with another number of objects');
    await this.#eachLacking(missing, (hash, kinds) => this.#lacking.add(hash, kinds));
    this.#sealed.push({ path, bytes: length, index });
  }

  /** Every object of a pack is looked at. */
  async #contentOf({ path, length, held, written }: Writing): Promise<CheckedPack> {
    if (held !== null && !this.#thread.isStarted) {
      const checked = await this.#checker.checkIfSmall(
        new InMemoryPackFile(Buffer.concat(held)),
        IN_PLACE_RAW_BYTES,
      );
      if (checked !== null) return checked;
    }
    await written;
    return await this.#thread.check(path, length);
  }

  /** All that has come is checked. Throws where something of it is refused. */
  async #checked(): Promise<void> {
    while (this.#checks.size > 0) await Promise.all(this.#checks);
    if (this.#broken !== null) throw this.#broken;
  }

  /** Those that are not there now. */
  async #eachLacking(lacking: MissingObjects, act: (hash: Hash, kinds: number) => void): Promise<void> {
    const slices = new TimeSlice();
    for (const { hash, kinds } of lacking) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      if (!this.#isThere(hash, kinds)) act(hash, kinds);
    }
  }

  #has(hash: Hash): boolean {
    return this.#store.hasTrustedCopy(hash) || this.#sealed.some(({ index }) => index.find(hash) !== null);
  }

  #isThere(hash: Hash, kinds: number): boolean {
    const kind = this.#store.kindOf(hash);
    if (kind !== null) return isKindIn(kind, kinds);
    for (const { index } of this.#sealed) {
      const object = index.find(hash);
      if (object !== null) return isKindIn(object.kind, kinds);
    }
    return false;
  }

  /** One call after the other, in the order in which they came: several may wait for their answers. */
  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(async () => {
      if (this.#broken !== null) throw this.#broken;
      try {
        return await act();
      } catch (error) {
        throw this.#break(error);
      }
    });
    this.#turn = mine.catch(() => undefined);
    return mine;
  }

  /** Nothing more is taken. Gives what broke it first. */
  #break(error: unknown): HoldfastError {
    this.#broken ??= storageError(error, 'The snapshot could not be stored');
    return this.#broken;
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

/** All of it is on the disk. */
async function synced({ opened, written }: Writing): Promise<void> {
  await written;
  await (await opened).datasync();
}
