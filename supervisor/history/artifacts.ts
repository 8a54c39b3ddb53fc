import {
  closeSync,
  constants,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeSync,
} from 'node:fs';
import { copyFile, mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { syncDirectory } from '../store/home.ts';
import type { Home } from '../store/home.ts';
import { hasErrorCode, storageError } from '../store/storage-error.ts';

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW, COPYFILE_FICLONE } = constants;

/** Append-only files for outputs that are too large for the event log. */
export class Artifacts {
  readonly #home: Home;

  constructor(home: Home) {
    this.#home = home;
  }

  /**
   * Writes `bytes` at exactly `offset`. Bytes that a crash left beyond `offset` are cut off first; a gap before it is
   * an `internal` error. Durable after `sync`. Errors: `no_space`.
   */
  append(sessionId: string, name: string, offset: number, bytes: Uint8Array): void {
    const path = this.#home.artifact(sessionId, name);
    this.#withTypedErrors(`The artifact ${name} could not be written`, () => {
      const descriptor = openForWriting(path);
      try {
        const { size } = fstatSync(descriptor);
        if (size < offset) {
          throw new HoldfastError('internal', `The artifact ${name} has a gap`, {
            why: `it ends at ${size} and the next bytes are for ${offset}`,
          });
        }
        if (size > offset) ftruncateSync(descriptor, offset);
        let written = 0;
        while (written < bytes.length) {
          written += writeSync(descriptor, bytes, written, bytes.length - written, offset + written);
        }
      } finally {
        closeSync(descriptor);
      }
    });
  }

  /** Makes appended bytes durable. */
  sync(sessionId: string, name: string): void {
    this.#withTypedErrors(`The artifact ${name} could not be made durable`, () => {
      const descriptor = openSync(this.#home.artifact(sessionId, name), O_WRONLY | O_NOFOLLOW);
      try {
        fdatasyncSync(descriptor);
      } finally {
        closeSync(descriptor);
      }
    });
  }

  /** Like `sync`, for more bytes than the supervisor should wait for. */
  async syncLarge(sessionId: string, name: string): Promise<void> {
    try {
      const file = await open(this.#home.artifact(sessionId, name), O_WRONLY | O_NOFOLLOW);
      try {
        await file.datasync();
      } finally {
        await file.close();
      }
    } catch (error) {
      throw storageError(error, `The artifact ${name} could not be made durable`);
    }
  }

  /** Up to `limit` bytes from `offset`; fewer at the end. Errors: `not_found`. */
  read(sessionId: string, name: string, offset: number, limit: number): Buffer {
    return this.#withTypedErrors(`The artifact ${name} could not be read`, () => {
      const descriptor = openSync(this.#home.artifact(sessionId, name), O_RDONLY | O_NOFOLLOW);
      try {
        const wanted = Math.max(0, Math.min(limit, fstatSync(descriptor).size - offset));
        const bytes = Buffer.allocUnsafe(wanted);
        let read = 0;
        while (read < wanted) {
          const got = readSync(descriptor, bytes, read, wanted - read, offset + read);
          if (got === 0) break;
          read += got;
        }
        return bytes.subarray(0, read);
      } finally {
        closeSync(descriptor);
      }
    });
  }

  /** Size in bytes; 0 for a missing artifact. */
  size(sessionId: string, name: string): number {
    return this.#withTypedErrors(
      `The size of the artifact ${name} could not be read`,
      () => statSync(this.#home.artifact(sessionId, name), { throwIfNoEntry: false })?.size ?? 0,
    );
  }

  /**
   * Copies the first `bytes` of an artifact to another session, durably. A missing artifact is skipped. Errors:
   * `no_space`.
   */
  async copy(
    from: { readonly sessionId: string; readonly name: string },
    to: { readonly sessionId: string; readonly name: string },
    bytes: number,
  ): Promise<void> {
    const directory = this.#home.artifactsDirectory(to.sessionId);
    try {
      if ((await mkdir(directory, { recursive: true, mode: 0o700 })) !== undefined)
        syncDirectory(dirname(directory));
      const path = this.#home.artifact(to.sessionId, to.name);
      await copyFile(this.#home.artifact(from.sessionId, from.name), path, COPYFILE_FICLONE);
      const file = await open(path, 'r+');
      try {
        await file.truncate(bytes);
        await file.datasync();
      } finally {
        await file.close();
      }
      syncDirectory(directory);
    } catch (error) {
      if (hasErrorCode(error, 'ENOENT')) return;
      throw storageError(error, `The artifact ${from.name} could not be copied`);
    }
  }

  /** The sessions that have artifacts. */
  sessionIds(): string[] {
    return this.#withTypedErrors('The artifacts could not be listed', () =>
      readdirSync(this.#home.artifacts),
    );
  }

  /** Empty for a session that has no artifacts any more. */
  names(sessionId: string): string[] {
    return this.#withTypedErrors(`The artifacts of ${sessionId} could not be listed`, () => {
      try {
        return readdirSync(this.#home.artifactsDirectory(sessionId));
      } catch (error) {
        if (hasErrorCode(error, 'ENOENT')) return [];
        throw error;
      }
    });
  }

  /** Cuts an artifact off after `bytes`; removes it at 0. */
  truncate(sessionId: string, name: string, bytes: number): void {
    this.#withTypedErrors(`The artifact ${name} could not be truncated`, () => {
      const path = this.#home.artifact(sessionId, name);
      if (bytes === 0) rmSync(path, { force: true });
      else truncateSync(path, bytes);
    });
  }

  /** Removes all artifacts of a session. */
  remove(sessionId: string): void {
    this.#withTypedErrors(`The artifacts of ${sessionId} could not be removed`, () => {
      rmSync(this.#home.artifactsDirectory(sessionId), { recursive: true, force: true });
    });
  }

  #withTypedErrors<T>(what: string, fn: () => T): T {
    try {
      return fn();
    } catch (error) {
      if (hasErrorCode(error, 'ENOENT'))
        throw new HoldfastError('not_found', what, { why: 'there is no such file', cause: error });
      throw storageError(error, what);
    }
  }
}

function openForWriting(path: string): number {
  try {
    return openSync(path, O_WRONLY | O_NOFOLLOW);
  } catch (error) {
    if (!hasErrorCode(error, 'ENOENT')) throw error;
  }
  const directory = dirname(path);
  // A file is lost with all its bytes unless its directory entry is durable too.
  if (mkdirSync(directory, { recursive: true, mode: 0o700 }) !== undefined) syncDirectory(dirname(directory));
  const descriptor = openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    syncDirectory(directory);
    return descriptor;
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
}
