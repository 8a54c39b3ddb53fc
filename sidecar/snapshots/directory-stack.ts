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
/** Directories on the stack that stay open. Those above are closed and reopened through `..`. */
const OPEN_LEVELS = 128;
/** Permissions that a walk needs on a directory. */
const LIST_AND_ENTER = 0o500;
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');

/** One directory on the stack. */
export interface Level {
  readonly directory: CachedDirectory;
  /** Open for reading. -1 while it is closed because too many below it are open. */
  fd: number;
  /** Index of the next child. */
  nextChild: number;
  readonly restoreMode: RestoreMode | null;
  /** Fingerprint before a temporary chmod. Null without one. */
  readonly originalFingerprint: Uint32Array | null;
}

/**
 * The directories from the workspace down to the one that a walk is in. Each is opened by name in its parent, on one
 * file system and with no link followed. A mode that denies access gets a temporary chmod while the directory is on the
 * stack.
 */
export class DirectoryStack {
  readonly #system: SystemCalls;
  readonly #chmods: TemporaryChmods;
  readonly #levels: Level[] = [];
  /** Fingerprint of the directory that was read last. */
  readonly #fingerprint = new Uint32Array(FINGERPRINT_WORDS);
  #device = { major: 0, minor: 0 };

  constructor(options: { system: SystemCalls; chmods: TemporaryChmods }) {
    this.#system = options.system;
    this.#chmods = options.chmods;
  }

  get innermost(): Level | undefined {
    return this.#levels.at(-1);
  }

  /** Opens a child of an open directory, or `dirfd` itself. Null if it is no longer a directory. */
  enter(dirfd: number, directory: CachedDirectory): Level | null {
    let level: Level | null;
    try {
      level = this.#open(dirfd, directory);
    } catch (error) {
      throw toFileError(error, formatPath(directory.path()));
    }
    if (level === null) return null;
    this.#levels.push(level);
    this.#closeAbove();
    return level;
  }

  /**
   * Leaves the innermost directory and reopens its parent. Errors: `file_unavailable` if the directory was moved
   * meanwhile.
   */
  leave(): void {
    const done = this.#levels.pop();
    const parent = this.#levels.at(-1);
    try {
      if (done !== undefined && parent?.fd === -1) parent.fd = this.#above(done, parent);
    } finally {
      this.#close(done);
    }
  }

  /** Reopens the parent through `..`. */
  #above(done: Level, { directory }: Level): number {
    const fd = this.#system.openAt(done.fd, this.#system.addressOf(DOTS), SAFE_DIRECTORY_FLAGS);
    this.#system.statFd(fd);
    writeFingerprint(this.#system.stat, this.#fingerprint, 0);
    if (inodeOf(this.#fingerprint) === inodeOf(directory.fingerprint)) return fd;
    this.#system.close(fd);
    throw new HoldfastError('file_unavailable', 'The workspace was not scanned', {
      why: `${formatPath(done.directory.path())} was moved during the scan`,
      next: 'try again',
    });
  }

  /** Closes all directories and restores their modes. */
  closeAll(): void {
    while (this.#levels.length > 0) this.#close(this.#levels.pop());
  }

  /** Null if it is no longer a directory. */
  #open(dirfd: number, directory: CachedDirectory): Level | null {
    const system = this.#system;
    const name = directory.parent === null ? DOT : directory.name;
    let fd: number;
    try {
      fd = system.openAt(dirfd, system.addressOf(name), SAFE_DIRECTORY_FLAGS);
    } catch (error) {
      if (isGone(error)) return null;
      if (errnoOf(error) === 'EACCES') return this.#openDenied(dirfd, directory);
      throw error;
    }
    try {
      this.#checkDevice(fd, directory);
    } catch (error) {
      system.close(fd);
      throw error;
    }
    if (this.#mayListAndEnter())
      return { directory, fd, nextChild: 0, restoreMode: null, originalFingerprint: null };
    system.close(fd);
    return this.#openDenied(dirfd, directory);
  }

  /** Opens a directory whose mode denies access. */
  #openDenied(dirfd: number, directory: CachedDirectory): Level | null {
    const system = this.#system;
    const name = directory.parent === null ? DOT : directory.name;
    let fd: number;
    let restoreMode: RestoreMode | null = null;
    /** Fingerprint before the temporary chmod. */
    let before: Uint32Array | null = null;
    try {
      fd = system.openAt(dirfd, system.addressOf(name), NAME_FLAGS);
    } catch (error) {
      if (isGone(error)) return null;
      throw error;
    }
    try {
      this.#checkDevice(fd, directory);
      if (!this.#mayListAndEnter()) {
        before = this.#fingerprint.slice();
        restoreMode = this.#chmods.grant(fd, directory.path(), LIST_AND_ENTER);
      }
      const listed = openSync(`/proc/self/fd/${fd}`, SAFE_DIRECTORY_FLAGS & ~O_NOFOLLOW);
      system.close(fd);
      return { directory, fd: listed, nextChild: 0, restoreMode, originalFingerprint: before };
    } catch (error) {
      restoreMode?.(fd);
      system.close(fd);
      throw error;
    }
  }

  /** For the directory that was read last. */
  #mayListAndEnter(): boolean {
    return (modeOf(this.#fingerprint) & LIST_AND_ENTER) === LIST_AND_ENTER;
  }

  /** Stores the open directory's fingerprint in `#fingerprint`. */
  #checkDevice(fd: number, directory: CachedDirectory): void {
    const { stat } = this.#system;
    this.#system.statFd(fd);
    writeFingerprint(stat, this.#fingerprint, 0);
    const major = stat[STAT.device] ?? 0;
    const minor = stat[STAT.device + 1] ?? 0;
    if (directory.parent === null) this.#device = { major, minor };
    else if (major !== this.#device.major || minor !== this.#device.minor) {
      throw new HoldfastError(
        'not_supported',
        `${formatPath(directory.path())} cannot be part of a snapshot`,
        {
          why: 'another file system is mounted there',
        },
      );
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
      writeFingerprint(this.#system.stat, this.#fingerprint, 0);
      level.directory.fingerprint.set(this.#fingerprint);
    } finally {
      if (level.fd !== -1) this.#system.close(level.fd);
    }
  }
}
