import { constants } from 'node:fs';
import type { TemporaryEntries } from '../files/temporary-entries.ts';
import { CachedDirectory, detachedCopy, nameKey } from './cached-directory.ts';
import {
  type DirectoryListing,
  addressOfNames,
  readListing,
  storeListing,
  useCachedFingerprint,
} from './directory-listing.ts';
import { DirectoryStack, type Level } from './directory-stack.ts';
import { direntLength, direntName, direntType, isDotEntry, TYPE_DIRECTORY, TYPE_UNKNOWN } from './dirents.ts';
import {
  areEqualFingerprints,
  FINGERPRINT_WORDS,
  inodeOf,
  isInvalidated,
  keepModeAndCtime,
  linksOf,
  matchesFingerprint,
  modeOf,
  sizeOf,
  writeFingerprint,
} from './fingerprint.ts';
import { STAT, type SystemCalls } from './system-calls.ts';
import type { TemporaryChmods } from './temporary-chmods.ts';
import type { TreeFilter } from './tree-filter.ts';

const { S_IFDIR, S_IFMT, S_IFREG } = constants;
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
  readonly #visitor: WalkVisitor;
  readonly #top: CachedDirectory;
  readonly #filter: TreeFilter | null;
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
    visitor: WalkVisitor;
    top: CachedDirectory;
    filter?: TreeFilter | null;
  }) {
    this.#system = options.system;
    this.#chmods = options.chmods;
    this.#temporaryEntries = options.temporaryEntries;
    this.#visitor = options.visitor;
    this.#top = options.top;
    this.#filter = options.filter ?? null;
  }

  /** The caller owns `root`. Errors: `file_not_regular` for a device, and converted system errors. */
  async run(root: number): Promise<WalkResult> {
    this.#filter?.prepare(root);
    const stack = new DirectoryStack({ system: this.#system, chmods: this.#chmods });
    try {
      const top = stack.enter(root, this.#top);
      if (top === null) throw new Error('the workspace cannot be opened');
      let complete = await this.#visit(top);
      for (let level = stack.innermost; level !== undefined && complete; level = stack.innermost) {
        const directory = level.directory.children[level.nextChild];
        if (directory === undefined) {
          stack.leave();
          continue;
        }
        level.nextChild += 1;
        const below = stack.enter(level.fd, directory);
        if (below === null) this.#dropChild(level, directory);
        else complete = await this.#visit(below);
      }
      return { ...this.#totals, complete, visited: this.#visited, hardLinks: this.#hardLinks };
    } finally {
      stack.closeAll();
    }
  }

  #dropChild(level: Level, directory: CachedDirectory): void {
    this.#visitor.entryVanished(level.directory, directory.name);
    level.directory.removeName(directory.name);
    level.nextChild -= 1;
  }

  /** Compares a directory and all its names with their cached state. Returns false to end the walk. */
  async #visit(level: Level): Promise<boolean> {
    const { directory, fd } = level;
    this.#visited.add(directory);
    this.#totals.directories += 1;
    const listing = readListing(this.#system, this.#temporaryEntries, fd, directory, this.#filter);
    // Read after the listing: if its ctime is old enough, so is the listing.
    this.#compareDirectory(level);
    const shouldContinue = await this.#compareNames(listing);
    storeListing(listing);
    for (const name of listing.vanished) {
      this.#visitor.entryVanished(directory, name);
      directory.removeName(name);
    }
    const pause = this.#visitor.directoryVisited(directory);
    if (pause !== undefined) await pause;
    return shouldContinue;
  }

  #compareDirectory({ directory, fd, originalFingerprint }: Level): void {
    const fingerprint = this.#fingerprint;
    this.#system.statFd(fd);
    writeFingerprint(this.#system.stat, fingerprint, 0);
    if (originalFingerprint !== null) keepModeAndCtime(fingerprint, originalFingerprint);
    if (areEqualFingerprints(fingerprint, directory.fingerprint)) return;
    this.#visitor.directoryChanged(directory, fd, fingerprint);
    directory.fingerprint.set(fingerprint);
  }

  /**
   * Compares the names of a listing. Returns false to end the walk. The rest of the listing is then only copied from its
   * cached state. Most names have not changed: for them this does one system call and allocates nothing.
   */
  async #compareNames(listing: DirectoryListing): Promise<boolean> {
    const system = this.#system;
    const { stat } = system;
    const { dirents, fingerprints, cachedNames, fd } = listing;
    const addresses = addressOfNames(system, listing);
    let shouldContinue = true;
    let index = -FINGERPRINT_WORDS;
    let sinceCheck = 0;
    for (let at = 0; at < dirents.length; at += direntLength(dirents, at)) {
      if (isDotEntry(dirents, at)) continue;
      index += FINGERPRINT_WORDS;
      if (direntType(dirents, at) === TYPE_DIRECTORY) {
        if (cachedNames !== null) this.#addChild(listing, at, dirents.readBigUInt64LE(at));
        continue;
      }
      if (cachedNames !== null) useCachedFingerprint(listing, at, index);
      if (!shouldContinue) continue;
      sinceCheck += 1;
      if (sinceCheck === NAMES_A_CHECK) {
        this.#visitor.check(this.#totals);
        sinceCheck = 0;
      }
      if (
        !system.statAt(fd, addresses === null ? system.addressOf(direntName(dirents, at)) : addresses + at)
      ) {
        listing.vanished.push(Buffer.from(direntName(dirents, at)));
        continue;
      }
      if (!matchesFingerprint(stat, fingerprints, index)) {
        if (isDirectory(stat)) {
          this.#foundDirectory(listing, at);
          continue;
        }
        const reported = this.#reportChange(listing, at, index);
        shouldContinue = typeof reported === 'boolean' ? reported : await reported;
        if (!shouldContinue) continue;
      }
      this.#count(listing, at, index);
    }
    return shouldContinue;
  }

  /** A name of unknown type, or one that became a directory during the walk. */
  #foundDirectory(listing: DirectoryListing, at: number): void {
    if (direntType(listing.dirents, at) === TYPE_UNKNOWN) this.#addChild(listing, at);
    else listing.vanished.push(Buffer.from(direntName(listing.dirents, at)));
  }

  /** Reports a new or changed entry with its stat, and stores the fingerprint that the visitor leaves. */
  #reportChange(listing: DirectoryListing, at: number, index: number): boolean | Promise<boolean> {
    const { directory, dirents, fingerprints, fd } = listing;
    const fingerprint = new Uint32Array(FINGERPRINT_WORDS);
    writeFingerprint(this.#system.stat, fingerprint, 0);
    const store = (shouldContinue: boolean): boolean => {
      if (shouldContinue) fingerprints.set(fingerprint, index);
      return shouldContinue;
    };
    const location = { directory, name: Buffer.from(direntName(dirents, at)) };
    const isAgain = isInvalidated(fingerprints, index);
    const reported = this.#visitor.entryChanged(location, fd, fingerprint, isAgain);
    return typeof reported === 'boolean' ? store(reported) : reported.then(store);
  }

  /** Counts an entry by its fingerprint. A file with several hard links counts its bytes once. */
  #count(listing: DirectoryListing, at: number, index: number): void {
    const { fingerprints } = listing;
    this.#totals.files += 1;
    const isFile = (modeOf(fingerprints, index) & S_IFMT) === S_IFREG;
    const isFirst = linksOf(fingerprints, index) <= 1 || this.#addHardLink(listing, at, index);
    if (isFile && isFirst) this.#totals.bytes += sizeOf(fingerprints, index);
  }

  /** Stores a name of a file with several hard links. True for the first name of the file. */
  #addHardLink({ directory, dirents, fingerprints }: DirectoryListing, at: number, index: number): boolean {
    const inode = inodeOf(fingerprints, index);
    const location = { directory, name: detachedCopy(direntName(dirents, at)) };
    const others = this.#hardLinks.get(inode);
    if (others === undefined) this.#hardLinks.set(inode, [location]);
    else others.push(location);
    return others === undefined;
  }

  /** Adds a child with its cached state, which is found by name or, if it was renamed, by inode. */
  #addChild(
    { directory: parent, dirents, cachedNames, children }: DirectoryListing,
    at: number,
    inode?: bigint,
  ): void {
    const name = detachedCopy(direntName(dirents, at));
    const cached = cachedNames?.get(nameKey(name))?.directory;
    const isSame = cached !== undefined && (inode === undefined || inodeOf(cached.fingerprint) === inode);
    children.push(
      isSame ? cached : (this.#renamedChild(parent, name, inode) ?? new CachedDirectory(parent, name)),
    );
  }

  /** The cached state of a directory that had another name. Null if there is none. */
  #renamedChild(parent: CachedDirectory, name: Buffer, inode: bigint | undefined): CachedDirectory | null {
    const renamed = inode === undefined ? undefined : this.#directoriesByInode().get(inode);
    // A directory that this walk has already visited was moved meanwhile, and is scanned as a new one.
    if (renamed === undefined || this.#visited.has(renamed)) return null;
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

function isDirectory(stat: Uint32Array): boolean {
  return ((stat[STAT.mode] ?? 0) & S_IFMT) === S_IFDIR;
}
