import { createHash } from 'node:crypto';
import { closeSync, constants, openSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { encodeRoot, type ExtendedAttribute, type TreeEntry } from '../../protocol/snapshots/entries.ts';
import { type Hash, OBJECT_KINDS, SNAPSHOT_LIMITS } from '../../protocol/snapshots/objects.ts';
import { buildRef, type Piece } from '../../protocol/snapshots/refs.ts';
import { errnoOf } from '../files/directory.ts';
import { explained } from '../files/failures.ts';
import { O_PATH } from '../files/resolver.ts';
import { type Content, readContent, readSmall } from './content.ts';
import {
  areSame,
  ctimeOf,
  FACT_WORDS,
  forgetFacts,
  inodeOf,
  isSameFile,
  linksOf,
  modeOf,
  mtimeOf,
  noteFacts,
  sizeOf,
} from './facts.ts';
import type { Folder } from './folder.ts';
import { piecesOf } from './folder-pieces.ts';
import { keyOf, ownCopy } from './folder.ts';
import type { GiveBack, LentModes } from './lent-modes.ts';
import type { ObjectOutlet } from './outbox.ts';
import { areSameEntries, groupOf } from './same.ts';
import { isGone, LOOK_FLAGS, STAT, type System } from './system.ts';
import { nextTick, surelyLater } from './tick.ts';
import { type LinkedName, type Totals, Walk, type Walker, type WalkResult } from './walk.ts';

const { O_NOFOLLOW, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK } = constants;
const OWNER_READS = 0o400;
const PERMISSIONS = 0o7777;
/** How often a file that changes while it is read is read again. */
const READS = 3;
/**
 * A workspace of so many files is looked through twice in less time than it would take to wait for a tick of the clock again and again; so
 * many entries wait for their folder to be encoded as they are, as bytes are not made of them twice then.
 */
const SMALL = 5000;
const { groupBytes } = SNAPSHOT_LIMITS;
/**
 * Nanoseconds after the change time of a file in which its bytes may still be on their way: a write notes its time first. On a busy machine
 * those of one call with 4 MB came up to 70 ms later. More than the most is not waited for: large files would be read time and again.
 */
const UNDER_WAY = { least: 100_000_000, aByte: 15, most: 2_000_000_000 } as const;

export interface ScanOptions {
  readonly system: System;
  readonly lent: LentModes;
  /** Descriptor of the workspace; O_PATH is enough. */
  readonly root: number;
  readonly known: Folder;
  /** Names of files with several at the last scan; null where that is not known. */
  readonly linkedBefore: number | null;
  /** How many there were at the last look; 0 where that is not known. */
  readonly filesBefore: number;
  readonly outlet: ObjectOutlet;
  readonly budgetBytes: number | null;
  readonly frozen: boolean;
  readonly check: (totals: Readonly<Totals>) => void;
}

interface OpenFile {
  readonly fd: number;
  /** As it was before it was lent. */
  readonly mode: number;
  readonly giveBack: GiveBack | null;
}

export interface Scanned extends Totals {
  /** Null where it was not complete. */
  readonly root: Hash | null;
  readonly changedFiles: number;
  readonly changedBytes: number;
  readonly readMs: number;
  readonly moved: boolean;
  readonly walk: WalkResult;
}

/** One look through the workspace: what has changed is read, cut into objects, and noted in `known`. */
export class Scan implements Walker {
  readonly #options: ScanOptions;
  #begun: bigint;
  readonly #linkedNames: { count: number; changed: boolean } = { count: 0, changed: false };
  /** When files that were lent were given back. */
  readonly #givenBack = new Map<ReturnType<typeof inodeOf>, bigint>();
  /** What an open file looked like last. */
  readonly #now = new Uint32Array(FACT_WORDS);
  /** What was known of the names of the folder in which something was looked at again last. */
  #entries: { readonly folder: Folder; readonly encoded: ReadonlyMap<string, TreeEntry> } | null = null;
  #budget: number;
  /** Entries that are among those that have changed: one that is read in both of two looks is one. */
  readonly #counted = new Set<TreeEntry>();
  #changedFiles = 0;
  #changedBytes = 0;
  #readMs = 0;
  #moved = false;
  /** Of something that has changed it is known that it did so after the begin. */
  #isSure = false;
  /** What has this time, or a later one, was surely not there before the begin. */
  #surely = 0n;
  #wasRenamed = false;

  constructor(options: ScanOptions) {
    this.#options = options;
    this.#budget = options.budgetBytes ?? Number.POSITIVE_INFINITY;
    this.#begun = options.system.fileClock();
  }

  async run(): Promise<Scanned> {
    const { system, linkedBefore, filesBefore, frozen } = this.#options;
    const isSmall = filesBefore > 0 && filesBefore <= SMALL;
    // Else what was written just before would look as if it were written meanwhile, and an agent be frozen for nothing.
    if (!frozen && !isSmall) this.#begun = await nextTick(system);
    this.#surely = surelyLater();
    let walk = await this.#walk();
    if (!frozen && isSmall && walk.complete && this.#moved && !this.#isSure) {
      // Before or after, by their times nobody can tell: a look that begins now can.
      this.#begun = await nextTick(system);
      this.#moved = false;
      this.#entries = null;
      walk = await this.#walk();
    }
    let hash: Hash | null = null;
    if (walk.complete) {
      let linked = 0;
      for (const names of walk.linked.values()) linked += names.length;
      this.#linkedNames.count = linked;
      if (this.#linkedNames.changed || this.#wasRenamed || linked !== linkedBefore) this.#group(walk);
      this.#options.outlet.begin();
      hash = await this.#encode(walk);
    }
    const { files, directories, bytes } = walk;
    return {
      files,
      directories,
      bytes,
      root: hash,
      changedFiles: this.#changedFiles,
      changedBytes: this.#changedBytes,
      readMs: this.#readMs,
      moved: this.#moved,
      walk,
    };
  }

  async #walk(): Promise<WalkResult> {
    const { system, lent, known, root } = this.#options;
    const tour = new Walk({ system, lent, walker: this, top: known });
    const walk = await tour.run(root);
    if (tour.wasRenamed) this.#wasRenamed = true;
    return walk;
  }

  check(totals: Readonly<Totals>): void {
    this.#options.check(totals);
  }

  vanished(folder: Folder, name: Buffer): void {
    this.#movedAt([...folder.path(), name]);
  }

  visited(folder: Folder): Promise<void> | undefined {
    if (this.#changedFiles > SMALL) {
      folder.compact();
      this.#counted.clear();
    }
    const { outlet } = this.#options;
    return outlet.isFull ? outlet.flush() : undefined;
  }

  folderChanged(folder: Folder, fd: number, facts: Uint32Array): void {
    this.#noteTime(facts);
    folder.entry = {
      ...folder.entry,
      mode: modeOf(facts) & PERMISSIONS,
      mtimeNs: mtimeOf(facts),
      xattrs: this.#checkedXattrs(this.#options.system.xattrs(fd), () => folder.path()),
    };
    folder.isEntryNew = true;
    this.#settle(facts);
  }

  /** At once where it can be: most files are small, and waiting costs as much as reading them. */
  changed(
    place: LinkedName,
    directory: number,
    facts: Uint32Array,
    isAgain: boolean,
  ): boolean | Promise<boolean> {
    const isFile = (modeOf(facts) & S_IFMT) === S_IFREG;
    if (isFile) {
      if (sizeOf(facts) > this.#budget) return false;
      this.#budget -= sizeOf(facts);
    }
    this.#noteTime(facts);
    if (linksOf(facts) > 1) this.#linkedNames.changed = true;
    const began = performance.now();
    try {
      const entry = isFile ? this.#fileOf(place, directory, facts) : this.#entryOf(place, directory, facts);
      if (entry instanceof Promise) return this.#noteLater(place, entry, facts, isAgain, began);
      this.#note(place, entry, facts, isAgain);
    } catch (error) {
      throw explained(error, formatPath(pathOf(place)));
    }
    this.#readMs += performance.now() - began;
    return this.#options.outlet.isFull ? this.#flush() : true;
  }

  async #noteLater(
    place: LinkedName,
    entry: Promise<TreeEntry | null>,
    facts: Uint32Array,
    isAgain: boolean,
    began: number,
  ): Promise<true> {
    try {
      this.#note(place, await entry, facts, isAgain);
    } catch (error) {
      throw explained(error, formatPath(pathOf(place)));
    }
    this.#readMs += performance.now() - began;
    return await this.#flush();
  }

  async #flush(): Promise<true> {
    const { outlet } = this.#options;
    const began = performance.now();
    if (outlet.isFull) await outlet.flush();
    this.#readMs += performance.now() - began;
    return true;
  }

  #note(place: LinkedName, entry: TreeEntry | null, facts: Uint32Array, isAgain: boolean): void {
    const { folder, name } = place;
    if (entry === null) {
      this.#movedAt(pathOf(place));
      return;
    }
    if (isAgain && linksOf(facts) === 1 && this.#isKnown(folder, entry)) return;
    const key = keyOf(name);
    const before = folder.changed.get(key);
    folder.changed.set(key, entry);
    folder.isDirty = true;
    const isCounted = before !== undefined && this.#counted.delete(before);
    this.#counted.add(entry);
    if (!isCounted) this.#changedFiles += 1;
    this.#changedBytes += bytesOf(entry) - (isCounted ? bytesOf(before) : 0);
  }

  /** As it was made of the same name before. */
  #isKnown(folder: Folder, entry: TreeEntry): boolean {
    if (this.#entries?.folder !== folder) this.#entries = { folder, encoded: folder.encoded() };
    const known = this.#entries.encoded.get(keyOf(entry.name));
    return known !== undefined && areSameEntries(entry, known);
  }

  /** Of what is no regular file. Null when it is something else by now; then it will be looked at again. */
  #entryOf(place: LinkedName, directory: number, facts: Uint32Array): TreeEntry | null {
    const { name } = place;
    const basics = {
      name,
      mode: modeOf(facts) & PERMISSIONS,
      mtimeNs: mtimeOf(facts),
      xattrs: [],
      group: null,
    };
    switch (modeOf(facts) & S_IFMT) {
      case S_IFLNK: {
        const target = this.#linkText(directory, name);
        if (target === null) return null;
        this.#settle(facts);
        return { ...basics, type: 'symlink', target };
      }
      case S_IFIFO:
        return { ...basics, type: 'fifo' };
      case S_IFSOCK:
        return { ...basics, type: 'socket' };
      case S_IFDIR:
        return null;
      default:
        throw new HoldfastError('file_not_regular', `${formatPath(pathOf(place))} cannot be in a snapshot`, {
          why: 'it is a device',
          next: 'remove it',
        });
    }
  }

  /** Null when it is no link any more. */
  #linkText(directory: number, name: Buffer): Buffer | null {
    const { system } = this.#options;
    try {
      return system.readLinkAt(directory, system.nameAt(name));
    } catch (error) {
      if (isGone(error) || errnoOf(error) === 'EINVAL') return null;
      throw error;
    }
  }

  /** Null as with `#entryOf`. Later where it takes longer, or changes while it is read. */
  #fileOf(
    place: LinkedName,
    directory: number,
    facts: Uint32Array,
  ): TreeEntry | null | Promise<TreeEntry | null> {
    const { system, outlet } = this.#options;
    const open = this.#openFile(place, directory, facts);
    if (open === null) return null;
    const { fd } = open;
    let isOurs = true;
    try {
      if (open.giveBack === null) {
        // What `#openFile` saw is what it is now; the clock is read before the content is.
        const blocks = system.stat[STAT.blocks] ?? 0;
        const clock = system.fileClock();
        facts.set(this.#now);
        const xattrs = this.#checkedXattrs(system.xattrs(fd), () => pathOf(place));
        const content = readSmall(
          system,
          fd,
          { size: sizeOf(facts), blocks, hasXattrs: xattrs.length > 0 },
          outlet,
        );
        if (content !== null) {
          this.#look(fd);
          if (areSame(this.#now, facts)) {
            this.#noteTime(facts);
            return this.#fileEntry(place, open, facts, { xattrs, content, clock });
          }
        }
      }
      isOurs = false;
      return this.#slowFileOf(place, open, facts);
    } finally {
      if (isOurs) system.close(fd);
    }
  }

  /** Takes the descriptor over. */
  async #slowFileOf(place: LinkedName, open: OpenFile, facts: Uint32Array): Promise<TreeEntry> {
    const { system, outlet } = this.#options;
    const { fd } = open;
    try {
      let xattrs: readonly ExtendedAttribute[];
      try {
        xattrs = this.#checkedXattrs(system.xattrs(fd), () => pathOf(place));
      } finally {
        open.giveBack?.(fd);
      }
      for (let tries = 1; ; tries += 1) {
        const blocks = this.#look(fd);
        const clock = system.fileClock();
        facts.set(this.#now);
        if (open.giveBack !== null) this.#givenBack.set(inodeOf(facts), ctimeOf(facts));
        const content: Content = await readContent(
          system,
          fd,
          { size: sizeOf(facts), blocks, hasXattrs: xattrs.length > 0 },
          outlet,
          async () => {
            this.#options.check(NO_TOTALS);
            if (outlet.isFull) await outlet.flush();
          },
        );
        this.#look(fd);
        const isSteady = areSame(this.#now, facts);
        if (!isSteady && tries < READS) continue;
        if (!isSteady) this.#movedAt(pathOf(place));
        this.#noteTime(facts);
        if (tries > 1) this.#moved = this.#isSure = true;
        const entry = this.#fileEntry(place, open, facts, { xattrs, content, clock });
        if (!isSteady) forgetFacts(facts, 0);
        return entry;
      }
    } finally {
      system.close(fd);
    }
  }

  #fileEntry(
    { name }: LinkedName,
    { mode }: OpenFile,
    facts: Uint32Array,
    read: {
      readonly xattrs: readonly ExtendedAttribute[];
      readonly content: Content;
      readonly clock: bigint;
    },
  ): TreeEntry {
    const { size, sparse, content } = read.content;
    const mtimeNs = mtimeOf(facts);
    // A change within the same tick of the clock as the last one would leave the same time, and so do the bytes of a write that is
    // under way: it is read again the next time.
    if (ctimeOf(facts) + underWay(size) >= read.clock) forgetFacts(facts, 0);
    return { name, mode, mtimeNs, xattrs: read.xattrs, group: null, type: 'file', size, sparse, content };
  }

  /** What an open file looks like goes into `#now`. Gives its blocks. */
  #look(fd: number): number {
    const { system } = this.#options;
    system.statOpen(fd);
    noteFacts(system.stat, this.#now, 0);
    return system.stat[STAT.blocks] ?? 0;
  }

  /** What it looks like is in `#now` then. */
  #openFile(place: LinkedName, directory: number, facts: Uint32Array): OpenFile | null {
    const { system, lent } = this.#options;
    const { name } = place;
    const mode = modeOf(facts) & PERMISSIONS;
    let fd: number;
    let giveBack: GiveBack | null = null;
    try {
      fd = system.openAt(directory, system.nameAt(name), LOOK_FLAGS);
    } catch (error) {
      if (isGone(error) || errnoOf(error) === 'ENXIO') return null;
      if (errnoOf(error) !== 'EACCES' || (mode & OWNER_READS) !== 0) throw error;
      let named: number;
      try {
        named = system.openAt(directory, system.nameAt(name), O_PATH | O_NOFOLLOW);
      } catch (cause) {
        if (isGone(cause)) return null;
        throw cause;
      }
      try {
        if (!this.#isThat(named, facts)) return null;
        giveBack = lent.lend(named, pathOf(place), OWNER_READS);
        fd = openSync(`/proc/self/fd/${named}`, LOOK_FLAGS & ~O_NOFOLLOW);
      } catch (cause) {
        giveBack?.(named);
        throw cause;
      } finally {
        closeSync(named);
      }
    }
    if (this.#isThat(fd, facts)) return { fd, mode, giveBack };
    giveBack?.(fd);
    system.close(fd);
    return null;
  }

  /** Whether the descriptor leads to the file that was looked at. */
  #isThat(fd: number, facts: Uint32Array): boolean {
    this.#look(fd);
    return isSameFile(this.#now, facts);
  }

  /** What was looked at within the last tick of the clock is looked at again the next time. */
  #settle(facts: Uint32Array): void {
    if (ctimeOf(facts) >= this.#begun) forgetFacts(facts, 0);
  }

  #checkedXattrs(xattrs: ExtendedAttribute[], path: () => readonly Buffer[]): ExtendedAttribute[] {
    if (xattrs.length === 0) return xattrs;
    const bytes = xattrs.reduce((sum, { name, value }) => sum + name.length + value.length + 8, 0);
    if (bytes > SNAPSHOT_LIMITS.entryBytes / 2) {
      throw new HoldfastError('file_too_large', `${formatPath(path())} cannot be in a snapshot`, {
        why: 'its extended attributes are larger than a snapshot can hold',
      });
    }
    return xattrs;
  }

  /** Somebody changed it since the look began, unless it was we who gave it back then, which all names of a file show. */
  #noteTime(facts: Uint32Array): void {
    const changedAt = ctimeOf(facts);
    if (changedAt < this.#begun || this.#givenBack.get(inodeOf(facts)) === changedAt) return;
    this.#moved = true;
    if (changedAt >= this.#surely) this.#isSure = true;
  }

  #movedAt(path: readonly Buffer[]): void {
    this.#moved = this.#isSure = true;
    if (!this.#options.frozen) return;
    throw new HoldfastError('file_unavailable', 'The workspace could not be read as it is at one moment', {
      why: `${formatPath(path)} changed meanwhile`,
      next: 'try again',
    });
  }

  /** Gives the names of one file what they have in common. */
  #group({ linked }: WalkResult): void {
    const parsed = new Map<Folder, Map<string, TreeEntry>>();
    for (const names of linked.values()) {
      const group = names.length > 1 ? groupName(names) : null;
      for (const { folder, name } of names) {
        const key = keyOf(name);
        let entries = parsed.get(folder);
        if (entries === undefined) parsed.set(folder, (entries = folder.encoded()));
        const entry = entries.get(key);
        if (entry === undefined || entry.type === 'directory') continue;
        const before = groupOf(entry);
        if (before === null ? group === null : group !== null && before.equals(group)) continue;
        folder.changed.set(key, { ...entry, group });
        folder.isDirty = true;
      }
    }
  }

  /** From the innermost folders outwards. */
  async #encode({ folders }: WalkResult): Promise<Hash> {
    const { outlet, known } = this.#options;
    for (const folder of [...folders].reverse()) {
      const fresh = folder.folders.filter((below) => below.isEntryNew);
      if (fresh.length > 0) folder.isDirty = true;
      if (!folder.isDirty) continue;
      this.#encodeFolder(folder, fresh);
      for (const below of fresh) below.isEntryNew = false;
      if (outlet.isFull) await outlet.flush();
      this.#options.check(NO_TOTALS);
    }
    known.isEntryNew = false;
    return outlet.add(OBJECT_KINDS.root, encodeRoot(known.entry), hashesOf(known.entry));
  }

  /** `fresh`: folders in it whose entries are not as they were. */
  #encodeFolder(folder: Folder, fresh: readonly Folder[]): void {
    const { outlet } = this.#options;
    const bodies = piecesOf(folder, fresh);
    // Which piece of several names what is not worth finding out.
    const names =
      bodies.length > 1
        ? []
        : [...folder.changed.values(), ...fresh.map(({ entry }) => entry)].flatMap(hashesOf);
    const pieces: Piece[] = bodies.map((body, index) => ({
      index,
      hash: outlet.add(OBJECT_KINDS.tree, body, names),
    }));
    const content = buildRef(pieces, (kind, body) => outlet.add(kind, body));
    const entry = { ...folder.entry, content };
    if (!areSameEntries(entry, folder.entry)) folder.isEntryNew = true;
    folder.entry = entry;
    folder.body = ownCopy(bodies.length === 1 ? (bodies[0] ?? NOTHING) : Buffer.concat(bodies));
    folder.changed.clear();
    folder.pending = NOTHING;
    folder.isDirty = false;
    folder.areNamesNew = false;
  }
}

const NOTHING: Buffer = Buffer.alloc(0);
function pathOf({ folder, name }: LinkedName): Buffer[] {
  return [...folder.path(), name];
}

function underWay(bytes: number): bigint {
  return BigInt(Math.min(UNDER_WAY.least + bytes * UNDER_WAY.aByte, UNDER_WAY.most));
}

function bytesOf(entry: TreeEntry): number {
  return entry.type === 'file' ? entry.size : 0;
}

function hashesOf(entry: TreeEntry): Hash[] {
  return entry.type === 'file' || entry.type === 'directory'
    ? entry.content.items.map(({ hash }) => hash)
    : [];
}

const NO_TOTALS: Totals = { files: 0, directories: 0, bytes: 0 };

/** Of the bytewise first of a file's paths. */
function groupName(names: readonly LinkedName[]): Buffer {
  const paths = names.map(({ folder, name }) => joined([...folder.path(), name]));
  const [first] = paths.sort((one, other) => one.compare(other));
  return createHash('sha256')
    .update(first ?? '')
    .digest()
    .subarray(0, groupBytes);
}

function joined(names: readonly Buffer[]): Buffer {
  const slash = Buffer.from('/');
  return Buffer.concat(names.flatMap((name, index) => (index === 0 ? [name] : [slash, name])));
}
