import { randomBytes } from 'node:crypto';
import { lstat, mkdir, readdir, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { HoldfastError } from '../../../protocol/errors.ts';
import { encodeFrameTable, FRAME, extractObject, decompressFrame } from '../../../snapshot-format/frames.ts';
import {
  snapshotDamaged,
  type Hash,
  type ObjectKind,
  type ObjectReader,
} from '../../../snapshot-format/objects.ts';
import { PackIndex, type PackObject, readStoredFrame } from '../../../snapshot-format/pack-index.ts';
import { FRAME_LIMITS } from '../../../protocol/wire/limits.ts';
import { failpoint } from '../../base/failpoints.ts';
import { hasErrorCode } from '../../store/storage-error.ts';
import { beginDropping, finishDropping, PACK_NAME } from './dropping.ts';
import { readSuspectPacks, writeSuspectPacks } from './suspect-packs.ts';
import { FrameCache } from './frame-cache.ts';
import { syncDirectory } from './sync-directory.ts';
import { ObjectTable } from './object-table.ts';
import { FileHandleCache } from './file-handle-cache.ts';
import { StoredPackFile } from './pack-files.ts';

const FRAME_CACHE_BYTES = 32 * 2 ** 20;
/** Packs that stay open between two reads. */
const MAX_OPEN_PACKS = 16;
/** Frames that one answer reads concurrently: each may lie in another pack. */
const CONCURRENT_READS = 8;

/** A published pack. */
export interface StoredPack {
  /** File name. */
  readonly name: string;
  readonly path: string;
  readonly file: StoredPackFile;
  readonly index: PackIndex;
}

/** A pack file to be published, with its index if that was already read and checked. */
export interface NewPack {
  readonly path: string;
  readonly index?: PackIndex;
}

/** A file in the pack directory that cannot be read as a pack. */
export interface UnreadablePack {
  readonly name: string;
  readonly path: string;
  /** File size. */
  readonly bytes: number;
  readonly error: unknown;
}

/** An object and the pack that holds it. */
export interface StoredObject {
  readonly pack: StoredPack;
  readonly object: PackObject;
}

/** The header of a frame that is sent to a sidecar: see `store/read`. */
export interface SentFrame {
  readonly objects: number;
  readonly stored: number;
  readonly raw: number;
  readonly encoding: number;
}

/**
 * The packs of one lineage: complete and immutable in `packs/*.pack`, incomplete ones in `incoming/`. The store is
 * closed under references: it holds every object that one of its trees, lists and roots references. Removal keeps this
 * true by removing trees, lists and roots together with, or before, the objects they reference. Callers hold the
 * lineage's lock.
 */
export class LineageStore implements ObjectReader {
  readonly directory: string;
  /**
   * Suspect packs come first, because later copies of an object win. Replaced as a whole, so iterations see a stable
   * array.
   */
  #packs: StoredPack[] = [];
  #suspects: ReadonlySet<string> = new Set();
  /** Finds objects in `#packs`; same order. */
  readonly #table = new ObjectTable();
  readonly #unreadablePacks: UnreadablePack[] = [];
  readonly #cache = new FrameCache(FRAME_CACHE_BYTES);
  readonly #files = new FileHandleCache(MAX_OPEN_PACKS);
  /** The objects of each pack by frame, computed on first use. */
  readonly #objectGroups = new WeakMap<PackIndex, PackObject[][]>();

  private constructor(directory: string) {
    this.directory = directory;
  }

  /** Opens a store. A missing directory is an empty store; the first pack creates it. */
  static async open(directory: string): Promise<LineageStore> {
    const store = new LineageStore(directory);
    await finishDropping(directory);
    store.#suspects = await readSuspectPacks(directory);
    for (const name of await listDirectory(store.packsDirectory)) {
      if (!PACK_NAME.test(name)) continue;
      const path = join(store.packsDirectory, name);
      try {
        store.#packs.push(await openPack(name, path, store.#files));
      } catch (error) {
        const bytes = (await lstat(path).catch(() => null))?.size ?? 0;
        store.#unreadablePacks.push({ name, path, bytes, error });
      }
    }
    store.#rebuildOrder();
    return store;
  }

  get packsDirectory(): string {
    return join(this.directory, 'packs');
  }

  get incomingDirectory(): string {
    return join(this.directory, 'incoming');
  }

  get packs(): readonly StoredPack[] {
    return this.#packs;
  }

  get unreadablePacks(): readonly UnreadablePack[] {
    return this.#unreadablePacks;
  }

  /**
   * Identifies the known damage; changes when more is found; null when there is none. After a change, the next snapshot
   * of each session makes the sidecar query the store for every object, so that objects with damaged copies only are
   * sent again.
   */
  get damageFingerprint(): string | null {
    const listDirectory = [...this.#suspects, ...this.#unreadablePacks.map(({ name }) => name)];
    return listDirectory.length === 0 ? null : listDirectory.sort().join();
  }

  /** Bytes of all readable packs on disk. */
  get bytes(): number {
    return this.#packs.reduce((sum, { file }) => sum + file.size, 0);
  }

  find(hash: Hash): StoredObject | null {
    const place = this.#table.find(hash);
    const pack = place === null ? undefined : this.#packs[place.pack];
    return place === null || pack === undefined ? null : { pack, object: pack.index.object(place.index) };
  }

  /** The kind of a stored object (OBJECT_KINDS); null when it is not stored. */
  kindOf(hash: Hash): number | null {
    const place = this.#table.find(hash);
    return place === null ? null : (this.#packs[place.pack]?.index.kindAt(place.index) ?? null);
  }

  /** Whether a pack that is not suspect holds the object. New snapshots do not rely on other copies. */
  hasTrustedCopy(hash: Hash): boolean {
    const place = this.#table.find(hash);
    const pack = place === null ? undefined : this.#packs[place.pack];
    return pack !== undefined && !this.#suspects.has(pack.name);
  }

  async read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    return await this.#withIntactCopy(hash, async ({ pack, object }) => {
      if (object.kind !== kind)
        throw snapshotDamaged('an object is of another kind', { object: hash.toString('hex') });
      return extractObject(await this.frame(pack, object.frame), object);
    });
  }

  /**
   * Marks packs in which damage was found. Copies in other packs win from now on, and the next snapshot that needs an
   * object which only these packs hold stores it again.
   */
  async markSuspect(packNames: Iterable<string>): Promise<void> {
    const listDirectory = [...packNames].filter((name) => this.#packs.some((pack) => pack.name === name));
    if (listDirectory.every((name) => this.#suspects.has(name))) return;
    this.#suspects = new Set([...this.#suspects, ...listDirectory]);
    this.#rebuildOrder();
    await writeSuspectPacks(this.directory, this.#suspects);
  }

  /** The uncompressed bytes of one frame. */
  async frame(pack: StoredPack, index: number): Promise<Buffer> {
    const key = `${pack.name} ${index}`;
    const cached = this.#cache.get(key);
    if (cached !== undefined) return cached;
    const frame = pack.index.frame(index);
    const raw = decompressFrame(frame.encoding, frame.rawLength, await readStoredFrame(pack.file, frame));
    this.#cache.set(key, raw);
    return raw;
  }

  /** The answer to `store/read`. Errors: `snapshot_damaged` when the first object is missing or unreadable. */
  async readFramesWith(hashes: readonly Hash[]): Promise<{ frames: SentFrame[]; bytes: Buffer }> {
    const chosen: Hash[] = [];
    const chosenFrames = new Set<string>();
    let expected = 0;
    for (const hash of hashes) {
      const found = chosen.length === 0 ? this.#getOrThrow(hash) : this.find(hash);
      if (found === null) break;
      const { pack, object } = found;
      const key = `${pack.name} ${object.frame}`;
      if (chosenFrames.has(key)) continue;
      const table = this.#objectsByFrame(pack)[object.frame]?.length ?? 0;
      expected += table * FRAME.recordBytes + pack.index.frame(object.frame).storedLength;
      if (chosen.length > 0 && expected > FRAME_LIMITS.payloadBytes) break;
      chosenFrames.add(key);
      chosen.push(hash);
    }
    const frames: SentFrame[] = [];
    const parts: Buffer[] = [];
    let bytes = 0;
    for (let from = 0; from < chosen.length; from += CONCURRENT_READS) {
      const read = await Promise.all(
        chosen
          .slice(from, from + CONCURRENT_READS)
          .map((hash) => this.#withIntactCopy(hash, (found) => this.#frameWith(found))),
      );
      for (const { frame, table, stored } of read) {
        // A frame read from another pack after damage may be longer than the chosen one.
        if (frames.length > 0 && bytes + table.length + stored.length > FRAME_LIMITS.payloadBytes)
          return { frames, bytes: Buffer.concat(parts) };
        parts.push(table, stored);
        bytes += table.length + stored.length;
        frames.push(frame);
      }
    }
    return { frames, bytes: Buffer.concat(parts) };
  }

  /**
   * Moves complete, durable pack files of the same file system into the store, durably. If the supervisor is killed
   * meanwhile, only some of them are moved; unreferenced objects do no harm.
   */
  async publish(files: readonly NewPack[]): Promise<StoredPack[]> {
    if (files.length === 0) return [];
    if ((await mkdir(this.packsDirectory, { recursive: true, mode: 0o700 })) !== undefined) {
      await syncDirectory(this.directory);
      await syncDirectory(dirname(this.directory));
    }
    const published: StoredPack[] = [];
    for (const { path: from, index } of files) {
      const name = `${randomBytes(16).toString('hex')}.pack`;
      const path = join(this.packsDirectory, name);
      await rename(from, path);
      const pack =
        index === undefined
          ? await openPack(name, path, this.#files)
          : { name, path, file: new StoredPackFile(path, index.size, this.#files), index };
      this.#packs.push(pack);
      this.#table.add(pack.index);
      published.push(pack);
    }
    await syncDirectory(this.packsDirectory);
    return published;
  }

  /**
   * Removes packs, unreadable ones too: all of them, or none if it throws. The caller holds the lineage's lock
   * exclusively. If the supervisor is killed meanwhile, the next `open` continues. `urgently` performs writes that must
   * succeed on a full disk.
   */
  async dropPacks(
    packNames: ReadonlySet<string>,
    urgently: (write: () => void) => void = (write) => write(),
  ): Promise<void> {
    if (packNames.size === 0) return;
    urgently(() => beginDropping(this.directory, packNames));
    await failpoint('gc.after-intent');
    this.#cache.clear();
    const removed = this.#packs.filter(({ name }) => packNames.has(name));
    this.#packs = this.#packs.filter(({ name }) => !packNames.has(name));
    this.#rebuildOrder();
    for (const pack of removed) await pack.file.close();
    for (const pack of this.#unreadablePacks.filter(({ name }) => packNames.has(name))) {
      this.#unreadablePacks.splice(this.#unreadablePacks.indexOf(pack), 1);
    }
    await finishDropping(this.directory);
    const left = new Set([...this.#suspects].filter((name) => !packNames.has(name)));
    if (left.size === this.#suspects.size) return;
    this.#suspects = left;
    await writeSuspectPacks(this.directory, left);
  }

  async close(): Promise<void> {
    this.#cache.clear();
    this.#packs = [];
    this.#table.replace([]);
    await this.#files.closeAll();
  }

  #rebuildOrder(): void {
    const isSuspect = ({ name }: StoredPack): boolean => this.#suspects.has(name);
    this.#packs = [...this.#packs.filter(isSuspect), ...this.#packs.filter((pack) => !isSuspect(pack))];
    this.#table.replace(this.#packs.map(({ index }) => index));
  }

  /** Runs `read` on an object; after damage, on another copy of it. */
  async #withIntactCopy<T>(hash: Hash, read: (found: StoredObject) => Promise<T>): Promise<T> {
    for (let found = this.#getOrThrow(hash); ;) {
      try {
        return await read(found);
      } catch (error) {
        if (!(error instanceof HoldfastError) || error.code !== 'snapshot_damaged') throw error;
        await this.markSuspect([found.pack.name]);
        const other = this.find(hash);
        if (other === null || this.#suspects.has(other.pack.name)) throw error;
        found = other;
      }
    }
  }

  /** The frame that holds the object, in the form in which it is sent. */
  async #frameWith({
    pack,
    object,
  }: StoredObject): Promise<{ frame: SentFrame; table: Buffer; stored: Buffer }> {
    const place = pack.index.frame(object.frame);
    const records = this.#objectsByFrame(pack)[object.frame] ?? [];
    const stored = await readStoredFrame(pack.file, place);
    const { rawLength: raw, encoding } = place;
    return {
      frame: { objects: records.length, stored: stored.length, raw, encoding },
      table: encodeFrameTable(records),
      stored,
    };
  }

  #getOrThrow(hash: Hash): StoredObject {
    const found = this.find(hash);
    if (found !== null) return found;
    const [unreadable] = this.#unreadablePacks;
    throw snapshotDamaged(
      unreadable === undefined
        ? 'an object is not in the store'
        : `an object is missing, and ${unreadable.name} cannot be read as a pack`,
      { object: hash.toString('hex') },
    );
  }

  #objectsByFrame({ index }: StoredPack): PackObject[][] {
    let groups = this.#objectGroups.get(index);
    if (groups === undefined) {
      groups = index.objectsByFrame();
      this.#objectGroups.set(index, groups);
    }
    return groups;
  }
}

async function openPack(name: string, path: string, files: FileHandleCache): Promise<StoredPack> {
  const file = await StoredPackFile.open(path, files);
  try {
    return { name, path, file, index: await PackIndex.read(file) };
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function listDirectory(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return [];
    throw error;
  }
}
