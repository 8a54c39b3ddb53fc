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
const DIRECTORY_MODE = 0o700;
const OWNER_ENTERS = 0o100;
/** Directories on the stack that stay open. Those above are closed and reopened through `..`. */
const OPEN_LEVELS = 128;
/** How far trees are read ahead of the creation of their files: names, and bytes of content. */
const AHEAD_NAMES = 4000;
const AHEAD_BYTES = 16 * 2 ** 20;
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');

type Linkable = Exclude<TreeEntry, DirectoryEntry>;

/** A new entry that a restore needs. */
export interface StagedEntry {
  /** Its name in the staging directory. */
  readonly staged: Buffer;
  readonly entry: TreeEntry;
  /** The path below it to restore. Empty: everything. */
  readonly only: readonly Buffer[];
}

export interface StagingBuilderOptions {
  readonly system: SystemCalls;
  readonly chmods: TemporaryChmods;
  readonly objects: RemoteObjects;
  readonly links: HardLinks;
  /** The workspace's directory. */
  readonly root: number;
  readonly staging: () => StagingDirectory;
  /**
   * The path to restore. Empty: everything. Otherwise an existing hard link is used only if its attributes are right
   * too.
   */
  readonly path: readonly Buffer[];
  readonly check: () => void;
}

/** The next operation. The files of a directory come before its subdirectories. */
type Operation =
  | { readonly do: 'file'; readonly name: Buffer; readonly entry: Linkable }
  | {
      readonly do: 'enter';
      readonly name: Buffer;
      readonly entry: DirectoryEntry;
      readonly body: Buffer | null;
      /** The snapshot lacks some of the entries in `body`. */
      readonly lacks: boolean;
    }
  | { readonly do: 'leave' };

interface Level {
  readonly directory: CachedDirectory;
  readonly entry: DirectoryEntry;
  fd: number;
  /** Fingerprints of its files, by name (latin1). */
  readonly fingerprint: Map<string, Uint32Array>;
  /** All entries of the directory are created. */
  readonly isWhole: boolean;
  /** The directory has fewer entries than the snapshot names. */
  readonly lacks: boolean;
}

/**
 * Creates the new entries of a plan in the staging directory. Trees are read ahead of the files, so that content is
 * fetched and unpacked meanwhile.
 */
export class StagingBuilder {
  /** Number of entries created inside directories. */
  created = 0;
  /** Bytes of content written. */
  bytes = 0;
  /** Complete new directories by staged name (latin1), with the fingerprints of their files. */
  readonly builtDirectories = new Map<string, CachedDirectory>();
  readonly #options: StagingBuilderOptions;
  /** Staged names of files with several hard links, by group. */
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
        // Creates the files of the last round while the content of this round arrives.
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

  /** Operations for a directory and everything below it. */
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
      const { files, directories, body, lacks } = await this.#listing(next.entry, next.only);
      yield { do: 'enter', name: next.name, entry: next.entry, body, lacks };
      for (const entry of files) yield { do: 'file', name: entry.name, entry };
      levels.push({ left: directories.reverse(), rest: next.only.slice(1) });
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

  /**
   * Reads a directory of the snapshot and announces its content. `body`: its encoded entries; null if only one of them
   * is restored.
   */
  async #listing(
    { content }: DirectoryEntry,
    [only]: readonly Buffer[],
  ): Promise<{ files: Linkable[]; directories: DirectoryEntry[]; body: Buffer | null; lacks: boolean }> {
    const { objects } = this.#options;
    const files: Linkable[] = [];
    const directories: DirectoryEntry[] = [];
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
        if (entry.type === 'directory') directories.push(entry);
        else files.push(entry);
        // A file with several hard links is created once.
        if (entry.type === 'directory' || (entry.type === 'file' && entry.linkGroup === null)) {
          for (const { hash: piece } of entry.content.items) objects.expect(piece);
        }
      }
    }
    if (only !== undefined && files.length + directories.length === 0)
      throw notInSnapshot(this.#options.path);
    return {
      files,
      directories,
      body: only === undefined ? detachedCopy(Buffer.concat(bodies)) : null,
      lacks,
    };
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

  #currentFd(): number {
    return this.#levels.at(-1)?.fd ?? this.#options.staging().fd;
  }

  #enter({ name, entry, body, lacks }: Extract<Operation, { do: 'enter' }>): void {
    const { system } = this.#options;
    const at = this.#currentFd();
    system.makeDirectoryAt(at, name, DIRECTORY_MODE);
    const fd = system.openAt(at, system.addressOf(name), SAFE_DIRECTORY_FLAGS);
    const parent = this.#levels.at(-1);
    const directory = new CachedDirectory(parent?.directory ?? null, detachedCopy(name));
    directory.entry = { ...entry, name: directory.name };
    const isWhole = body !== null;
    if (isWhole) directory.encodedEntries = body;
    parent?.directory.children.push(directory);
    this.#levels.push({ directory, entry, fd, fingerprint: new Map(), isWhole, lacks });
    this.#readFingerprint(directory, fd);
    const above = this.#levels.at(-1 - OPEN_LEVELS);
    if (above === undefined || above.fd === -1) return;
    closeSync(above.fd);
    above.fd = -1;
  }

  /** Sets the directory's attributes last. Those of the outermost directory are set after it is placed. */
  #leave(): void {
    const { system } = this.#options;
    const level = this.#levels.pop();
    if (level === undefined) return;
    const { directory, entry, fd } = level;
    const parent = this.#levels.at(-1);
    try {
      if (parent?.fd === -1) {
        parent.fd = system.openAt(fd, system.addressOf(DOTS), SAFE_DIRECTORY_FLAGS);
        const before = inodeOf(parent.directory.fingerprint);
        this.#readFingerprint(parent.directory, parent.fd);
        if (inodeOf(parent.directory.fingerprint) !== before) throw changedDuringRestore();
      }
      if (level.isWhole) this.#list(level);
      if (parent !== undefined) setAttributesByFd(system, fd, entry, true);
      this.#readFingerprint(directory, fd);
    } finally {
      closeSync(fd);
    }
    if (parent === undefined && level.isWhole) this.builtDirectories.set(nameKey(directory.name), directory);
  }

  #readFingerprint(directory: CachedDirectory, fd: number): void {
    const { system } = this.#options;
    system.statFd(fd);
    writeFingerprint(system.stat, directory.fingerprint, 0);
  }

  /** Lists the new directory, so that the next scan finds it unchanged. */
  #list({ directory, fd, fingerprint, lacks }: Level): void {
    const { system } = this.#options;
    const parts: Buffer[] = [];
    for (let length = system.readDirents(fd); length > 0; length = system.readDirents(fd)) {
      parts.push(detachedCopy(system.direntBuffer.subarray(0, length)));
    }
    const [first = directory.dirents] = parts;
    const dirents = parts.length > 1 ? Buffer.concat(parts) : first;
    const fingerprints: number[] = [];
    const directories = new Map(directory.children.map((below) => [nameKey(below.name), below]));
    const inOrder: CachedDirectory[] = [];
    for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
      if (isDotEntry(dirents, at)) continue;
      const key = nameKey(direntName(dirents, at));
      const below = directories.get(key);
      if (below !== undefined) inOrder.push(below);
      fingerprints.push(...(fingerprint.get(key) ?? NO_FINGERPRINT));
    }
    directory.dirents = dirents;
    directory.fingerprints = Uint32Array.from(fingerprints);
    directory.children = inOrder;
    directory.hasKnownTypes = !hasUnknownTypes(dirents);
    // The next scan encodes a directory again that lacks entries of the snapshot.
    directory.isDirty = lacks;
    directory.hasEntryChanged = false;
  }

  async #makeLinkable(name: Buffer, entry: Linkable): Promise<void> {
    const { system, staging, links, path } = this.#options;
    if (entry.linkGroup === null) {
      const { bytes, fingerprint } = await this.#makeOne(this.#currentFd(), name, entry);
      this.bytes += bytes;
      if (fingerprint !== null) this.#levels.at(-1)?.fingerprint.set(nameKey(name), fingerprint);
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
    system.linkAt(staging().fd, source, this.#currentFd(), name);
  }

  async #makeOne(dirfd: number, name: Buffer, entry: Linkable): Promise<CreatedEntry> {
    const { system, objects } = this.#options;
    if (entry.type === 'file') {
      const made = createFileIfAvailable(system, objects, dirfd, name, entry);
      if (made !== null) return made;
    }
    return await createEntry(system, objects, dirfd, name, entry);
  }

  /** Links a file of the workspace under a staged name. */
  #linkPresent(
    {
      directory,
      name,
      inode,
    }: { readonly directory: CachedDirectory; readonly name: Buffer; readonly inode: bigint },
    staged: Buffer,
  ): void {
    const { system, chmods, root, staging } = this.#options;
    const path = directory.path();
    let here = system.openAt(root, system.addressOf(DOT), O_PATH | O_DIRECTORY);
    /** Restores modes of directories that denied access, and closes them. */
    const restores: (() => void)[] = [];
    try {
      for (const [at, step] of path.entries()) {
        const next = system.openAt(here, system.addressOf(step), O_PATH | O_DIRECTORY | O_NOFOLLOW);
        const isDenied = (fstatSync(next).mode & OWNER_ENTERS) === 0;
        if (isDenied) restores.push(grantAndOwn(chmods, next, path.slice(0, at + 1)));
        const before = here;
        here = isDenied ? system.openAt(next, system.addressOf(DOT), O_PATH | O_DIRECTORY) : next;
        closeSync(before);
      }
      system.linkAt(here, name, staging().fd, staged);
    } finally {
      closeSync(here);
      for (const give of restores.reverse()) give();
    }
    const fingerprint = new Uint32Array(FINGERPRINT_WORDS);
    if (!system.statAt(staging().fd, system.addressOf(staged))) throw changedDuringRestore();
    writeFingerprint(system.stat, fingerprint, 0);
    if (inodeOf(fingerprint) !== inode) throw changedDuringRestore();
  }
}

/** Takes ownership of `fd`, and closes it after its mode was restored. */
function grantAndOwn(chmods: TemporaryChmods, fd: number, path: readonly Buffer[]): () => void {
  const restores = chmods.grant(fd, path, OWNER_ENTERS);
  return () => {
    try {
      restores(fd);
    } finally {
      closeSync(fd);
    }
  };
}

const NO_FINGERPRINT = new Uint32Array(FINGERPRINT_WORDS);

/** The snapshot records only that the entry exists. */
export function unreadInSnapshot(path: readonly Buffer[]): HoldfastError {
  return new HoldfastError('file_unavailable', `The snapshot does not have ${formatPath(path)}`, {
    why: 'the file could not be read when the snapshot was created',
    next: 'restore it from another snapshot',
  });
}

export function notInSnapshot(path: readonly Buffer[]): HoldfastError {
  return new HoldfastError('file_not_found', `The snapshot has no ${formatPath(path)}`, {
    next: 'see `holdfast workspace ls SESSION --snapshot SNAPSHOT`',
  });
}
