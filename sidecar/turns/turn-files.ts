import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Directory } from '../files/directory.ts';
import { errnoOf, isPathError } from '../files/directory.ts';
import { spaceError } from '../files/full-disk.ts';

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_RDWR, O_WRONLY } = constants;
const SMALL_BYTES = 4096;

export type Stream = 'stdout' | 'stderr' | 'result';

/**
 * The directory of one turn, terminal or process. The agent can write to all of it. Files are therefore opened without following
 * links and without blocking, must be regular, and are read up to a limit. Files that the sidecar created stay open, so
 * replacing them has no effect.
 */
export class TurnFiles {
  readonly directory: Directory;
  readonly #open = new Map<Stream, number>();

  private constructor(directory: Directory) {
    this.directory = directory;
  }

  /** Null if there is no such turn. */
  static find(turns: Directory, turnId: string): TurnFiles | null {
    try {
      return new TurnFiles(turns.openDirectory(turnId));
    } catch (error) {
      switch (errnoOf(error)) {
        case 'ENOENT':
        case 'ENOTDIR':
        case 'ELOOP':
        case 'EACCES':
          return null;
        case undefined:
        default:
          throw error;
      }
    }
  }

  /**
   * Creates a turn under a temporary name and renames it when it is complete. A crash in between leaves only a
   * temporary directory.
   */
  static create(
    turns: Directory,
    turnId: string,
    contents: Readonly<Record<string, Uint8Array>>,
    outputs: readonly Stream[] = ['stdout', 'stderr'],
  ): TurnFiles {
    const unready = `new-${turnId}-${process.hrtime.bigint()}`;
    const what = `The files of ${turnId} cannot be written`;
    try {
      mkdirSync(turns.path(unready), 0o700);
    } catch (cause) {
      throw spaceError(cause, what);
    }
    const files = new TurnFiles(turns.openDirectory(unready));
    try {
      for (const [name, bytes] of Object.entries(contents)) files.#write(name, bytes);
      for (const name of outputs) {
        files.#open.set(
          name,
          openSync(files.directory.path(name), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600),
        );
      }
      renameSync(turns.path(unready), turns.path(turnId));
      return files;
    } catch (cause) {
      files.close();
      // The call is repeated while the disk is full, and leftovers of each try would fill it further.
      rmSync(turns.path(unready), { recursive: true, force: true });
      throw spaceError(cause, what);
    }
  }

  #write(name: string, bytes: Uint8Array): void {
    const fd = openSync(this.directory.path(name), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
    } finally {
      closeSync(fd);
    }
  }

  /**
   * Puts a file in the place of whatever has this name. Errors: `sandbox_lost` if the agent keeps it from that,
   * `no_space`.
   */
  replace(name: string, bytes: Uint8Array): void {
    const unready = `new-${process.hrtime.bigint()}`;
    try {
      this.#write(unready, bytes);
      renameSync(this.directory.path(unready), this.directory.path(name));
    } catch (cause) {
      rmSync(this.directory.path(unready), { force: true });
      if (!isPathError(cause)) throw spaceError(cause, `The file ${name} cannot be written`);
      throw new HoldfastError('sandbox_lost', `The file ${name} cannot be handed to the sandbox`, {
        why: 'a process in the sandbox has damaged its run directory',
        cause,
      });
    }
  }

  /** Removes a file. A directory of this name, which only the agent can have made, stays. */
  discard(name: string): void {
    try {
      unlinkSync(this.directory.path(name));
    } catch (error) {
      if (!isPathError(error)) throw error;
    }
  }

  /** Whether nothing is left of a file that is emptied when it has been used. */
  isEmptied(name: string): boolean {
    try {
      const status = lstatSync(this.directory.path(name));
      return status.isFile() && status.size === 0;
    } catch (error) {
      if (isPathError(error)) return true;
      throw error;
    }
  }

  /** The text of a small file, cut at 4 KiB. Null if there is no readable file. */
  text(name: string): string | null {
    const fd = this.#readable(name);
    if (fd === null) return null;
    try {
      const buffer = Buffer.allocUnsafe(SMALL_BYTES);
      return buffer.toString('utf8', 0, readSync(fd, buffer, 0, SMALL_BYTES, 0));
    } finally {
      closeSync(fd);
    }
  }

  /**
   * Claims the turn as the runner does, so that no other process can. False if it is claimed already, or if that cannot
   * be known.
   */
  claim(): boolean {
    try {
      closeSync(openSync(this.directory.path('started'), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600));
      return true;
    } catch (error) {
      if (errnoOf(error) === undefined) throw error;
      return false;
    }
  }

  has(name: string): boolean {
    // Anything of this name counts: only the agent can put something else there, and it affects only itself.
    try {
      closeSync(openSync(this.directory.path(name), O_RDONLY | O_NOFOLLOW | constants.O_NONBLOCK));
      return true;
    } catch (error) {
      return errnoOf(error) !== 'ENOENT';
    }
  }

  /** Current size of a stream. It shrinks if the agent truncates its own output. */
  size(stream: Stream): number {
    const fd = this.#descriptor(stream);
    if (fd === null) return 0;
    const size = Math.min(fstatSync(fd).size, Number.MAX_SAFE_INTEGER);
    // An answer is renamed into place when complete, so an empty file is not the answer. Another file may still replace
    // it.
    if (size === 0 && stream === 'result') this.#release(stream);
    return size;
  }

  #release(stream: Stream): void {
    const fd = this.#open.get(stream);
    this.#open.delete(stream);
    if (fd !== undefined) closeSync(fd);
  }

  /** At most `limit` bytes from `offset`, fewer at the end. */
  read(stream: Stream, offset: number, limit: number): Buffer {
    const length = Math.max(0, Math.min(limit, this.size(stream) - offset));
    const fd = this.#descriptor(stream);
    if (fd === null || length === 0) return Buffer.alloc(0);
    const buffer = Buffer.allocUnsafe(length);
    return buffer.subarray(0, readSync(fd, buffer, 0, length, offset));
  }

  close(): void {
    for (const fd of this.#open.values()) closeSync(fd);
    this.#open.clear();
    this.directory.close();
  }

  #descriptor(stream: Stream): number | null {
    const known = this.#open.get(stream);
    if (known !== undefined) return known;
    const fd = this.#readable(stream);
    if (fd !== null) this.#open.set(stream, fd);
    return fd;
  }

  /**
   * Also null while the agent holds a lease on the file, which keeps it from being opened until the kernel breaks the
   * lease.
   */
  #readable(name: string): number | null {
    try {
      return this.directory.openRegularFile(name);
    } catch (error) {
      if (errnoOf(error) === 'EAGAIN') return null;
      throw error;
    }
  }
}
