import { constants, openSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { errnoOf } from '../files/directory.ts';
import { toFileError } from '../files/file-errors.ts';
import { O_PATH } from '../files/resolver.ts';
import { FINGERPRINT_WORDS, inodeOf, modeOf, writeFingerprint } from './fingerprint.ts';
import type { CachedDirectory } from './cached-directory.ts';
import type { RestoreMode, TemporaryChmods } from './temporary-chmods.ts';
import { isGone, SAFE_DIRECTORY_FLAGS, STAT, type SystemCalls } from './system-calls.ts';

const { O_NOFOLLOW } = constants;
const NAME_FLAGS = O_PATH | constants.O_DIRECTORY | O_NOFOLLOW;
/** Folders on the way down that stay open; those above are closed and found again through `..`. */
const OPEN_LEVELS = 128;
/** What a walk needs of a directory. */
const LIST_AND_ENTER = 0o500;
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');

/** One open directory on the way. */
export interface Level {
  readonly folder: CachedDirectory;
  /** Open for reading; -1 while it is closed because too many are open below it. */
  fd: number;
  /** Index of the next folder in it. */
  nextChild: number;
  readonly restoreMode: RestoreMode | null;
  /** What it looked like before its mode was lent; null where it was not. */
  readonly originalFingerprint: Uint32Array | null;
}

/**
 * The directories from the workspace down to the one that a walk is in. Each is opened by its name in the one above, links never
 * followed, on one file system; a mode that denies its owner something is lent as long as the directory is on the way.
 */
export class DirectoryStack {
  readonly #system: SystemCalls;
  readonly #lent: TemporaryChmods;
  readonly #levels: Level[] = [];
  /** What a directory looked like last. */
  readonly #facts = new Uint32Array(FINGERPRINT_WORDS);
  #device = { major: 0, minor: 0 };

  constructor(options: { system: SystemCalls; lent: TemporaryChmods }) {
    this.#system = options.system;
    this.#lent = options.lent;
  }

  get innermost(): Level | undefined {
    return this.#levels.at(-1);
  }

  /** Opens a folder that is in an open directory, or is itself `directory`. Null when it is no directory any more. */
  enter(directory: number, folder: CachedDirectory): Level | null {
    let level: Level | null;
    try {
      level = this.#open(directory, folder);
    } catch (error) {
      throw toFileError(error, formatPath(folder.path()));
    }
    if (level === null) return null;
    this.#levels.push(level);
    this.#closeAbove();
    return level;
  }

  /** Leaves the innermost one; the one above is open then. Errors: `file_unavailable` where it has gone from there meanwhile. */
  leave(): void {
    const done = this.#levels.pop();
    const parent = this.#levels.at(-1);
    try {
      if (done !== undefined && parent?.fd === -1) parent.fd = this.#above(done, parent);
    } finally {
      this.#close(done);
    }
  }

  /** The folder above, found again from the one below, and open. */
  #above(done: Level, { folder }: Level): number {
    const fd = this.#system.openAt(done.fd, this.#system.addressOf(DOTS), SAFE_DIRECTORY_FLAGS);
    this.#system.statFd(fd);
    writeFingerprint(this.#system.stat, this.#facts, 0);
    if (inodeOf(this.#facts) === inodeOf(folder.fingerprint)) return fd;
    this.#system.close(fd);
    throw new HoldfastError('file_unavailable', 'The workspace was not looked through', {
      why: `${formatPath(done.folder.path())} was moved meanwhile`,
      next: 'try again',
    });
  }

  /** Leaves all of them, wherever the walk is. */
  closeAll(): void {
    while (this.#levels.length > 0) this.#close(this.#levels.pop());
  }

  /** Null when it is no directory any more. */
  #open(directory: number, folder: CachedDirectory): Level | null {
    const system = this.#system;
    const name = folder.parent === null ? DOT : folder.name;
    let fd: number;
    try {
      fd = system.openAt(directory, system.addressOf(name), SAFE_DIRECTORY_FLAGS);
    } catch (error) {
      if (isGone(error)) return null;
      if (errnoOf(error) === 'EACCES') return this.#openDenied(directory, folder);
      throw error;
    }
    try {
      this.#checkDevice(fd, folder);
    } catch (error) {
      system.close(fd);
      throw error;
    }
    if (this.#mayListAndEnter())
      return { folder, fd, nextChild: 0, restoreMode: null, originalFingerprint: null };
    system.close(fd);
    return this.#openDenied(directory, folder);
  }

  /** One whose mode denies its owner something. */
  #openDenied(directory: number, folder: CachedDirectory): Level | null {
    const system = this.#system;
    const name = folder.parent === null ? DOT : folder.name;
    let fd: number;
    let giveBack: RestoreMode | null = null;
    /** What it was before its mode was lent. */
    let before: Uint32Array | null = null;
    try {
      fd = system.openAt(directory, system.addressOf(name), NAME_FLAGS);
    } catch (error) {
      if (isGone(error)) return null;
      throw error;
    }
    try {
      this.#checkDevice(fd, folder);
      if (!this.#mayListAndEnter()) {
        before = this.#facts.slice();
        giveBack = this.#lent.grant(fd, folder.path(), LIST_AND_ENTER);
      }
      const listed = openSync(`/proc/self/fd/${fd}`, SAFE_DIRECTORY_FLAGS & ~O_NOFOLLOW);
      system.close(fd);
      return { folder, fd: listed, nextChild: 0, restoreMode: giveBack, originalFingerprint: before };
    } catch (error) {
      giveBack?.(fd);
      system.close(fd);
      throw error;
    }
  }

  /** Of what was looked at last. */
  #mayListAndEnter(): boolean {
    return (modeOf(this.#facts) & LIST_AND_ENTER) === LIST_AND_ENTER;
  }

  /** Leaves the facts of the open directory in `#facts`. */
  #checkDevice(fd: number, folder: CachedDirectory): void {
    const { stat } = this.#system;
    this.#system.statFd(fd);
    writeFingerprint(stat, this.#facts, 0);
    const major = stat[STAT.device] ?? 0;
    const minor = stat[STAT.device + 1] ?? 0;
    if (folder.parent === null) this.#device = { major, minor };
    else if (major !== this.#device.major || minor !== this.#device.minor) {
      throw new HoldfastError('not_supported', `${formatPath(folder.path())} cannot be in a snapshot`, {
        why: 'another file system is mounted there',
      });
    }
  }

  #closeAbove(): void {
    const above = this.#levels.at(-1 - OPEN_LEVELS);
    if (above === undefined || above.fd === -1 || above.restoreMode !== null) return;
    this.#system.close(above.fd);
    above.fd = -1;
  }

  #close(level: Level | undefined): void {
    if (level === undefined) return;
    try {
      if (level.restoreMode === null) return;
      level.restoreMode(level.fd);
      this.#system.statFd(level.fd);
      writeFingerprint(this.#system.stat, this.#facts, 0);
      level.folder.fingerprint.set(this.#facts);
    } finally {
      if (level.fd !== -1) this.#system.close(level.fd);
    }
  }
}
