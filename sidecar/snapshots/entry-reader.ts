import { closeSync, constants, openSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import type { DirectoryEntry, ExtendedAttribute, TreeEntry } from '../../snapshot-format/entries.ts';
import { SNAPSHOT_LIMITS } from '../../snapshot-format/objects.ts';
import { errnoOf } from '../files/directory.ts';
import { O_PATH } from '../files/resolver.ts';
import { type Content, readContent, readSmall } from './content.ts';
import {
  areEqualFingerprints,
  ctimeOf,
  FINGERPRINT_WORDS,
  invalidateFingerprint,
  isSameFile,
  linksOf,
  modeOf,
  mtimeOf,
  writeFingerprint,
  sizeOf,
} from './fingerprint.ts';
import type { CachedDirectory } from './cached-directory.ts';
import type { HardLinkContents } from './hard-link-contents.ts';
import type { RestoreMode, TemporaryChmods } from './temporary-chmods.ts';
import type { ConsistencyCheck } from './consistency-check.ts';
import type { ObjectSink } from './upload-queue.ts';
import { isGone, SAFE_OPEN_FLAGS, STAT, type SystemCalls } from './system-calls.ts';
import { type EntryLocation, pathOf } from './walk.ts';

const { O_NOFOLLOW, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFSOCK } = constants;
const OWNER_READS = 0o400;
const PERMISSIONS = 0o7777;
/** Of `STAT.blocks`. */
const BLOCK_BYTES = 512;
/** How often a file that changes while it is read is read again. */
const READS = 3;
/**
 * Nanoseconds after the change time of a file in which its bytes may still be on their way: a write notes its time first. On a busy machine
 * those of one call with 4 MB came up to 70 ms later. More than the most is not waited for: large files would be read time and again.
 */
const UNDER_WAY = { least: 100_000_000, aByte: 15, most: 2_000_000_000 } as const;

interface OpenFile {
  readonly fd: number;
  /** As it was before it was lent. */
  readonly mode: number;
  readonly giveBack: RestoreMode | null;
}

export interface EntryReaderOptions {
  readonly system: SystemCalls;
  readonly lent: TemporaryChmods;
  readonly sink: ObjectSink;
  readonly consistency: ConsistencyCheck;
  /** What was read under other names in this walk. */
  readonly hardLinks: HardLinkContents;
  /** Throws where the work is to end; called between the pieces of a large file. */
  readonly check: () => void;
}

/**
 * Makes entries of what a walk has found: what is in it goes to the outlet, and that it changed meanwhile to the moment. `facts` are what it
 * looked like; what is in them afterwards is what it will be known by, nothing where it is to be looked at again.
 */
export class EntryReader {
  readonly #options: EntryReaderOptions;
  readonly #moment: ConsistencyCheck;
  /** What an open file looked like last. */
  readonly #now = new Uint32Array(FINGERPRINT_WORDS);

  constructor(options: EntryReaderOptions) {
    this.#options = options;
    this.#moment = options.consistency;
  }

  /** Of a directory that is open for reading; its content is what it was. */
  readDirectory(folder: CachedDirectory, fd: number, facts: Uint32Array): DirectoryEntry {
    const entry = {
      ...folder.entry,
      mode: modeOf(facts) & PERMISSIONS,
      mtimeNs: mtimeOf(facts),
      xattrs: checkedXattrs(this.#options.system.xattrs(fd), () => folder.path()),
    };
    this.#moment.invalidateIfRecent(facts);
    return entry;
  }

  /** Of what is no regular file. Null when it is something else by now; then it will be looked at again. */
  readNonRegular(place: EntryLocation, directory: number, facts: Uint32Array): TreeEntry | null {
    const { name } = place;
    const basics = {
      name,
      mode: modeOf(facts) & PERMISSIONS,
      mtimeNs: mtimeOf(facts),
      xattrs: [],
      linkGroup: null,
    };
    switch (modeOf(facts) & S_IFMT) {
      case S_IFLNK: {
        const target = this.#linkText(directory, name);
        if (target === null) return null;
        this.#moment.invalidateIfRecent(facts);
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

  /** Of a regular file; null as with `other`. At once where it can be; later where it takes longer, or changes while it is read. */
  readFile(
    place: EntryLocation,
    directory: number,
    facts: Uint32Array,
  ): TreeEntry | null | Promise<TreeEntry | null> {
    const { system, sink } = this.#options;
    const open = this.#open(place, directory, facts);
    if (open === null) return null;
    const { fd } = open;
    let isOurs = true;
    try {
      if (open.giveBack === null) {
        // What `#open` saw is what it is now; the clock is read before the content is.
        const blocks = system.stat[STAT.blocks] ?? 0;
        const clock = system.fileClock();
        facts.set(this.#now);
        const xattrs = checkedXattrs(system.xattrs(fd), () => pathOf(place));
        const content = readSmall(
          system,
          fd,
          { size: sizeOf(facts), blocks, hasXattrs: xattrs.length > 0 },
          sink,
        );
        if (content !== null) {
          this.#look(fd);
          if (areEqualFingerprints(this.#now, facts)) {
            this.#moment.noteCtime(facts);
            return this.#fileEntry(place, open, facts, { xattrs, content, clock, onDisk: content.size });
          }
        }
      }
      isOurs = false;
      return this.#slowFile(place, open, facts);
    } finally {
      if (isOurs) system.close(fd);
    }
  }

  /** Of a file that was read under another of its names in this walk, and looks as it did then. Null: it is to be read. */
  reuseHardLink({ name }: EntryLocation, facts: Uint32Array): TreeEntry | null {
    const content = this.#options.hardLinks.find(facts);
    return content === null ? null : { ...content, name, linkGroup: null, type: 'file' };
  }

  /** Null when it is no link any more. */
  #linkText(directory: number, name: Buffer): Buffer | null {
    const { system } = this.#options;
    try {
      return system.readLinkAt(directory, system.addressOf(name));
    } catch (error) {
      if (isGone(error) || errnoOf(error) === 'EINVAL') return null;
      throw error;
    }
  }

  /** Takes the descriptor over. */
  async #slowFile(place: EntryLocation, open: OpenFile, facts: Uint32Array): Promise<TreeEntry> {
    const { system, sink } = this.#options;
    const { fd } = open;
    try {
      let xattrs: readonly ExtendedAttribute[];
      try {
        xattrs = checkedXattrs(system.xattrs(fd), () => pathOf(place));
      } finally {
        open.giveBack?.(fd);
      }
      for (let tries = 1; ; tries += 1) {
        const blocks = this.#look(fd);
        const clock = system.fileClock();
        facts.set(this.#now);
        if (open.giveBack !== null) this.#moment.noteRestoredMode(facts);
        const content: Content = await readContent(
          system,
          fd,
          { size: sizeOf(facts), blocks, hasXattrs: xattrs.length > 0 },
          sink,
          async () => {
            this.#options.check();
            if (sink.isFull) await sink.flush();
          },
        );
        this.#look(fd);
        const isSteady = areEqualFingerprints(this.#now, facts);
        if (!isSteady && tries < READS) continue;
        if (!isSteady) this.#moment.noteChangeAt(pathOf(place));
        this.#moment.noteCtime(facts);
        if (tries > 1) this.#moment.noteChange();
        const onDisk = isSteady ? Math.min(content.size, blocks * BLOCK_BYTES) : 0;
        const entry = this.#fileEntry(place, open, facts, { xattrs, content, clock, onDisk });
        if (!isSteady) invalidateFingerprint(facts, 0);
        return entry;
      }
    } finally {
      system.close(fd);
    }
  }

  #fileEntry(
    { name }: EntryLocation,
    { mode }: OpenFile,
    facts: Uint32Array,
    read: {
      readonly xattrs: readonly ExtendedAttribute[];
      readonly content: Content;
      readonly clock: bigint;
      /** Bytes of its data on the disk; 0 where it changed meanwhile. */
      readonly onDisk: number;
    },
  ): TreeEntry {
    const { size, sparse, content } = read.content;
    const mtimeNs = mtimeOf(facts);
    const made = { mode, mtimeNs, xattrs: read.xattrs, size, sparse, content };
    const seen = linksOf(facts) > 1 ? facts.slice() : null;
    // A change within the same tick of the clock as the last one would leave the same time, and so do the bytes of a write that is
    // under way: it is read again the next time.
    if (ctimeOf(facts) + underWay(size) >= read.clock) invalidateFingerprint(facts, 0);
    if (seen !== null) this.#options.hardLinks.remember(seen, facts, read.onDisk, made);
    return { ...made, name, linkGroup: null, type: 'file' };
  }

  /** What an open file looks like goes into `#now`. Gives its blocks. */
  #look(fd: number): number {
    const { system } = this.#options;
    system.statFd(fd);
    writeFingerprint(system.stat, this.#now, 0);
    return system.stat[STAT.blocks] ?? 0;
  }

  /** What it looks like is in `#now` then. */
  #open(place: EntryLocation, directory: number, facts: Uint32Array): OpenFile | null {
    const { system, lent } = this.#options;
    const { name } = place;
    const mode = modeOf(facts) & PERMISSIONS;
    let fd: number;
    let giveBack: RestoreMode | null = null;
    try {
      fd = system.openAt(directory, system.addressOf(name), SAFE_OPEN_FLAGS);
    } catch (error) {
      if (isGone(error) || errnoOf(error) === 'ENXIO') return null;
      if (errnoOf(error) !== 'EACCES' || (mode & OWNER_READS) !== 0) throw error;
      let named: number;
      try {
        named = system.openAt(directory, system.addressOf(name), O_PATH | O_NOFOLLOW);
      } catch (cause) {
        if (isGone(cause)) return null;
        throw cause;
      }
      try {
        if (!this.#isThat(named, facts)) return null;
        giveBack = lent.grant(named, pathOf(place), OWNER_READS);
        fd = openSync(`/proc/self/fd/${named}`, SAFE_OPEN_FLAGS & ~O_NOFOLLOW);
      } catch (cause) {
        if (giveBack !== null) {
          giveBack(named);
          this.#look(named);
          this.#moment.noteRestoredMode(this.#now);
        }
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
}

function underWay(bytes: number): bigint {
  return BigInt(Math.min(UNDER_WAY.least + bytes * UNDER_WAY.aByte, UNDER_WAY.most));
}

function checkedXattrs(xattrs: ExtendedAttribute[], path: () => readonly Buffer[]): ExtendedAttribute[] {
  if (xattrs.length === 0) return xattrs;
  const bytes = xattrs.reduce((sum, { name, value }) => sum + name.length + value.length + 8, 0);
  if (bytes > SNAPSHOT_LIMITS.entryBytes / 2) {
    throw new HoldfastError('file_too_large', `${formatPath(path())} cannot be in a snapshot`, {
      why: 'its extended attributes are larger than a snapshot can hold',
    });
  }
  return xattrs;
}
