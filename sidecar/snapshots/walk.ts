import { constants } from 'node:fs';
import {
  matchesFingerprint,
  isInvalidated,
  areEqualFingerprints,
  FINGERPRINT_WORDS,
  inodeOf,
  keepModeAndCtime,
  linksOf,
  modeOf,
  writeFingerprint,
  sizeOf,
} from './fingerprint.ts';
import { CachedDirectory, nameKey, detachedCopy } from './cached-directory.ts';
import { mayContainTemporaryNames, type TemporaryEntries } from '../files/temporary-entries.ts';
import type { TemporaryChmods } from './temporary-chmods.ts';
import {
  countDirents,
  hasUnknownTypes,
  isDotEntry,
  DIRENT_NAME_OFFSET,
  direntLength,
  direntName,
  direntType,
  TYPE_DIRECTORY,
  TYPE_UNKNOWN,
  withoutDirents,
} from './dirents.ts';
import type { SystemCalls } from './system-calls.ts';
import { type Level, DirectoryStack } from './directory-stack.ts';

const { S_IFDIR, S_IFMT, S_IFREG } = constants;
const NO_RECORDS = Buffer.alloc(0);
/** Names between two checks for cancellation. */
const NAMES_A_CHECK = 512;

/** A name in a directory. */
export interface EntryLocation {
  readonly directory: CachedDirectory;
  readonly name: Buffer;
}

/** Names from the workspace, which has none, to this entry. */
export function pathOf({ directory, name }: EntryLocation): Buffer[] {
  return [...directory.path(), name];
}

export interface Totals {
  files: number;
  directories: number;
  bytes: number;
}

/** Receives the findings of a walk. */
export interface WalkVisitor {
  /**
   * An entry that is not a directory is new or has changed. `fingerprint` is its fingerprint, and on return the one to
   * store. `isAgain`: the stored fingerprint was invalidated. Returns false to end the walk.
   */
  entryChanged(
    place: EntryLocation,
    dirfd: number,
    fingerprint: Uint32Array,
    isAgain: boolean,
  ): boolean | Promise<boolean>;
  /** The same for a directory, which is open for reading as `fd`. */
  directoryChanged(directory: CachedDirectory, fd: number, fingerprint: Uint32Array): void;
  /** All names of the directory were compared. The walk continues when the promise settles. */
  directoryVisited(directory: CachedDirectory): Promise<void> | undefined;
  /** An entry disappeared during the walk. */
  entryVanished(directory: CachedDirectory, name: Buffer): void;
  check(totals: Readonly<Totals>): void;
}

export interface WalkResult extends Totals {
  /** False if `entryChanged` has ended the walk. */
  readonly complete: boolean;
  /** All visited directories. Each comes before its children. */
  readonly visited: ReadonlySet<CachedDirectory>;
  /** Names of files with several hard links, by inode. */
  readonly hardLinks: ReadonlyMap<bigint, readonly EntryLocation[]>;
}

/**
 * Walks a workspace by descriptors and compares every name with its cached state. Links are not followed. Findings are
 * stored in the cached directories as the walk goes, and an interrupted walk leaves them consistent.
 */
export class Walk {
  /** A directory was found under another name, so the paths below it have changed. */
  wasRenamed = false;
  readonly #system: SystemCalls;
  readonly #chmods: TemporaryChmods;
  readonly #temporaryEntries: TemporaryEntries;
  readonly #walker: WalkVisitor;
  readonly #top: CachedDirectory;
  readonly #visited = new Set<CachedDirectory>();
  readonly #hardLinks = new Map<bigint, EntryLocation[]>();
  readonly #totals: Totals = { files: 0, directories: -1, bytes: 0 };
  readonly #fingerprint = new Uint32Array(FINGERPRINT_WORDS);
  /** Cached directories by inode, to find renamed ones. Built when it is first needed. */
  #byInode: Map<bigint, CachedDirectory> | null = null;

  constructor(options: {
    system: SystemCalls;
    chmods: TemporaryChmods;
    temporaryEntries: TemporaryEntries;
    walker: WalkVisitor;
    top: CachedDirectory;
  }) {
    this.#system = options.system;
    this.#chmods = options.chmods;
    this.#temporaryEntries = options.temporaryEntries;
    this.#walker = options.walker;
    this.#top = options.top;
  }

  /** The caller owns `root`. Errors: `file_not_regular` for a device, and converted system errors. */
  async run(root: number): Promise<WalkResult> {
    const way = new DirectoryStack({ system: this.#system, chmods: this.#chmods });
    try {
      const top = way.enter(root, this.#top);
      if (top === null) throw new Error('the workspace cannot be opened');
      let complete = await this.#visit(top);
      for (let level = way.innermost; level !== undefined && complete; level = way.innermost) {
        const directory = level.directory.children[level.nextChild];
        if (directory === undefined) {
          way.leave();
          continue;
        }
        level.nextChild += 1;
        const below = way.enter(level.fd, directory);
        if (below === null) this.#dropChild(level, directory);
        else complete = await this.#visit(below);
      }
      return { ...this.#totals, complete, visited: this.#visited, hardLinks: this.#hardLinks };
    } finally {
      way.closeAll();
    }
  }

  #dropChild(level: Level, directory: CachedDirectory): void {
    this.#walker.entryVanished(level.directory, directory.name);
    level.directory.removeName(directory.name);
    level.nextChild -= 1;
  }

  /** Compares every name of a directory. Returns false to end the walk. */
  async #visit({ directory, fd, originalFingerprint }: Level): Promise<boolean> {
    const system = this.#system;
    const totals = this.#totals;
    this.#visited.add(directory);
    totals.directories += 1;
    const { dirents, isInScratch } = this.#list(fd, directory.dirents);
    // Read after the listing: if its ctime is old enough, so is the listing.
    system.statFd(fd);
    writeFingerprint(system.stat, this.#fingerprint, 0);
    if (originalFingerprint !== null) keepModeAndCtime(this.#fingerprint, originalFingerprint);
    if (!areEqualFingerprints(this.#fingerprint, directory.fingerprint)) {
      this.#walker.directoryChanged(directory, fd, this.#fingerprint);
      directory.fingerprint.set(this.#fingerprint);
    }
    const isSame = dirents === directory.dirents && directory.hasKnownTypes;
    const known = isSame ? null : cachedNames(directory);
    const fingerprints = isSame
      ? directory.fingerprints
      : new Uint32Array(countDirents(dirents) * FINGERPRINT_WORDS);
    const children: CachedDirectory[] = [];
    const gone: Buffer[] = [];
    let shouldContinue = true;
    let index = -FINGERPRINT_WORDS;
    let sinceCheck = 0;

    for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
      if (isDotEntry(dirents, at)) continue;
      index += FINGERPRINT_WORDS;
      if (direntType(dirents, at) === TYPE_DIRECTORY) {
        if (isSame) continue;
        children.push(this.#childAt(directory, dirents, at, known));
        continue;
      }
      if (known !== null) {
        const old = known.get(nameKey(direntName(dirents, at)))?.index;
        if (old !== undefined)
          fingerprints.set(directory.fingerprints.subarray(old, old + FINGERPRINT_WORDS), index);
      }
      if (!shouldContinue) continue;
      sinceCheck += 1;
      if (sinceCheck === NAMES_A_CHECK) {
        this.#walker.check(totals);
        sinceCheck = 0;
      }
      const address = isInScratch
        ? system.direntBufferAddress + at + DIRENT_NAME_OFFSET
        : system.addressOf(direntName(dirents, at));
      if (!system.statAt(fd, address)) {
        gone.push(Buffer.from(direntName(dirents, at)));
        continue;
      }
      if (!matchesFingerprint(system.stat, fingerprints, index)) {
        writeFingerprint(system.stat, this.#fingerprint, 0);
        const name = Buffer.from(direntName(dirents, at));
        if ((modeOf(this.#fingerprint) & S_IFMT) === S_IFDIR) {
          if (direntType(dirents, at) === TYPE_UNKNOWN)
            children.push(this.#childNamed(directory, name, known));
          else gone.push(name); // It became a directory during the walk.
          continue;
        }
        const fingerprint = this.#fingerprint.slice();
        const went = this.#walker.entryChanged(
          { directory, name },
          fd,
          fingerprint,
          isInvalidated(fingerprints, index),
        );
        shouldContinue = typeof went === 'boolean' ? went : await went;
        if (!shouldContinue) continue;
        fingerprints.set(fingerprint, index);
      }
      totals.files += 1;
      const links = linksOf(fingerprints, index);
      const isFile = (modeOf(fingerprints, index) & S_IFMT) === S_IFREG;
      if (links > 1) {
        const inode = inodeOf(fingerprints, index);
        const names = this.#hardLinks.get(inode);
        const name = { directory, name: detachedCopy(direntName(dirents, at)) };
        if (names !== undefined) names.push(name);
        else {
          this.#hardLinks.set(inode, [name]);
          if (isFile) totals.bytes += sizeOf(fingerprints, index);
        }
      } else if (isFile) totals.bytes += sizeOf(fingerprints, index);
    }
    if (!isSame) {
      directory.dirents = dirents;
      directory.fingerprints = fingerprints;
      directory.children = children;
      directory.hasKnownTypes = !hasUnknownTypes(dirents);
      directory.isDirty = true;
      directory.haveNamesChanged = true;
    }
    for (const name of gone) {
      this.#walker.entryVanished(directory, name);
      directory.removeName(name);
    }
    const rest = this.#walker.directoryVisited(directory);
    if (rest !== undefined) await rest;
    return shouldContinue;
  }

  /**
   * All names of an open directory without our temporary entries. Returns the cached buffer itself if the names are the
   * same.
   */
  #list(fd: number, known: Buffer): { dirents: Buffer; isInScratch: boolean } {
    const scratch = this.#system.direntBuffer;
    const first = this.#system.readDirents(fd);
    if (first === 0) return { dirents: known.length === 0 ? known : NO_RECORDS, isInScratch: false };
    const isKnown = first === known.length && scratch.compare(known, 0, first, 0, first) === 0;
    const parts = [isKnown ? known : detachedCopy(scratch.subarray(0, first))];
    for (let more = this.#system.readDirents(fd); more > 0; more = this.#system.readDirents(fd)) {
      parts.push(detachedCopy(scratch.subarray(0, more)));
    }
    const listed = parts.length === 1 ? (parts[0] ?? NO_RECORDS) : Buffer.concat(parts);
    // Temporary entries of running operations are not part of the workspace. The cached names have none.
    const isOurs = (name: Buffer): boolean => this.#temporaryEntries.isTemporary(fd, name);
    const dirents =
      listed !== known && mayContainTemporaryNames(listed) ? withoutDirents(listed, isOurs) : listed;
    const isInScratch = parts.length === 1 && dirents === listed;
    return { dirents: dirents !== known && dirents.equals(known) ? known : dirents, isInScratch };
  }

  #childAt(parent: CachedDirectory, dirents: Buffer, at: number, known: CachedNames | null): CachedDirectory {
    return this.#childNamed(
      parent,
      detachedCopy(direntName(dirents, at)),
      known,
      dirents.readBigUInt64LE(at),
    );
  }

  /** The cached state of a directory by its name or, if it was renamed, by its inode. */
  #childNamed(
    parent: CachedDirectory,
    name: Buffer,
    known: CachedNames | null,
    inode?: bigint,
  ): CachedDirectory {
    const before = known?.get(nameKey(name))?.directory;
    if (before !== undefined && (inode === undefined || inodeOf(before.fingerprint) === inode)) return before;
    const renamed = inode === undefined ? undefined : this.#directoriesByInode().get(inode);
    // A directory that this walk has already visited was moved meanwhile, and is scanned as a new one.
    if (renamed === undefined || this.#visited.has(renamed)) return new CachedDirectory(parent, name);
    this.#directoriesByInode().delete(inodeOf(renamed.fingerprint));
    renamed.parent = parent;
    renamed.name = name;
    renamed.entry = { ...renamed.entry, name };
    this.wasRenamed = true;
    return renamed;
  }

  #directoriesByInode(): Map<bigint, CachedDirectory> {
    if (this.#byInode === null) {
      this.#byInode = new Map();
      for (const directory of this.#top.withDescendants())
        this.#byInode.set(inodeOf(directory.fingerprint), directory);
    }
    return this.#byInode;
  }
}

type CachedNames = ReadonlyMap<
  string,
  { readonly index: number; readonly directory: CachedDirectory | undefined }
>;

function cachedNames(directory: CachedDirectory): CachedNames {
  const known = new Map<string, { index: number; directory: CachedDirectory | undefined }>();
  const children = new Map(directory.children.map((below) => [nameKey(below.name), below]));
  let index = 0;
  for (let at = 0; at < directory.dirents.length; at += direntLength(directory.dirents, at)) {
    if (isDotEntry(directory.dirents, at)) continue;
    const key = nameKey(direntName(directory.dirents, at));
    known.set(key, { index, directory: children.get(key) });
    index += FINGERPRINT_WORDS;
  }
  return known;
}
