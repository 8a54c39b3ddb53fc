import { constants } from 'node:fs';
import {
  areFacts,
  areForgotten,
  areSame,
  FACT_WORDS,
  inodeOf,
  keepLent,
  linksOf,
  modeOf,
  noteFacts,
  sizeOf,
} from './facts.ts';
import { Folder, keyOf, ownCopy } from './folder.ts';
import { mayHaveOwn, type OwnEntries } from '../files/own-entries.ts';
import type { LentModes } from './lent-modes.ts';
import {
  countNames,
  hasUnknownTypes,
  isLeftOut,
  NAME_IN_RECORD,
  recordLength,
  recordName,
  recordType,
  TYPE_DIRECTORY,
  TYPE_UNKNOWN,
  withoutNames,
} from './records.ts';
import type { System } from './system.ts';
import { type Level, WayDown } from './way-down.ts';

const { S_IFDIR, S_IFMT, S_IFREG } = constants;
const NO_RECORDS = Buffer.alloc(0);
/** Names between two looks at whether the work is to end. */
const NAMES_A_CHECK = 512;

/** A name with more than one link. */
export interface LinkedName {
  readonly folder: Folder;
  readonly name: Buffer;
}

/** Names from the workspace, which has none, to this. */
export function pathOf({ folder, name }: LinkedName): Buffer[] {
  return [...folder.path(), name];
}

export interface Totals {
  files: number;
  directories: number;
  bytes: number;
}

/** What a walk tells of. */
export interface Walker {
  /**
   * A name that is no directory is new or looks otherwise than it did. `facts` are what it looks like now; what is in them
   * afterwards is what it will be known by. `isAgain`: the last look was not to be relied on (`forgetFacts`), which is why it is told of.
   * False: the walk is to end.
   */
  changed(
    place: LinkedName,
    directory: number,
    facts: Uint32Array,
    isAgain: boolean,
  ): boolean | Promise<boolean>;
  /** The same of a directory itself; `fd` is open for reading. */
  folderChanged(folder: Folder, fd: number, facts: Uint32Array): void;
  /** Every name of it was looked at. The walk goes on when it settles. */
  visited(folder: Folder): Promise<void> | undefined;
  /** A name is gone that was there a moment ago. */
  vanished(folder: Folder, name: Buffer): void;
  check(totals: Readonly<Totals>): void;
}

export interface WalkResult extends Totals {
  /** False: `changed` has ended it. */
  readonly complete: boolean;
  /** Every folder that was visited, each before those in it. */
  readonly folders: ReadonlySet<Folder>;
  /** Names of files with several of them, by inode. */
  readonly linked: ReadonlyMap<bigint, readonly LinkedName[]>;
}

/**
 * Goes through a workspace by descriptors and compares every name with what is known of it, links never followed. What it finds
 * is noted in the folders as it goes: one that is cut off leaves them right.
 */
export class Walk {
  /** A directory was found under another name: the paths of what is in it are others. */
  wasRenamed = false;
  readonly #system: System;
  readonly #lent: LentModes;
  readonly #own: OwnEntries;
  readonly #walker: Walker;
  readonly #top: Folder;
  readonly #folders = new Set<Folder>();
  readonly #linked = new Map<bigint, LinkedName[]>();
  readonly #totals: Totals = { files: 0, directories: -1, bytes: 0 };
  readonly #facts = new Uint32Array(FACT_WORDS);
  /** Folders by inode, for those that were renamed; made when it is first needed. */
  #byInode: Map<bigint, Folder> | null = null;

  constructor(options: { system: System; lent: LentModes; own: OwnEntries; walker: Walker; top: Folder }) {
    this.#system = options.system;
    this.#lent = options.lent;
    this.#own = options.own;
    this.#walker = options.walker;
    this.#top = options.top;
  }

  /** `root` stays the caller's. Errors: `file_not_regular` for a device, and those of the system, explained. */
  async run(root: number): Promise<WalkResult> {
    const way = new WayDown({ system: this.#system, lent: this.#lent });
    try {
      const top = way.enter(root, this.#top);
      if (top === null) throw new Error('the workspace cannot be opened');
      let complete = await this.#visit(top);
      for (let level = way.innermost; level !== undefined && complete; level = way.innermost) {
        const folder = level.folder.folders[level.next];
        if (folder === undefined) {
          way.leave();
          continue;
        }
        level.next += 1;
        const below = way.enter(level.fd, folder);
        if (below === null) this.#dropFolder(level, folder);
        else complete = await this.#visit(below);
      }
      return { ...this.#totals, complete, folders: this.#folders, linked: this.#linked };
    } finally {
      way.end();
    }
  }

  #dropFolder(level: Level, folder: Folder): void {
    this.#walker.vanished(level.folder, folder.name);
    level.folder.forget(folder.name);
    level.next -= 1;
  }

  /** Looks at every name of a directory; false when the walk is to end. */
  async #visit({ folder, fd, before }: Level): Promise<boolean> {
    const system = this.#system;
    const totals = this.#totals;
    this.#folders.add(folder);
    totals.directories += 1;
    const { records, isInScratch } = this.#list(fd, folder.records);
    // After the listing: a time that is old enough says that all of it is as old.
    system.statOpen(fd);
    noteFacts(system.stat, this.#facts, 0);
    if (before !== null) keepLent(this.#facts, before);
    if (!areSame(this.#facts, folder.facts)) {
      this.#walker.folderChanged(folder, fd, this.#facts);
      folder.facts.set(this.#facts);
    }
    const isSame = records === folder.records && folder.isTyped;
    const known = isSame ? null : knownNames(folder);
    const stats = isSame ? folder.stats : new Uint32Array(countNames(records) * FACT_WORDS);
    const folders: Folder[] = [];
    const gone: Buffer[] = [];
    let goesOn = true;
    let index = -FACT_WORDS;
    let sinceCheck = 0;

    for (let at = 0; at < records.length; at += recordLength(records, at)) {
      if (isLeftOut(records, at)) continue;
      index += FACT_WORDS;
      if (recordType(records, at) === TYPE_DIRECTORY) {
        if (isSame) continue;
        folders.push(this.#folderFor(folder, records, at, known));
        continue;
      }
      if (known !== null) {
        const old = known.get(keyOf(recordName(records, at)))?.index;
        if (old !== undefined) stats.set(folder.stats.subarray(old, old + FACT_WORDS), index);
      }
      if (!goesOn) continue;
      sinceCheck += 1;
      if (sinceCheck === NAMES_A_CHECK) {
        this.#walker.check(totals);
        sinceCheck = 0;
      }
      const address = isInScratch
        ? system.recordsAt + at + NAME_IN_RECORD
        : system.nameAt(recordName(records, at));
      if (!system.statAt(fd, address)) {
        gone.push(Buffer.from(recordName(records, at)));
        continue;
      }
      if (!areFacts(system.stat, stats, index)) {
        noteFacts(system.stat, this.#facts, 0);
        const name = Buffer.from(recordName(records, at));
        if ((modeOf(this.#facts) & S_IFMT) === S_IFDIR) {
          if (recordType(records, at) === TYPE_UNKNOWN) folders.push(this.#folderNamed(folder, name, known));
          else gone.push(name); // it became one just now
          continue;
        }
        const facts = this.#facts.slice();
        const went = this.#walker.changed({ folder, name }, fd, facts, areForgotten(stats, index));
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
        const name = { folder, name: ownCopy(recordName(records, at)) };
        if (names !== undefined) names.push(name);
        else {
          this.#linked.set(inode, [name]);
          if (isFile) totals.bytes += sizeOf(stats, index);
        }
      } else if (isFile) totals.bytes += sizeOf(stats, index);
    }
    if (!isSame) {
      folder.records = records;
      folder.stats = stats;
      folder.folders = folders;
      folder.isTyped = !hasUnknownTypes(records);
      folder.isDirty = true;
      folder.areNamesNew = true;
    }
    for (const name of gone) {
      this.#walker.vanished(folder, name);
      folder.forget(name);
    }
    const rest = this.#walker.visited(folder);
    if (rest !== undefined) await rest;
    return goesOn;
  }

  /** All names of an open directory but those of our own. The very buffer that is known where they are the same. */
  #list(fd: number, known: Buffer): { records: Buffer; isInScratch: boolean } {
    const scratch = this.#system.records;
    const first = this.#system.list(fd);
    if (first === 0) return { records: known.length === 0 ? known : NO_RECORDS, isInScratch: false };
    const isKnown = first === known.length && scratch.compare(known, 0, first, 0, first) === 0;
    const parts = [isKnown ? known : ownCopy(scratch.subarray(0, first))];
    for (let more = this.#system.list(fd); more > 0; more = this.#system.list(fd)) {
      parts.push(ownCopy(scratch.subarray(0, more)));
    }
    const listed = parts.length === 1 ? (parts[0] ?? NO_RECORDS) : Buffer.concat(parts);
    // Names of our own operations under way are no part of the workspace. What is known has none of them.
    const isOurs = (name: Buffer): boolean => this.#own.isOurs(fd, name);
    const records = listed !== known && mayHaveOwn(listed) ? withoutNames(listed, isOurs) : listed;
    const isInScratch = parts.length === 1 && records === listed;
    return { records: records !== known && records.equals(known) ? known : records, isInScratch };
  }

  #folderFor(parent: Folder, records: Buffer, at: number, known: KnownNames | null): Folder {
    return this.#folderNamed(parent, ownCopy(recordName(records, at)), known, records.readBigUInt64LE(at));
  }

  /** What is known of a directory by its name, or, if it was renamed, by its inode. */
  #folderNamed(parent: Folder, name: Buffer, known: KnownNames | null, inode?: bigint): Folder {
    const before = known?.get(keyOf(name))?.folder;
    if (before !== undefined && (inode === undefined || inodeOf(before.facts) === inode)) return before;
    const moved = inode === undefined ? undefined : this.#knownByInode().get(inode);
    // One that was seen already has been moved just now: it is looked at as if it were new.
    if (moved === undefined || this.#folders.has(moved)) return new Folder(parent, name);
    this.#knownByInode().delete(inodeOf(moved.facts));
    moved.parent = parent;
    moved.name = name;
    moved.entry = { ...moved.entry, name };
    this.wasRenamed = true;
    return moved;
  }

  #knownByInode(): Map<bigint, Folder> {
    if (this.#byInode === null) {
      this.#byInode = new Map();
      for (const folder of this.#top.all()) this.#byInode.set(inodeOf(folder.facts), folder);
    }
    return this.#byInode;
  }
}

type KnownNames = ReadonlyMap<string, { readonly index: number; readonly folder: Folder | undefined }>;

function knownNames(folder: Folder): KnownNames {
  const known = new Map<string, { index: number; folder: Folder | undefined }>();
  const folders = new Map(folder.folders.map((below) => [keyOf(below.name), below]));
  let index = 0;
  for (let at = 0; at < folder.records.length; at += recordLength(folder.records, at)) {
    if (isLeftOut(folder.records, at)) continue;
    const key = keyOf(recordName(folder.records, at));
    known.set(key, { index, folder: folders.get(key) });
    index += FACT_WORDS;
  }
  return known;
}
