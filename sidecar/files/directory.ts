import { closeSync, constants, fstatSync, openSync } from 'node:fs';

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
/** Linux: the descriptor only names the file. Node has no constant for it. */
const O_PATH = 0o10000000;

/** The `code` of a failed system call. Undefined for any other value. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

/**
 * An open directory. Entries are reached through its descriptor, so renaming or replacing a parent cannot redirect an
 * access. The last name is never followed and never blocks.
 */
export class Directory implements Disposable {
  readonly fd: number;
  #open = true;

  private constructor(fd: number) {
    this.fd = fd;
  }

  /** For a path that no untrusted process can change, such as a mount point. Errors: those of the system. */
  static open(path: string | Buffer): Directory {
    return new Directory(openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK));
  }

  /** Only names it (O_PATH): needs no rights in it. */
  static name(path: string): Directory {
    return new Directory(openSync(path, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  }

  /** Takes ownership of a descriptor of a directory, which may be O_PATH. */
  static fromFd(fd: number): Directory {
    return new Directory(fd);
  }

  /** A path to `name` in this directory, valid while it is open. `name` has no slash and is not `..`. */
  path(name: string): string {
    return `/proc/self/fd/${this.fd}/${name}`;
  }

  /** The same for a name as bytes, which need not be UTF-8. */
  pathOf(name: Buffer): Buffer {
    return Buffer.concat([Buffer.from(`/proc/self/fd/${this.fd}/`), name]);
  }

  /** A path to the directory itself. */
  get selfPath(): string {
    return `/proc/self/fd/${this.fd}/.`;
  }

  openDirectory(name: string | Buffer): Directory {
    return Directory.open(typeof name === 'string' ? this.path(name) : this.pathOf(name));
  }

  /**
   * Opens a regular file for reading. Null if it is missing, a link, a FIFO, a directory or not readable. Errors that
   * do not concern the file (no descriptors left, a broken disk) are thrown.
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

/** True for errors that a missing or hostile file can cause. */
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
