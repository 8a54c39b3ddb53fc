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
/** Names between two looks at whether the work is to end. */
const NAMES_A_CHECK = 512;

/** A name with more than one link. */
export interface EntryLocation {
  readonly folder: CachedDirectory;
  readonly name: Buffer;
}

/** Names from the workspace, which has none, to this. */
export function pathOf({ folder, name }: EntryLocation): Buffer[] {
  return [...folder.path(), name];
}

export interface Totals {
  files: number;
  directories: number;
  bytes: number;
}

/** What a walk tells of. */
export interface WalkVisitor {
  /**
   * A name that is no directory is new or looks otherwise than it did. `facts` are what it looks like now; what is in them
   * afterwards is what it will be known by. `isAgain`: the last look was not to be relied on (`forgetFacts`), which is why it is told of.
   * False: the walk is to end.
   */
  entryChanged(
    place: EntryLocation,
    directory: number,
    facts: Uint32Array,
    isAgain: boolean,
  ): boolean | Promise<boolean>;
  /** The same of a directory itself; `fd` is open for reading. */
  directoryChanged(folder: CachedDirectory, fd: number, facts: Uint32Array): void;
  /** Every name of it was looked at. The walk goes on when it settles. */
  directoryVisited(folder: CachedDirectory): Promise<void> | undefined;
  /** A name is gone that was there a moment ago. */
  entryVanished(folder: CachedDirectory, name: Buffer): void;
  check(totals: Readonly<Totals>): void;
}

export interface WalkResult extends Totals {
  /** False: `changed` has ended it. */
  readonly complete: boolean;
  /** Every folder that was visited, each before those in it. */
  readonly visited: ReadonlySet<CachedDirectory>;
  /** Names of files with several of them, by inode. */
  readonly hardLinks: ReadonlyMap<bigint, readonly EntryLocation[]>;
}

/**
 * Goes through a workspace by descriptors and compares every name with what is known of it, links never followed. What it finds
 * is noted in the folders as it goes: one that is cut off leaves them right.
 */
export class Walk {
  /** A directory was found under another name: the paths of what is in it are others. */
  wasRenamed = false;
  readonly #system: SystemCalls;
  readonly #lent: TemporaryChmods;
  readonly #own: TemporaryEntries;
  readonly #walker: WalkVisitor;
  readonly #top: CachedDirectory;
  readonly #folders = new Set<CachedDirectory>();
  readonly #linked = new Map<bigint, EntryLocation[]>();
  readonly #totals: Totals = { files: 0, directories: -1, bytes: 0 };
  readonly #facts = new Uint32Array(FINGERPRINT_WORDS);
  /** Folders by inode, for those that were renamed; made when it is first needed. */
  #byInode: Map<bigint, CachedDirectory> | null = null;

  constructor(options: {
    system: SystemCalls;
    lent: TemporaryChmods;
    own: TemporaryEntries;
    walker: WalkVisitor;
    top: CachedDirectory;
  }) {
    this.#system = options.system;
    this.#lent = options.lent;
    this.#own = options.own;
    this.#walker = options.walker;
    this.#top = options.top;
  }

  /** `root` stays the caller's. Errors: `file_not_regular` for a device, and those of the system, explained. */
  async run(root: number): Promise<WalkResult> {
    const way = new DirectoryStack({ system: this.#system, lent: this.#lent });
    try {
      const top = way.enter(root, this.#top);
      if (top === null) throw new Error('the workspace cannot be opened');
      let complete = await this.#visit(top);
      for (let level = way.innermost; level !== undefined && complete; level = way.innermost) {
        const folder = level.folder.children[level.nextChild];
        if (folder === undefined) {
          way.leave();
          continue;
        }
        level.nextChild += 1;
        const below = way.enter(level.fd, folder);
        if (below === null) this.#dropFolder(level, folder);
        else complete = await this.#visit(below);
      }
      return { ...this.#totals, complete, visited: this.#folders, hardLinks: this.#linked };
    } finally {
      way.closeAll();
    }
  }

  #dropFolder(level: Level, folder: CachedDirectory): void {
    this.#walker.entryVanished(level.folder, folder.name);
    level.folder.removeName(folder.name);
    level.nextChild -= 1;
  }

  /** Looks at every name of a directory; false when the walk is to end. */
  async #visit({ folder, fd, originalFingerprint }: Level): Promise<boolean> {
    const system = this.#system;
    const totals = this.#totals;
    this.#folders.add(folder);
    totals.directories += 1;
    const { records, isInScratch } = this.#list(fd, folder.dirents);
    // After the listing: a time that is old enough says that all of it is as old.
    system.statFd(fd);
    writeFingerprint(system.stat, this.#facts, 0);
    if (originalFingerprint !== null) keepModeAndCtime(this.#facts, originalFingerprint);
    if (!areEqualFingerprints(this.#facts, folder.fingerprint)) {
      this.#walker.directoryChanged(folder, fd, this.#facts);
      folder.fingerprint.set(this.#facts);
    }
    const isSame = records === folder.dirents && folder.hasKnownTypes;
    const known = isSame ? null : knownNames(folder);
    const stats = isSame ? folder.fingerprints : new Uint32Array(countDirents(records) * FINGERPRINT_WORDS);
    const folders: CachedDirectory[] = [];
    const gone: Buffer[] = [];
    let goesOn = true;
    let index = -FINGERPRINT_WORDS;
    let sinceCheck = 0;

    for (let at = 0; at < records.length; at += direntLength(records, at)) {
      if (isDotEntry(records, at)) continue;
      index += FINGERPRINT_WORDS;
      if (direntType(records, at) === TYPE_DIRECTORY) {
        if (isSame) continue;
        folders.push(this.#folderFor(folder, records, at, known));
        continue;
      }
      if (known !== null) {
        const old = known.get(nameKey(direntName(records, at)))?.index;
        if (old !== undefined) stats.set(folder.fingerprints.subarray(old, old + FINGERPRINT_WORDS), index);
      }
      if (!goesOn) continue;
      sinceCheck += 1;
      if (sinceCheck === NAMES_A_CHECK) {
        this.#walker.check(totals);
        sinceCheck = 0;
      }
      const address = isInScratch
        ? system.direntBufferAddress + at + DIRENT_NAME_OFFSET
        : system.addressOf(direntName(records, at));
      if (!system.statAt(fd, address)) {
        gone.push(Buffer.from(direntName(records, at)));
        continue;
      }
      if (!matchesFingerprint(system.stat, stats, index)) {
        writeFingerprint(system.stat, this.#facts, 0);
        const name = Buffer.from(direntName(records, at));
        if ((modeOf(this.#facts) & S_IFMT) === S_IFDIR) {
          if (direntType(records, at) === TYPE_UNKNOWN) folders.push(this.#folderNamed(folder, name, known));
          else gone.push(name); // it became one just now
          continue;
        }
        const facts = this.#facts.slice();
        const went = this.#walker.entryChanged({ folder, name }, fd, facts, isInvalidated(stats, index));
        goesOn = typeof went === 'boolean' ? went : await went;
        if (!goesOn) continue;
        stats.set(facts, index);
      }
      totals.files += 1;
      const links = linksOf(stats, index);
      const isFile = (modeOf(stats, index) & S_IFMT) === S_IFREG;
      if (links > 1) {
        const inode = inodeOf(stats, index);
        const names = this.#linked.get(inode);
        const name = { folder, name: detachedCopy(direntName(records, at)) };
        if (names !== undefined) names.push(name);
        else {
          this.#linked.set(inode, [name]);
          if (isFile) totals.bytes += sizeOf(stats, index);
        }
      } else if (isFile) totals.bytes += sizeOf(stats, index);
    }
    if (!isSame) {
      folder.dirents = records;
      folder.fingerprints = stats;
      folder.children = folders;
      folder.hasKnownTypes = !hasUnknownTypes(records);
      folder.isDirty = true;
      folder.haveNamesChanged = true;
    }
    for (const name of gone) {
      this.#walker.entryVanished(folder, name);
      folder.removeName(name);
    }
    const rest = this.#walker.directoryVisited(folder);
    if (rest !== undefined) await rest;
    return goesOn;
  }

  /** All names of an open directory but those of our own. The very buffer that is known where they are the same. */
  #list(fd: number, known: Buffer): { records: Buffer; isInScratch: boolean } {
    const scratch = this.#system.direntBuffer;
    const first = this.#system.readDirents(fd);
    if (first === 0) return { records: known.length === 0 ? known : NO_RECORDS, isInScratch: false };
    const isKnown = first === known.length && scratch.compare(known, 0, first, 0, first) === 0;
    const parts = [isKnown ? known : detachedCopy(scratch.subarray(0, first))];
    for (let more = this.#system.readDirents(fd); more > 0; more = this.#system.readDirents(fd)) {
      parts.push(detachedCopy(scratch.subarray(0, more)));
    }
    const listed = parts.length === 1 ? (parts[0] ?? NO_RECORDS) : Buffer.concat(parts);
    // Names of our own operations under way are no part of the workspace. What is known has none of them.
    const isOurs = (name: Buffer): boolean => this.#own.isTemporary(fd, name);
    const records =
      listed !== known && mayContainTemporaryNames(listed) ? withoutDirents(listed, isOurs) : listed;
    const isInScratch = parts.length === 1 && records === listed;
    return { records: records !== known && records.equals(known) ? known : records, isInScratch };
  }

  #folderFor(
    parent: CachedDirectory,
    records: Buffer,
    at: number,
    known: KnownNames | null,
  ): CachedDirectory {
    return this.#folderNamed(
      parent,
      detachedCopy(direntName(records, at)),
      known,
      records.readBigUInt64LE(at),
    );
  }

  /** What is known of a directory by its name, or, if it was renamed, by its inode. */
  #folderNamed(
    parent: CachedDirectory,
    name: Buffer,
    known: KnownNames | null,
    inode?: bigint,
  ): CachedDirectory {
    const before = known?.get(nameKey(name))?.folder;
    if (before !== undefined && (inode === undefined || inodeOf(before.fingerprint) === inode)) return before;
    const moved = inode === undefined ? undefined : this.#knownByInode().get(inode);
    // One that was seen already has been moved just now: it is looked at as if it were new.
    if (moved === undefined || this.#folders.has(moved)) return new CachedDirectory(parent, name);
    this.#knownByInode().delete(inodeOf(moved.fingerprint));
    moved.parent = parent;
    moved.name = name;
    moved.entry = { ...moved.entry, name };
    this.wasRenamed = true;
    return moved;
  }

  #knownByInode(): Map<bigint, CachedDirectory> {
    if (this.#byInode === null) {
      this.#byInode = new Map();
      for (const folder of this.#top.withDescendants())
        this.#byInode.set(inodeOf(folder.fingerprint), folder);
    }
    return this.#byInode;
  }
}

type KnownNames = ReadonlyMap<
  string,
  { readonly index: number; readonly folder: CachedDirectory | undefined }
>;

function knownNames(folder: CachedDirectory): KnownNames {
  const known = new Map<string, { index: number; folder: CachedDirectory | undefined }>();
  const folders = new Map(folder.children.map((below) => [nameKey(below.name), below]));
  let index = 0;
  for (let at = 0; at < folder.dirents.length; at += direntLength(folder.dirents, at)) {
    if (isDotEntry(folder.dirents, at)) continue;
    const key = nameKey(direntName(folder.dirents, at));
    known.set(key, { index, folder: folders.get(key) });
    index += FINGERPRINT_WORDS;
  }
  return known;
}
