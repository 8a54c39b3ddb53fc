import { randomBytes } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { SECRET_LIMITS } from '../../protocol/secrets.ts';
import { syncDirectory } from '../store/home.ts';
import { hasErrorCode, storageError } from '../store/storage-error.ts';

const NAME = /^[0-9a-f]{32}$/;
/** More than any sealed value has. */
const MOST_BYTES = SECRET_LIMITS.maxBytes + 1024;

/** The files with sealed values: one folder, random names. */
export class SecretFiles {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** The file of the key is beside them. */
  get keyFile(): string {
    return join(this.#folder, 'key');
  }

  /** Writes a new file and returns its name once it is durable. Errors: `no_space`, `permission_denied`. */
  write(sealed: Buffer): string {
    const name = randomBytes(16).toString('hex');
    const temporary = join(this.#folder, `.${name}`);
    try {
      const descriptor = openSync(temporary, 'wx', 0o600);
      try {
        writeSync(descriptor, sealed);
        fsyncSync(descriptor);
      } finally {
        closeSync(descriptor);
      }
      renameSync(temporary, join(this.#folder, name));
      syncDirectory(this.#folder);
      return name;
    } catch (error) {
      rmSync(temporary, { force: true });
      throw storageError(error, 'The secret could not be written');
    }
  }

  /** Null if it is not there or cannot be one of ours. */
  read(name: string): Buffer | null {
    try {
      if (!NAME.test(name)) return null;
      const bytes = readFileSync(join(this.#folder, name));
      return bytes.length > MOST_BYTES ? null : bytes;
    } catch (error) {
      if (hasErrorCode(error, 'ENOENT')) return null;
      throw storageError(error, 'The secret could not be read');
    }
  }

  /**
   * Overwrites a file and removes it, durably. A file that is not there counts as removed. What copies of it a file
   * system or a disk keeps by itself stays out of reach; they are sealed.
   */
  destroy(name: string): void {
    const path = join(this.#folder, name);
    try {
      const descriptor = openSync(path, 'r+');
      try {
        const { size } = fstatSync(descriptor);
        writeSync(descriptor, randomBytes(Math.min(size, MOST_BYTES)), 0, undefined, 0);
        fsyncSync(descriptor);
      } finally {
        closeSync(descriptor);
      }
      unlinkSync(path);
      syncDirectory(this.#folder);
    } catch (error) {
      if (!hasErrorCode(error, 'ENOENT')) throw storageError(error, 'The secret could not be removed');
    }
  }

  /** Names of files with values, also of those that were being written when a supervisor died. */
  list(): string[] {
    return readdirSync(this.#folder).filter((name) => NAME.test(name.replace(/^\./, '')));
  }
}
