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
/** Unit of `STAT.blocks`. */
const BLOCK_BYTES = 512;
/** How often a file is read if it changes meanwhile. */
const MAX_READS = 3;
/**
 * Nanoseconds after a file's ctime in which its bytes may still be in flight, because a write sets the time first. On a
 * busy machine the bytes of one 4 MB call arrived up to 70 ms later. The bound keeps large files from being read again
 * and again.
 */
const IN_FLIGHT_NS = { least: 100_000_000, aByte: 15, most: 2_000_000_000 } as const;

interface OpenFile {
  readonly fd: number;
  /** The mode without a temporary chmod. */
  readonly mode: number;
  readonly restoreMode: RestoreMode | null;
}

export interface EntryReaderOptions {
  readonly system: SystemCalls;
  readonly chmods: TemporaryChmods;
  readonly sink: ObjectSink;
  readonly consistency: ConsistencyCheck;
  /** Content read under other names of the same inode in this walk. */
  readonly hardLinks: HardLinkContents;
  /** Throws if the task must end. Called between the pieces of a large file. */
  readonly check: () => void;
}

/**
 * Makes entries of the names that a walk found. Content goes to the sink, and changes during the scan go to the
 * consistency check. `fingerprint` holds the current fingerprint, and on return the one to store. It is invalidated if
 * the next scan must read the file again.
 */
export class EntryReader {
  readonly #options: EntryReaderOptions;
  readonly #consistency: ConsistencyCheck;
  /** Latest fingerprint of an open file. */
  readonly #now = new Uint32Array(FINGERPRINT_WORDS);

  constructor(options: EntryReaderOptions) {
    this.#options = options;
    this.#consistency = options.consistency;
  }

  /** Entry of an open directory. Its content is unchanged. */
  readDirectory(directory: CachedDirectory, fd: number, fingerprint: Uint32Array): DirectoryEntry {
    const entry = {
      ...directory.entry,
      mode: modeOf(fingerprint) & PERMISSIONS,
      mtimeNs: mtimeOf(fingerprint),
      xattrs: checkedXattrs(this.#options.system.xattrs(fd), () => directory.path()),
    };
    this.#consistency.invalidateIfRecent(fingerprint);
    return entry;
  }

  /**
   * Entry of anything that is not a regular file. Null if it has changed its type; the next scan then reads it again.
   */
  readNonRegular(place: EntryLocation, dirfd: number, fingerprint: Uint32Array): TreeEntry | null {
    const { name } = place;
    const basics = {
      name,
      mode: modeOf(fingerprint) & PERMISSIONS,
      mtimeNs: mtimeOf(fingerprint),
      xattrs: [],
      linkGroup: null,
    };
    switch (modeOf(fingerprint) & S_IFMT) {
      case S_IFLNK: {
        const target = this.#linkText(dirfd, name);
        if (target === null) return null;
        this.#consistency.invalidateIfRecent(fingerprint);
        return { ...basics, type: 'symlink', target };
      }
      case S_IFIFO:
        return { ...basics, type: 'fifo' };
      case S_IFSOCK:
        return { ...basics, type: 'socket' };
      case S_IFDIR:
        return null;
      default:
        throw new HoldfastError(
          'file_not_regular',
          `${formatPath(pathOf(place))} cannot be part of a snapshot`,
          {
            why: 'it is a device',
            next: 'remove it',
          },
        );
    }
  }

  /**
   * Entry of a regular file, or null as for `readNonRegular`. Returns at once if possible. Returns a promise if it
   * takes longer or the file changes meanwhile.
   */
  readFile(
    place: EntryLocation,
    dirfd: number,
    fingerprint: Uint32Array,
  ): TreeEntry | null | Promise<TreeEntry | null> {
    const { system, sink } = this.#options;
    const open = this.#open(place, dirfd, fingerprint);
    if (open === null) return null;
    const { fd } = open;
    let isOurs = true;
    try {
      if (open.restoreMode === null) {
        // The stat of `#open` is current. The clock is read before the content.
        const blocks = system.stat[STAT.blocks] ?? 0;
        const clock = system.fileClock();
        fingerprint.set(this.#now);
        const xattrs = checkedXattrs(system.xattrs(fd), () => pathOf(place));
        const content = readSmall(
          system,
          fd,
          { size: sizeOf(fingerprint), blocks, hasXattrs: xattrs.length > 0 },
          sink,
        );
        if (content !== null) {
          this.#readFingerprint(fd);
          if (areEqualFingerprints(this.#now, fingerprint)) {
            this.#consistency.noteCtime(fingerprint);
            return this.#fileEntry(place, open, fingerprint, {
              xattrs,
              content,
              clock,
              onDisk: content.size,
            });
          }
        }
      }
      isOurs = false;
      return this.#readFileSlowly(place, open, fingerprint);
    } finally {
      if (isOurs) system.close(fd);
    }
  }

  /** Entry of a file that was read under another name in this walk and has not changed. Null if it must be read. */
  reuseHardLink({ name }: EntryLocation, fingerprint: Uint32Array): TreeEntry | null {
    const content = this.#options.hardLinks.find(fingerprint);
    return content === null ? null : { ...content, name, linkGroup: null, type: 'file' };
  }

  /** Null if it is no longer a link. */
  #linkText(dirfd: number, name: Buffer): Buffer | null {
    const { system } = this.#options;
    try {
      return system.readLinkAt(dirfd, system.addressOf(name));
    } catch (error) {
      if (isGone(error) || errnoOf(error) === 'EINVAL') return null;
      throw error;
    }
  }

  /** Takes ownership of the descriptor. */
  async #readFileSlowly(place: EntryLocation, open: OpenFile, fingerprint: Uint32Array): Promise<TreeEntry> {
    const { system, sink } = this.#options;
    const { fd } = open;
    try {
      let xattrs: readonly ExtendedAttribute[];
      try {
        xattrs = checkedXattrs(system.xattrs(fd), () => pathOf(place));
      } finally {
        open.restoreMode?.(fd);
      }
      for (let tries = 1; ; tries += 1) {
        const blocks = this.#readFingerprint(fd);
        const clock = system.fileClock();
        fingerprint.set(this.#now);
        if (open.restoreMode !== null) this.#consistency.noteRestoredMode(fingerprint);
        const content: Content = await readContent(
          system,
          fd,
          { size: sizeOf(fingerprint), blocks, hasXattrs: xattrs.length > 0 },
          sink,
          async () => {
            this.#options.check();
            if (sink.isFull) await sink.flush();
          },
        );
        this.#readFingerprint(fd);
        const isSteady = areEqualFingerprints(this.#now, fingerprint);
        if (!isSteady && tries < MAX_READS) continue;
        if (!isSteady) this.#consistency.noteChangeAt(pathOf(place));
        this.#consistency.noteCtime(fingerprint);
        if (tries > 1) this.#consistency.noteChange();
        const onDisk = isSteady ? Math.min(content.size, blocks * BLOCK_BYTES) : 0;
        const entry = this.#fileEntry(place, open, fingerprint, { xattrs, content, clock, onDisk });
        if (!isSteady) invalidateFingerprint(fingerprint, 0);
        return entry;
      }
    } finally {
      system.close(fd);
    }
  }

  #fileEntry(
    { name }: EntryLocation,
    { mode }: OpenFile,
    fingerprint: Uint32Array,
    read: {
      readonly xattrs: readonly ExtendedAttribute[];
      readonly content: Content;
      readonly clock: bigint;
      /** Bytes of data on the disk. 0 if the file changed meanwhile. */
      readonly onDisk: number;
    },
  ): TreeEntry {
    const { size, sparse, content } = read.content;
    const mtimeNs = mtimeOf(fingerprint);
    const made = { mode, mtimeNs, xattrs: read.xattrs, size, sparse, content };
    const seen = linksOf(fingerprint) > 1 ? fingerprint.slice() : null;
    // A change within the timestamp granularity leaves the same time, and the bytes of a write may still be in flight.
    // The next scan reads the file again.
    if (ctimeOf(fingerprint) + inFlightNs(size) >= read.clock) invalidateFingerprint(fingerprint, 0);
    if (seen !== null) this.#options.hardLinks.remember(seen, fingerprint, read.onDisk, made);
    return { ...made, name, linkGroup: null, type: 'file' };
  }

  /** Stores an open file's fingerprint in `#now`. Returns its blocks. */
  #readFingerprint(fd: number): number {
    const { system } = this.#options;
    system.statFd(fd);
    writeFingerprint(system.stat, this.#now, 0);
    return system.stat[STAT.blocks] ?? 0;
  }

  /** Stores the file's fingerprint in `#now`. */
  #open(place: EntryLocation, dirfd: number, fingerprint: Uint32Array): OpenFile | null {
    const { system, chmods } = this.#options;
    const { name } = place;
    const mode = modeOf(fingerprint) & PERMISSIONS;
    let fd: number;
    let restoreMode: RestoreMode | null = null;
    try {
      fd = system.openAt(dirfd, system.addressOf(name), SAFE_OPEN_FLAGS);
    } catch (error) {
      if (isGone(error) || errnoOf(error) === 'ENXIO') return null;
      if (errnoOf(error) !== 'EACCES' || (mode & OWNER_READS) !== 0) throw error;
      let named: number;
      try {
        named = system.openAt(dirfd, system.addressOf(name), O_PATH | O_NOFOLLOW);
      } catch (cause) {
        if (isGone(cause)) return null;
        throw cause;
      }
      try {
        if (!this.#isSameFile(named, fingerprint)) return null;
        restoreMode = chmods.grant(named, pathOf(place), OWNER_READS);
        fd = openSync(`/proc/self/fd/${named}`, SAFE_OPEN_FLAGS & ~O_NOFOLLOW);
      } catch (cause) {
        if (restoreMode !== null) {
          restoreMode(named);
          this.#readFingerprint(named);
          this.#consistency.noteRestoredMode(this.#now);
        }
        throw cause;
      } finally {
        closeSync(named);
      }
    }
    if (this.#isSameFile(fd, fingerprint)) return { fd, mode, restoreMode };
    restoreMode?.(fd);
    system.close(fd);
    return null;
  }

  /** Whether the descriptor leads to the file that the walk found. */
  #isSameFile(fd: number, fingerprint: Uint32Array): boolean {
    this.#readFingerprint(fd);
    return isSameFile(this.#now, fingerprint);
  }
}

function inFlightNs(bytes: number): bigint {
  return BigInt(Math.min(IN_FLIGHT_NS.least + bytes * IN_FLIGHT_NS.aByte, IN_FLIGHT_NS.most));
}

function checkedXattrs(xattrs: ExtendedAttribute[], path: () => readonly Buffer[]): ExtendedAttribute[] {
  if (xattrs.length === 0) return xattrs;
  const bytes = xattrs.reduce((sum, { name, value }) => sum + name.length + value.length + 8, 0);
  if (bytes > SNAPSHOT_LIMITS.entryBytes / 2) {
    throw new HoldfastError('file_too_large', `${formatPath(path())} cannot be part of a snapshot`, {
      why: 'its extended attributes are larger than a snapshot can hold',
    });
  }
  return xattrs;
}
