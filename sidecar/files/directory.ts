import { closeSync, constants, fstatSync, openSync } from 'node:fs';

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** The `code` of a failed system call, or undefined for any other value. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

/**
 * An open directory. What lies in it is named through its descriptor, so that nobody who renames or replaces a folder above
 * can lead us elsewhere; the last name is never followed and never waited for.
 */
export class Directory implements Disposable {
  readonly fd: number;
  #open = true;

  private constructor(fd: number) {
    this.fd = fd;
  }

  /** For a path that no untrusted side can change, such as a mount point. Throws the system's error. */
  static open(path: string | Buffer): Directory {
    return new Directory(openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK));
  }

  /** Takes over an open descriptor of a directory, which may be one that only names it (O_PATH). */
  static fromFd(fd: number): Directory {
    return new Directory(fd);
  }

  /** A path to `name` in this directory, valid while it is open. Names have no slash and are not `..`. */
  path(name: string): string {
    return `/proc/self/fd/${this.fd}/${name}`;
  }

  /** The same for a name as bytes: names need not be UTF-8. */
  pathOf(name: Buffer): Buffer {
    return Buffer.concat([Buffer.from(`/proc/self/fd/${this.fd}/`), name]);
  }

  /** This directory itself. */
  get selfPath(): string {
    return `/proc/self/fd/${this.fd}/.`;
  }

  openDirectory(name: string | Buffer): Directory {
    return Directory.open(typeof name === 'string' ? this.path(name) : this.pathOf(name));
  }

  /**
   * A regular file, opened for reading. Null when there is none: it is missing, a link, a FIFO, a folder, or not ours to read.
   * Errors that say nothing about the file (no descriptors left, a broken disk) are thrown.
   */
  openRegularFile(name: string): number | null {
    let fd: number;
    try {
      fd = openSync(this.path(name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    } catch (error) {
      if (isPathError(error)) return null;
      throw error;
    }
    if (fstatSync(fd).isFile()) return fd;
    closeSync(fd);
    return null;
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    closeSync(this.fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** True for errors that a hostile or missing file explains. */
export function isPathError(error: unknown): boolean {
  switch (errnoOf(error)) {
    case 'ENOENT':
    case 'ENOTDIR':
    case 'ELOOP':
    case 'EACCES':
    case 'EPERM':
    case 'ENXIO':
    case 'EISDIR':
    case 'ENAMETOOLONG':
      return true;
    default:
      return false;
  }
}
