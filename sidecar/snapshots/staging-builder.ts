import { closeSync, constants, fstatSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { type DirectoryEntry, parseTree, type TreeEntry } from '../../snapshot-format/entries.ts';
import { snapshotDamaged, OBJECT_KINDS } from '../../snapshot-format/objects.ts';
import { isMissing } from '../../snapshot-format/missing-entry.ts';
import { piecesOf } from '../../snapshot-format/content-ref.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { O_PATH } from '../files/resolver.ts';
import { changedDuringRestore, setAttributesByFd } from './attributes.ts';
import { FINGERPRINT_WORDS, inodeOf, writeFingerprint } from './fingerprint.ts';
import { CachedDirectory, nameKey, detachedCopy } from './cached-directory.ts';
import type { HardLinks } from './hard-links.ts';
import type { TemporaryChmods } from './temporary-chmods.ts';
import { type CreatedEntry, createEntry, createFileIfAvailable } from './create-entry.ts';
import { hasUnknownTypes, isDotEntry, direntLength, direntName } from './dirents.ts';
import type { RemoteObjects } from './remote-objects.ts';
import type { StagingDirectory } from './staging-directory.ts';
import { SAFE_DIRECTORY_FLAGS, type SystemCalls } from './system-calls.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
const OWN_FOLDER = 0o700;
const OWNER_ENTERS = 0o100;
/** Folders on the way down that stay open; those above are closed and found again through `..`. */
const OPEN_LEVELS = 128;
/** What is read of trees before its files are made: names, and bytes of content. */
const AHEAD_NAMES = 4000;
const AHEAD_BYTES = 16 * 2 ** 20;
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');

type Linkable = Exclude<TreeEntry, DirectoryEntry>;

/** Something new that a restore needs. */
export interface StagedEntry {
  /** Its name in the staging folder. */
  readonly staged: Buffer;
  readonly entry: TreeEntry;
  /** Names below it that alone are wanted; empty: everything. */
  readonly only: readonly Buffer[];
}

export interface StagingBuilderOptions {
  readonly system: SystemCalls;
  readonly lent: TemporaryChmods;
  readonly objects: RemoteObjects;
  readonly links: HardLinks;
  /** The workspace's folder. */
  readonly root: number;
  readonly staging: () => StagingDirectory;
  /** Empty: everything. Else what a file of several names has besides must be right already. */
  readonly path: readonly Buffer[];
  readonly check: () => void;
}

/** What is to be done next. A folder's files come before the folders in it. */
type Operation =
  | { readonly do: 'file'; readonly name: Buffer; readonly entry: Linkable }
  | {
      readonly do: 'enter';
      readonly name: Buffer;
      readonly entry: DirectoryEntry;
      readonly body: Buffer | null;
      /** Not all that `body` names is made: the snapshot lacks it. */
      readonly lacks: boolean;
    }
  | { readonly do: 'leave' };

interface Level {
  readonly folder: CachedDirectory;
  readonly entry: DirectoryEntry;
  fd: number;
  /** What is known of its files, by name (latin1). */
  readonly facts: Map<string, Uint32Array>;
  /** The listing is that of the whole directory. */
  readonly isWhole: boolean;
  /** The directory has less than the snapshot names. */
  readonly lacks: boolean;
}

/**
 * Makes everything new that a plan needs in the staging folder. Trees are read ahead of the files that are made, so that content is
 * fetched and unpacked meanwhile.
 */
export class StagingBuilder {
  /** Names in folders that were made. */
  created = 0;
  /** Content that was written. */
  bytes = 0;
  /** Folders that were made whole, by staged name (latin1), with what is known of their files. */
  readonly builtDirectories = new Map<string, CachedDirectory>();
  readonly #options: StagingBuilderOptions;
  /** Staged names of files with several, by group. */
  readonly #groups = new Map<string, Buffer>();
  readonly #levels: Level[] = [];
  readonly #slices = new TimeSlice();

  constructor(options: StagingBuilderOptions) {
    this.#options = options;
  }

  async build(wanted: readonly StagedEntry[]): Promise<void> {
    const { objects, check } = this.#options;
    const operations = this.#operations(wanted);
    let ahead: Operation[] = [];
    let isOver = false;
    try {
      while (!isOver || ahead.length > 0) {
        let bytes = 0;
        const more: Operation[] = [];
        while (!isOver && more.length < AHEAD_NAMES && bytes < AHEAD_BYTES) {
          check();
          const next = await operations.next();
          if (next.done === true) isOver = true;
          else {
            more.push(next.value);
            if (next.value.do === 'file' && next.value.entry.type === 'file') bytes += next.value.entry.size;
          }
        }
        objects.prefetch();
        // What was read in the last round, while this round's content comes.
        for (const operation of ahead) await this.#perform(operation);
        ahead = more;
      }
    } finally {
      for (const { fd } of this.#levels) if (fd !== -1) closeSync(fd);
    }
  }

  async *#operations(wanted: readonly StagedEntry[]): AsyncGenerator<Operation, void, undefined> {
    for (const { staged, entry, only } of wanted) {
      if (entry.type !== 'directory') yield { do: 'file', name: staged, entry };
      else yield* this.#operationsIn(staged, entry, only);
    }
  }

  /** Of a directory with all that is in it. */
  async *#operationsIn(
    staged: Buffer,
    top: DirectoryEntry,
    only: readonly Buffer[],
  ): AsyncGenerator<Operation, void, undefined> {
    const levels: { left: DirectoryEntry[]; rest: readonly Buffer[] }[] = [];
    const waiting: { name: Buffer; entry: DirectoryEntry; only: readonly Buffer[] }[] = [
      { name: staged, entry: top, only },
    ];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const { files, folders, body, lacks } = await this.#listing(next.entry, next.only);
      yield { do: 'enter', name: next.name, entry: next.entry, body, lacks };
      for (const entry of files) yield { do: 'file', name: entry.name, entry };
      levels.push({ left: folders.reverse(), rest: next.only.slice(1) });
      for (let level = levels.at(-1); level !== undefined; level = levels.at(-1)) {
        const entry = level.left.pop();
        if (entry !== undefined) {
          waiting.push({ name: entry.name, entry, only: level.rest });
          break;
        }
        yield { do: 'leave' };
        levels.pop();
      }
    }
  }

  /** What is in a directory, and is expected from now on. `body`: its entries as they are encoded; null where only one is wanted. */
  async #listing(
    { content }: DirectoryEntry,
    [only]: readonly Buffer[],
  ): Promise<{ files: Linkable[]; folders: DirectoryEntry[]; body: Buffer | null; lacks: boolean }> {
    const { objects } = this.#options;
    const files: Linkable[] = [];
    const folders: DirectoryEntry[] = [];
    const bodies: Buffer[] = [];
    let lacks = false;
    let last: Buffer | undefined;
    for await (const { hash } of piecesOf(objects, content)) {
      const body = await objects.read(hash, OBJECT_KINDS.tree);
      bodies.push(body);
      for (const entry of parseTree(body)) {
        if (last !== undefined && last.compare(entry.name) >= 0)
          throw snapshotDamaged('names are out of order');
        last = entry.name;
        if (only !== undefined && !entry.name.equals(only)) continue;
        if (isMissing(entry)) {
          if (only !== undefined) throw unreadInSnapshot(this.#options.path);
          lacks = true;
          continue;
        }
        if (entry.type === 'directory') folders.push(entry);
        else files.push(entry);
        // A file of several names is made once.
        if (entry.type === 'directory' || (entry.type === 'file' && entry.linkGroup === null)) {
          for (const { hash: piece } of entry.content.items) objects.expect(piece);
        }
      }
    }
    if (only !== undefined && files.length + folders.length === 0) throw notInSnapshot(this.#options.path);
    return { files, folders, body: only === undefined ? detachedCopy(Buffer.concat(bodies)) : null, lacks };
  }

  async #perform(operation: Operation): Promise<void> {
    if (this.#slices.isUsedUp) {
      this.#options.check();
      await this.#slices.yieldToEventLoop();
      this.#options.objects.prefetch();
    }
    if (this.#levels.length > 0 && operation.do !== 'leave') this.created += 1;
    switch (operation.do) {
      case 'enter':
        this.#enter(operation);
        break;
      case 'file':
        await this.#makeLinkable(operation.name, operation.entry);
        break;
      case 'leave':
        this.#leave();
        break;
    }
  }

  #here(): number {
    return this.#levels.at(-1)?.fd ?? this.#options.staging().fd;
  }

  #enter({ name, entry, body, lacks }: Extract<Operation, { do: 'enter' }>): void {
    const { system } = this.#options;
    const at = this.#here();
    system.makeDirectoryAt(at, name, OWN_FOLDER);
    const fd = system.openAt(at, system.addressOf(name), SAFE_DIRECTORY_FLAGS);
    const parent = this.#levels.at(-1);
    const folder = new CachedDirectory(parent?.folder ?? null, detachedCopy(name));
    folder.entry = { ...entry, name: folder.name };
    const isWhole = body !== null;
    if (isWhole) folder.encodedEntries = body;
    parent?.folder.children.push(folder);
    this.#levels.push({ folder, entry, fd, facts: new Map(), isWhole, lacks });
    this.#noteFolder(folder, fd);
    const above = this.#levels.at(-1 - OPEN_LEVELS);
    if (above === undefined || above.fd === -1) return;
    closeSync(above.fd);
    above.fd = -1;
  }

  /** Its own attributes come last; those of the outermost when it has its place. */
  #leave(): void {
    const { system } = this.#options;
    const level = this.#levels.pop();
    if (level === undefined) return;
    const { folder, entry, fd } = level;
    const parent = this.#levels.at(-1);
    try {
      if (parent?.fd === -1) {
        parent.fd = system.openAt(fd, system.addressOf(DOTS), SAFE_DIRECTORY_FLAGS);
        const before = inodeOf(parent.folder.fingerprint);
        this.#noteFolder(parent.folder, parent.fd);
        if (inodeOf(parent.folder.fingerprint) !== before) throw changedDuringRestore();
      }
      if (level.isWhole) this.#list(level);
      if (parent !== undefined) setAttributesByFd(system, fd, entry, true);
      this.#noteFolder(folder, fd);
    } finally {
      closeSync(fd);
    }
    if (parent === undefined && level.isWhole) this.builtDirectories.set(nameKey(folder.name), folder);
  }

  #noteFolder(folder: CachedDirectory, fd: number): void {
    const { system } = this.#options;
    system.statFd(fd);
    writeFingerprint(system.stat, folder.fingerprint, 0);
  }

  /** So that the next look knows all of it. */
  #list({ folder, fd, facts, lacks }: Level): void {
    const { system } = this.#options;
    const parts: Buffer[] = [];
    for (let length = system.readDirents(fd); length > 0; length = system.readDirents(fd)) {
      parts.push(detachedCopy(system.direntBuffer.subarray(0, length)));
    }
    const [first = folder.dirents] = parts;
    const records = parts.length > 1 ? Buffer.concat(parts) : first;
    const stats: number[] = [];
    const folders = new Map(folder.children.map((below) => [nameKey(below.name), below]));
    const inOrder: CachedDirectory[] = [];
    for (let at = 0; at < records.length; at += direntLength(records, at)) {
      if (isDotEntry(records, at)) continue;
      const key = nameKey(direntName(records, at));
      const below = folders.get(key);
      if (below !== undefined) inOrder.push(below);
      stats.push(...(facts.get(key) ?? NO_FACTS));
    }
    folder.dirents = records;
    folder.fingerprints = Uint32Array.from(stats);
    folder.children = inOrder;
    folder.hasKnownTypes = !hasUnknownTypes(records);
    // The next scan encodes a directory anew that is not what the snapshot says.
    folder.isDirty = lacks;
    folder.hasEntryChanged = false;
  }

  async #makeLinkable(name: Buffer, entry: Linkable): Promise<void> {
    const { system, staging, links, path } = this.#options;
    if (entry.linkGroup === null) {
      const { bytes, fingerprint } = await this.#makeOne(this.#here(), name, entry);
      this.bytes += bytes;
      if (fingerprint !== null) this.#levels.at(-1)?.facts.set(nameKey(name), fingerprint);
      return;
    }
    const key = nameKey(entry.linkGroup);
    let source = this.#groups.get(key);
    if (source === undefined) {
      source = staging().newName();
      const there = links.find(entry, path.length > 0);
      if (there === null) this.bytes += (await this.#makeOne(staging().fd, source, entry)).bytes;
      else this.#linkPresent(there, source);
      this.#groups.set(key, source);
    }
    system.linkAt(staging().fd, source, this.#here(), name);
  }

  async #makeOne(directory: number, name: Buffer, entry: Linkable): Promise<CreatedEntry> {
    const { system, objects } = this.#options;
    if (entry.type === 'file') {
      const made = createFileIfAvailable(system, objects, directory, name, entry);
      if (made !== null) return made;
    }
    return await createEntry(system, objects, directory, name, entry);
  }

  /** A staged name for a file that the workspace has. */
  #linkPresent(
    {
      folder,
      name,
      inode,
    }: { readonly folder: CachedDirectory; readonly name: Buffer; readonly inode: bigint },
    staged: Buffer,
  ): void {
    const { system, lent, root, staging } = this.#options;
    const path = folder.path();
    let here = system.openAt(root, system.addressOf(DOT), O_PATH | O_DIRECTORY);
    /** Of folders that deny us to enter them, which stay open until then. */
    const giveBack: (() => void)[] = [];
    try {
      for (const [at, step] of path.entries()) {
        const next = system.openAt(here, system.addressOf(step), O_PATH | O_DIRECTORY | O_NOFOLLOW);
        const isDenied = (fstatSync(next).mode & OWNER_ENTERS) === 0;
        if (isDenied) giveBack.push(lendOpen(lent, next, path.slice(0, at + 1)));
        const before = here;
        here = isDenied ? system.openAt(next, system.addressOf(DOT), O_PATH | O_DIRECTORY) : next;
        closeSync(before);
      }
      system.linkAt(here, name, staging().fd, staged);
    } finally {
      closeSync(here);
      for (const give of giveBack.reverse()) give();
    }
    const facts = new Uint32Array(FINGERPRINT_WORDS);
    if (!system.statAt(staging().fd, system.addressOf(staged))) throw changedDuringRestore();
    writeFingerprint(system.stat, facts, 0);
    if (inodeOf(facts) !== inode) throw changedDuringRestore();
  }
}

/** Takes `fd` over: it is closed when its mode is given back. */
function lendOpen(lent: TemporaryChmods, fd: number, path: readonly Buffer[]): () => void {
  const giveBack = lent.grant(fd, path, OWNER_ENTERS);
  return () => {
    try {
      giveBack(fd);
    } finally {
      closeSync(fd);
    }
  };
}

const NO_FACTS = new Uint32Array(FINGERPRINT_WORDS);

/** The snapshot knows that something is there, and not what. */
export function unreadInSnapshot(path: readonly Buffer[]): HoldfastError {
  return new HoldfastError('file_unavailable', `The snapshot does not have ${formatPath(path)}`, {
    why: 'the file could not be read when the snapshot was taken',
    next: 'restore it from another snapshot',
  });
}

export function notInSnapshot(path: readonly Buffer[]): HoldfastError {
  return new HoldfastError('file_not_found', `The snapshot has no ${formatPath(path)}`, {
    next: 'see `holdfast workspace ls SESSION --snapshot SNAPSHOT`',
  });
}
