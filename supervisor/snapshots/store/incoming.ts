import { randomBytes } from 'node:crypto';
import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../../protocol/errors.ts';
import { type Hash, OBJECT_KINDS, parseHash, SNAPSHOT_LIMITS } from '../../../protocol/snapshots/objects.ts';
import { PackIndex } from '../../../protocol/snapshots/pack-index.ts';
import { PACK } from '../../../protocol/snapshots/pack-layout.ts';
import { storageError } from '../../store/storage-error.ts';
import { checkPack } from './check-pack.ts';
import type { LineageStore } from './lineage-store.ts';
import { OpenPackFile } from './pack-files.ts';
import type { Reference } from './references.ts';

const { hashBytes } = SNAPSHOT_LIMITS;
/** Packs of one scan that may be written at once. */
const MOST_OPEN = 4;
/** Objects that may be named before they come: bounds the memory that a scan costs. */
const MOST_UNRESOLVED = 2 ** 20;

interface Writing {
  readonly handle: FileHandle;
  readonly path: string;
  length: number;
}

interface Sealed {
  readonly path: string;
  readonly bytes: number;
  readonly index: PackIndex;
}

/**
 * What a sidecar sends for one snapshot. Nothing of it is believed: each pack is checked whole when it is sealed, and none is
 * published unless all that its trees name is there too. Errors that a sidecar causes are `invalid_params` or `snapshot_damaged`,
 * a full disk is `no_space`; after one of them nothing more is taken.
 */
export class Incoming {
  readonly #store: LineageStore;
  readonly #mostBytes: number;
  /** What the names of its files begin with. */
  readonly #name = randomBytes(8).toString('hex');
  /** Paths of files that are not published. */
  readonly #files = new Set<string>();
  readonly #sealed: Sealed[] = [];
  #writing = new Map<number, Writing>();
  #ended = new Set<number>();
  #scans = 0;
  /** Hashes (as latin1) that were named and have not come yet, and what they may be. */
  #unresolved = new Map<string, Reference['kinds']>();
  #bytes = 0;
  #published = 0;
  #turn: Promise<unknown> = Promise.resolve();
  #broken: HoldfastError | null = null;

  /** `mostBytes`: what all packs together may have. */
  constructor(store: LineageStore, mostBytes: number) {
    this.#store = store;
    this.#mostBytes = mostBytes;
  }

  /** Bytes of the packs that were published. */
  get published(): number {
    return this.#published;
  }

  /** Another scan begins to number its packs. What an earlier one has not sealed is forgotten. */
  beginScan(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#closeWriting();
      this.#ended = new Set();
      this.#scans += 1;
    });
  }

  /** `store/have`: one bit for each hash. */
  have(hashes: Buffer): Promise<Buffer> {
    return this.#inTurn(() => {
      const count = hashes.length / hashBytes;
      if (!Number.isInteger(count)) throw refused('hashes that are cut off');
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
      if (this.#ended.has(pack)) throw refused('a pack that has ended');
      const writing = this.#writing.get(pack) ?? (await this.#begin(pack));
      if (offset !== writing.length) throw refused('bytes that do not follow those before');
      if (writing.length + bytes.length > PACK.mostBytes) throw refused('a pack that is too long');
      if (this.#bytes + bytes.length > this.#mostBytes) {
        throw new HoldfastError('no_space', 'The snapshot could not be stored', {
          why: `it takes more than the ${this.#mostBytes} bytes that there are for it`,
          next: 'free some space (`holdfast gc`, or delete snapshots or sessions you no longer need) and try again',
        });
      }
      this.#bytes += bytes.length;
      let written = 0;
      while (written < bytes.length) {
        const { bytesWritten } = await writing.handle.write(
          bytes,
          written,
          bytes.length - written,
          offset + written,
        );
        written += bytesWritten;
      }
      writing.length += bytes.length;
    });
  }

  /** Its objects are had when it resolves. */
  seal(pack: number, bytes: number, objects: number): Promise<void> {
    return this.#inTurn(async () => {
      const writing = this.#writing.get(pack);
      if (writing?.length !== bytes) throw refused('a pack of another length than it was');
      this.#writing.delete(pack);
      this.#ended.add(pack);
      try {
        const check = async (): Promise<PackIndex> => {
          const file = new OpenPackFile(writing.handle, bytes);
          const index = await PackIndex.read(file);
          if (index.objects !== objects) throw refused('a pack with another number of objects');
          await checkPack(file, index, (reference) => {
            if (!this.#isThere(reference)) this.#remember(reference);
          });
          return index;
        };
        const [index] = await Promise.all([check(), writing.handle.datasync()]);
        this.#sealed.push({ path: writing.path, bytes, index });
      } finally {
        await writing.handle.close();
      }
    });
  }

  /**
   * Moves what has come so far into the store. `root` must be there, with all that it needs.
   */
  publish(root: string): Promise<void> {
    return this.#inTurn(async () => {
      for (const [name, kinds] of this.#unresolved) {
        const hash = Buffer.from(name, 'latin1');
        if (this.#isThere({ hash, kinds })) continue;
        throw refused(`a tree that names an object which is not there (${hash.toString('hex')})`);
      }
      this.#unresolved.clear();
      if (!this.#isThere({ hash: parseHash(root), kinds: [OBJECT_KINDS.root] })) {
        throw refused('a root that is not there');
      }
      await this.#store.publish(this.#sealed);
      for (const { path, bytes } of this.#sealed.splice(0)) {
        this.#files.delete(path);
        this.#published += bytes;
      }
    });
  }

  /** Ends it. What was not published goes. */
  async close(): Promise<void> {
    await this.#turn.catch(() => undefined);
    await this.#closeWriting();
    for (const path of this.#files) await rm(path, { force: true });
  }

  async #begin(pack: number): Promise<Writing> {
    if (this.#writing.size >= MOST_OPEN) throw refused('more packs at once than it may');
    const directory = this.#store.incomingDirectory;
    if (this.#files.size === 0) await mkdir(directory, { recursive: true, mode: 0o700 });
    const path = join(directory, `${this.#name}-${this.#scans}-${pack}.pack`);
    this.#files.add(path);
    const writing = { handle: await open(path, 'wx+', 0o600), path, length: 0 };
    this.#writing.set(pack, writing);
    return writing;
  }

  async #closeWriting(): Promise<void> {
    const left = [...this.#writing.values()];
    this.#writing = new Map();
    for (const { handle } of left) await handle.close();
  }

  #remember({ hash, kinds }: Reference): void {
    const name = hash.toString('latin1');
    const before = this.#unresolved.get(name) ?? kinds;
    const both = before.filter((kind) => kinds.includes(kind));
    if (both.length === 0) throw refused('trees that name one object as two kinds');
    this.#unresolved.set(name, both);
    if (this.#unresolved.size > MOST_UNRESOLVED) throw refused('too many trees before what is in them');
  }

  #has(hash: Hash): boolean {
    return this.#store.kindOf(hash) !== null || this.#sealed.some(({ index }) => index.find(hash) !== null);
  }

  #isThere({ hash, kinds }: Reference): boolean {
    const kind = this.#store.kindOf(hash);
    if (kind !== null) return kinds.some((known) => known === kind);
    for (const { index } of this.#sealed) {
      const object = index.find(hash);
      if (object !== null) return kinds.includes(object.kind);
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
        this.#broken = storageError(error, 'The snapshot could not be stored');
        throw this.#broken;
      }
    });
    this.#turn = mine.catch(() => undefined);
    return mine;
  }
}

function refused(what: string): HoldfastError {
  return new HoldfastError('invalid_params', 'The store does not take what the sidecar sends', {
    why: `it sent ${what}`,
  });
}
