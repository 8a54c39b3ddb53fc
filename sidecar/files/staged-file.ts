import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fdatasync,
  fstatSync,
  fsync,
  lstatSync,
  openSync,
  unlinkSync,
  write as writeCallback,
} from 'node:fs';
import { promisify } from 'node:util';
import { Directory, errnoOf } from './directory.ts';
import type { Native } from './native.ts';
import { identityOf } from './open-file.ts';
import { O_PATH } from './resolver.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDWR } = constants;
/** Linux: a file without a name, which disappears with its last descriptor. */
const O_TMPFILE = 0o20000000 | O_DIRECTORY;
const writeAsync = promisify(writeCallback);
export const syncFile = promisify(fsync);
const dataSync = promisify(fdatasync);
const WRITE_BEHIND_BYTES = 8 * 2 ** 20;
/** Names are random, so a name that is taken means that a process creates them on purpose. */
const TRIES = 8;

/** A name that a staged file has for a short time. */
export interface TemporaryName {
  readonly directory: Directory;
  readonly name: Buffer;
}

/** Creates and registers temporary names. */
export interface TemporaryNames {
  readonly newName: () => Buffer;
  /** Before a file of that name exists. `identity` is null until it is created. */
  readonly register: (name: TemporaryName, identity: string | null) => void;
  /** The file was not created, or its name is gone. */
  readonly unregister: (name: TemporaryName) => void;
}

/**
 * New content before it gets its final name. If the file system can (O_TMPFILE), the file has no name until the last
 * step, so a crash leaves nothing. Otherwise it has a temporary name from the start.
 */
export class StagedFile {
  readonly fd: number;
  /** Another process replaced it while it was in place. It cannot get a name again. */
  isLost = false;
  #temporary: TemporaryName | null;
  #size = 0;
  #begun = 0;
  #behind: Promise<void> | null = null;
  #failure: { readonly error: unknown } | null = null;
  #closed = false;

  private constructor(fd: number, temporary: TemporaryName | null) {
    this.fd = fd;
    this.#temporary = temporary;
  }

  /** Creates a staged file. The caller owns `directory`. */
  static create(directory: Directory, native: Native | null, names: TemporaryNames): StagedFile {
    if (native !== null) {
      try {
        return new StagedFile(openSync(directory.selfPath, O_TMPFILE | O_RDWR, 0o600), null);
      } catch (error) {
        if (!isUnsupported(error)) throw error;
      }
    }
    return withFreeName(directory, names, (temporary) => {
      names.register(temporary, null);
      const path = directory.pathOf(temporary.name);
      const file = new StagedFile(openSync(path, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR, 0o600), temporary);
      names.register(temporary, file.identity);
      return file;
    });
  }

  get size(): number {
    return this.#size;
  }

  /** Null while it has no name. */
  get temporary(): TemporaryName | null {
    return this.#temporary;
  }

  get identity(): string {
    return identityOf(this);
  }

  async append(bytes: Uint8Array): Promise<void> {
    let written = 0;
    while (written < bytes.length) {
      const { bytesWritten } = await writeAsync(this.fd, bytes, written, bytes.length - written, this.#size);
      written += bytesWritten;
      this.#size += bytesWritten;
    }
    this.#writeBehind();
  }

  /** Syncs data in the background, so that the final sync has little left to do. */
  #writeBehind(): void {
    if (this.#behind !== null || this.#closed || this.#size - this.#begun < WRITE_BEHIND_BYTES) return;
    this.#begun = this.#size;
    const begun = dataSync(this.fd).catch((error: unknown) => {
      this.#failure ??= { error };
    });
    this.#behind = begun.finally(() => {
      this.#behind = null;
    });
  }

  /** Extends the file by a hole. */
  skipTo(size: number): void {
    this.#size = size;
  }

  /** Sets permissions and group. A group that we may not set is left as it is. */
  setAttributes(mode: number, gid: number): void {
    if (fstatSync(this.fd).gid !== gid) {
      try {
        fchownSync(this.fd, -1, gid);
      } catch (error) {
        if (errnoOf(error) !== 'EPERM') throw error;
      }
    }
    fchmodSync(this.fd, mode);
  }

  /** Syncs everything written to the disk. */
  async sync(): Promise<void> {
    await this.#behind;
    // The system reports a write error once, so a later fsync would not repeat it.
    if (this.#failure !== null) throw this.#failure.error;
    await syncFile(this.fd);
  }

  /** Gives it a temporary name in `directory`, if it has none yet. */
  linkTemporaryName(directory: Directory, native: Native, names: TemporaryNames): TemporaryName {
    this.#temporary ??= withFreeName(directory, names, (temporary) => {
      names.register(temporary, this.identity);
      native.linkDescriptor(this.fd, directory.fd, temporary.name);
      return temporary;
    });
    return this.#temporary;
  }

  /** The temporary name now belongs to another file, or is gone, and must not be removed. */
  releaseName(): void {
    this.#temporary?.directory.close();
    this.#temporary = null;
  }

  /** Closes the file and removes a temporary name that it still has. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const temporary = this.#temporary;
    try {
      if (temporary !== null && isNameOf(temporary, this)) unlinkTemporaryName(temporary);
    } finally {
      this.releaseName();
      // While a sync runs, the descriptor must not be reused for another file.
      if (this.#behind === null) closeSync(this.fd);
      else void this.#behind.then(() => closeSync(this.fd));
    }
  }
}

/** Calls `make` with a new name, and with another one if the name is taken. */
function withFreeName<T>(
  directory: Directory,
  names: TemporaryNames,
  make: (temporary: TemporaryName) => T,
): T {
  for (let tries = 1; ; tries += 1) {
    const temporary = { directory: reopenDirectory(directory), name: names.newName() };
    try {
      return make(temporary);
    } catch (error) {
      names.unregister(temporary);
      temporary.directory.close();
      if (errnoOf(error) !== 'EEXIST' || tries === TRIES) throw error;
    }
  }
}

export function unlinkTemporaryName({ directory, name }: TemporaryName): void {
  try {
    unlinkSync(directory.pathOf(name));
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
  }
}

/** Another descriptor of the same directory. */
export function reopenDirectory(directory: Directory): Directory {
  return Directory.fromFd(openSync(directory.selfPath, O_PATH | O_DIRECTORY));
}

/** False if another file has the name, which must then stay. */
function isNameOf({ directory, name }: TemporaryName, file: StagedFile): boolean {
  try {
    const { dev, ino } = lstatSync(directory.pathOf(name), { bigint: true });
    return `${dev}:${ino}` === file.identity;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}

function isUnsupported(error: unknown): boolean {
  const code = errnoOf(error);
  return (
    code === 'ENOTSUP' || code === 'EOPNOTSUPP' || code === 'EISDIR' || code === 'EINVAL' || code === 'ENOENT'
  );
}
