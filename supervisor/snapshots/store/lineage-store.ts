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

const CACHED_BYTES = 32 * 2 ** 20;
/** Packs that stay open between two reads. */
const OPEN_PACKS = 16;
/** Frames that one answer reads at once: each may lie in another pack. */
const READ_AT_ONCE = 8;

/** A published pack. */
export interface StoredPack {
  /** Of its file. */
  readonly name: string;
  readonly path: string;
  readonly file: StoredPackFile;
  readonly index: PackIndex;
}

/** A pack file that is to be published, and what is in it where that was read and checked. */
export interface NewPack {
  readonly path: string;
  readonly index?: PackIndex;
}

/** A file among the packs that is none, or is one no more. */
export interface UnreadablePack {
  readonly name: string;
  readonly path: string;
  /** Of its file. */
  readonly bytes: number;
  readonly error: unknown;
}

/** Where an object lies. */
export interface StoredObject {
  readonly pack: StoredPack;
  readonly object: PackObject;
}

/** A frame as it goes to a sidecar: see `store/read`. */
export interface SentFrame {
  readonly objects: number;
  readonly stored: number;
  readonly raw: number;
  readonly encoding: number;
}

/**
 * The packs of one lineage: `packs/*.pack`, immutable and complete, beside `incoming/` for what is not yet. It is closed under
 * references: every object that one of its trees, lists and roots names is in it too. Whoever takes objects away keeps it so, by
 * taking trees, lists and roots with, or before, what they name. Callers hold the lineage's lock.
 */
export class LineageStore implements ObjectReader {
  readonly directory: string;
  /** Doubted ones first, so that every other copy of an object counts before theirs. Whoever goes through them keeps the array. */
  #packs: StoredPack[] = [];
  #doubted: ReadonlySet<string> = new Set();
  /** Of `#packs`, in the same order. */
  readonly #table = new ObjectTable();
  readonly #broken: UnreadablePack[] = [];
  readonly #cache = new FrameCache(CACHED_BYTES);
  readonly #files = new FileHandleCache(OPEN_PACKS);
  /** Objects of each pack by frame, once it was needed. */
  readonly #byFrame = new WeakMap<PackIndex, PackObject[][]>();

  private constructor(directory: string) {
    this.directory = directory;
  }

  /** A folder that is not there is an empty store; it is made with the first pack. */
  static async open(directory: string): Promise<LineageStore> {
    const store = new LineageStore(directory);
    await finishDropping(directory);
    store.#doubted = await readSuspectPacks(directory);
    for (const name of await names(store.packsDirectory)) {
      if (!PACK_NAME.test(name)) continue;
      const path = join(store.packsDirectory, name);
      try {
        store.#packs.push(await openPack(name, path, store.#files));
      } catch (error) {
        const bytes = (await lstat(path).catch(() => null))?.size ?? 0;
        store.#broken.push({ name, path, bytes, error });
      }
    }
    store.#order();
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
    return this.#broken;
  }

  /**
   * What is known of it that is damaged, as a text that is another one when more becomes known; null where nothing is. Whoever takes a
   * snapshot has the sidecar ask for everything once: what is had in such packs only is stored anew.
   */
  get damageFingerprint(): string | null {
    const names = [...this.#doubted, ...this.#broken.map(({ name }) => name)];
    return names.length === 0 ? null : names.sort().join();
  }

  /** Of all packs on the disk that can be read. */
  get bytes(): number {
    return this.#packs.reduce((sum, { file }) => sum + file.size, 0);
  }

  find(hash: Hash): StoredObject | null {
    const place = this.#table.find(hash);
    const pack = place === null ? undefined : this.#packs[place.pack];
    return place === null || pack === undefined ? null : { pack, object: pack.index.object(place.index) };
  }

  /** Kind of an object that is there (OBJECT_KINDS); null where it is not. */
  kindOf(hash: Hash): number | null {
    const place = this.#table.find(hash);
    return place === null ? null : (this.#packs[place.pack]?.index.kindAt(place.index) ?? null);
  }

  /** Whether it is there, and in no pack that is doubted: such a copy is not relied on by what is stored from now on. */
  hasTrustedCopy(hash: Hash): boolean {
    const place = this.#table.find(hash);
    const pack = place === null ? undefined : this.#packs[place.pack];
    return pack !== undefined && !this.#doubted.has(pack.name);
  }

  async read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    return await this.#whereSound(hash, async ({ pack, object }) => {
      if (object.kind !== kind)
        throw snapshotDamaged('an object is of another kind', { object: hash.toString('hex') });
      return extractObject(await this.frame(pack, object.frame), object);
    });
  }

  /**
   * From now on other copies count before those of these packs, of which something was found damaged, and what only they have is stored
   * anew with the next snapshot that needs it.
   */
  async markSuspect(packNames: Iterable<string>): Promise<void> {
    const names = [...packNames].filter((name) => this.#packs.some((pack) => pack.name === name));
    if (names.every((name) => this.#doubted.has(name))) return;
    this.#doubted = new Set([...this.#doubted, ...names]);
    this.#order();
    await writeSuspectPacks(this.directory, this.#doubted);
  }

  /** The uncompressed bytes of one frame. */
  async frame(pack: StoredPack, index: number): Promise<Buffer> {
    const key = `${pack.name} ${index}`;
    const known = this.#cache.get(key);
    if (known !== undefined) return known;
    const frame = pack.index.frame(index);
    const raw = decompressFrame(frame.encoding, frame.rawLength, await readStoredFrame(pack.file, frame));
    this.#cache.set(key, raw);
    return raw;
  }

  /** The answer to `store/read`. Errors: `snapshot_damaged` where the first one is not there or cannot be read. */
  async readFramesWith(hashes: readonly Hash[]): Promise<{ frames: SentFrame[]; bytes: Buffer }> {
    const chosen: Hash[] = [];
    const taken = new Set<string>();
    let expected = 0;
    for (const hash of hashes) {
      const found = chosen.length === 0 ? this.#existing(hash) : this.find(hash);
      if (found === null) break;
      const { pack, object } = found;
      const key = `${pack.name} ${object.frame}`;
      if (taken.has(key)) continue;
      const table = this.#objectsOf(pack)[object.frame]?.length ?? 0;
      expected += table * FRAME.recordBytes + pack.index.frame(object.frame).storedLength;
      if (chosen.length > 0 && expected > FRAME_LIMITS.payloadBytes) break;
      taken.add(key);
      chosen.push(hash);
    }
    const frames: SentFrame[] = [];
    const parts: Buffer[] = [];
    let bytes = 0;
    for (let from = 0; from < chosen.length; from += READ_AT_ONCE) {
      const read = await Promise.all(
        chosen
          .slice(from, from + READ_AT_ONCE)
          .map((hash) => this.#whereSound(hash, (found) => this.#storedWith(found))),
      );
      for (const { frame, table, stored } of read) {
        // One that had to be read from another pack may be longer than the one that was chosen.
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
   * Moves complete and durable pack files of the same file system in; they are there, and durable, when it resolves. Killed in between,
   * some of them are: objects that nobody names do no harm.
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
   * Takes packs away, broken ones too: all of them, or none where it throws. Only with the lineage's lock held alone. Killed in
   * between, the next `open` goes on. `urgently` writes what has to be written on a full disk too.
   */
  async dropPacks(
    packNames: ReadonlySet<string>,
    urgently: (write: () => void) => void = (write) => write(),
  ): Promise<void> {
    if (packNames.size === 0) return;
    urgently(() => beginDropping(this.directory, packNames));
    await failpoint('gc.after-intent');
    this.#cache.clear();
    const gone = this.#packs.filter(({ name }) => packNames.has(name));
    this.#packs = this.#packs.filter(({ name }) => !packNames.has(name));
    this.#order();
    for (const pack of gone) await pack.file.close();
    for (const pack of this.#broken.filter(({ name }) => packNames.has(name))) {
      this.#broken.splice(this.#broken.indexOf(pack), 1);
    }
    await finishDropping(this.directory);
    const left = new Set([...this.#doubted].filter((name) => !packNames.has(name)));
    if (left.size === this.#doubted.size) return;
    this.#doubted = left;
    await writeSuspectPacks(this.directory, left);
  }

  async close(): Promise<void> {
    this.#cache.clear();
    this.#packs = [];
    this.#table.replace([]);
    await this.#files.closeAll();
  }

  #order(): void {
    const isDoubted = ({ name }: StoredPack): boolean => this.#doubted.has(name);
    this.#packs = [...this.#packs.filter(isDoubted), ...this.#packs.filter((pack) => !isDoubted(pack))];
    this.#table.replace(this.#packs.map(({ index }) => index));
  }

  /** What `read` makes of an object; of another copy of it where one is damaged. */
  async #whereSound<T>(hash: Hash, read: (found: StoredObject) => Promise<T>): Promise<T> {
    for (let found = this.#existing(hash); ;) {
      try {
        return await read(found);
      } catch (error) {
        if (!(error instanceof HoldfastError) || error.code !== 'snapshot_damaged') throw error;
        await this.markSuspect([found.pack.name]);
        const other = this.find(hash);
        if (other === null || this.#doubted.has(other.pack.name)) throw error;
        found = other;
      }
    }
  }

  /** The frame that the object lies in, as it is sent. */
  async #storedWith({
    pack,
    object,
  }: StoredObject): Promise<{ frame: SentFrame; table: Buffer; stored: Buffer }> {
    const place = pack.index.frame(object.frame);
    const records = this.#objectsOf(pack)[object.frame] ?? [];
    const stored = await readStoredFrame(pack.file, place);
    const { rawLength: raw, encoding } = place;
    return {
      frame: { objects: records.length, stored: stored.length, raw, encoding },
      table: encodeFrameTable(records),
      stored,
    };
  }

  #existing(hash: Hash): StoredObject {
    const found = this.find(hash);
    if (found !== null) return found;
    const [broken] = this.#broken;
    throw snapshotDamaged(
      broken === undefined
        ? 'an object is not in the store'
        : `an object is missing, and ${broken.name} is no pack`,
      { object: hash.toString('hex') },
    );
  }

  #objectsOf({ index }: StoredPack): PackObject[][] {
    let groups = this.#byFrame.get(index);
    if (groups === undefined) {
      groups = index.objectsByFrame();
      this.#byFrame.set(index, groups);
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

async function names(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return [];
    throw error;
  }
}
