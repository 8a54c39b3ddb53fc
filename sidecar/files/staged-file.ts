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
/** Linux: a file without a name, gone with its last descriptor. */
const O_TMPFILE = 0o20000000 | O_DIRECTORY;
const writeAsync = promisify(writeCallback);
export const syncFile = promisify(fsync);
const dataSync = promisify(fdatasync);
const WRITE_BEHIND_BYTES = 8 * 2 ** 20;
/** Names are random: that one is taken means that somebody makes them up as fast as we do. */
const TRIES = 8;

/** A name that a staged file has for a moment. */
export interface TemporaryName {
  readonly directory: Directory;
  readonly name: Buffer;
}

/** Where temporary names come from, and who is to know of them. */
export interface TemporaryNames {
  readonly newName: () => Buffer;
  /** From now on there may be a file of that name; `identity` of it, null until it is made. */
  readonly register: (name: TemporaryName, identity: string | null) => void;
  /** There is none after all. */
  readonly unregister: (name: TemporaryName) => void;
}

/**
 * New content on its way to a name. Where the file system can, the file has no name until the last step, so that nothing is
 * left of it whoever is killed; else it has a temporary one from the start.
 */
export class StagedFile {
  readonly fd: number;
  /** Somebody replaced it while it had its place: it has no name any more, and cannot get one. */
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

  /** In `directory`, which stays the caller's. */
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

  /** What has come is brought to the disk while more is coming, so that the end of it need not wait for all. */
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

  /** Grows by a hole. */
  skipTo(size: number): void {
    this.#size = size;
  }

  /** Gives it its permissions and group. A group that is not ours to give is left out. */
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

  /** Everything written is on the disk. */
  async sync(): Promise<void> {
    await this.#behind;
    // The system says it once: a later fsync would not repeat that something could not be written.
    if (this.#failure !== null) throw this.#failure.error;
    await syncFile(this.fd);
  }

  /** Gives it a temporary name beside its place, if it has none yet. */
  linkTemporaryName(directory: Directory, native: Native, names: TemporaryNames): TemporaryName {
    this.#temporary ??= withFreeName(directory, names, (temporary) => {
      names.register(temporary, this.identity);
      native.linkDescriptor(this.fd, directory.fd, temporary.name);
      return temporary;
    });
    return this.#temporary;
  }

  /** The temporary name is now that of something else, or of nothing: it is not ours to remove. */
  releaseName(): void {
    this.#temporary?.directory.close();
    this.#temporary = null;
  }

  /** Lets go; a temporary name that it still has is removed. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const temporary = this.#temporary;
    try {
      if (temporary !== null && isNameOf(temporary, this)) unlinkTemporaryName(temporary);
    } finally {
      this.releaseName();
      // A descriptor that is still being synced must not become another file's.
      if (this.#behind === null) closeSync(this.fd);
      else void this.#behind.then(() => closeSync(this.fd));
    }
  }
}

/** Makes something of a new name; where somebody has that name already, of another one. */
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

/** Another descriptor of the same folder. */
export function reopenDirectory(directory: Directory): Directory {
  return Directory.fromFd(openSync(directory.selfPath, O_PATH | O_DIRECTORY));
}

/** False where somebody else's file got that name: it is not ours to remove. */
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
