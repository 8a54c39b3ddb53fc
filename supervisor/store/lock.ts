import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Home } from './home.ts';
import { hasErrorCode, sqliteCode, storageError } from './storage-error.ts';

const BUSY = 5;
const HolderSchema = z.object({ pid: z.number().int(), since: z.string() });

/**
 * Ensures that one supervisor at most uses a home. The lock is an exclusive transaction that is never committed, so
 * the kernel releases it when the process dies, however it dies. Nothing else in this process may open the lock file:
 * closing any descriptor of it would release the lock.
 */
export class HomeLock {
  readonly #database: DatabaseSync;
  readonly #holderFile: string;

  private constructor(database: DatabaseSync, holderFile: string) {
    this.#database = database;
    this.#holderFile = holderFile;
  }

  /** Waits up to `waitMs` and blocks the thread. Errors: `home_locked` (names the holder), `no_space`, `internal`. */
  static acquire(home: Home, options: { waitMs: number }): HomeLock {
    let database: DatabaseSync;
    try {
      database = new DatabaseSync(home.lock, { timeout: options.waitMs });
    } catch (error) {
      throw storageError(error, `The lock of ${home.root} could not be opened`);
    }
    try {
      database.exec('BEGIN EXCLUSIVE');
      publishHolder(home.holder);
      return new HomeLock(database, home.holder);
    } catch (error) {
      database.close();
      if (sqliteCode(error) !== BUSY) throw storageError(error, `The home ${home.root} could not be locked`);
      const holder = readHolder(home.holder);
      throw new HoldfastError('home_locked', `Another supervisor is using ${home.root}`, {
        why:
          holder === null ? 'it holds the lock' : `process ${holder.pid} has held it since ${holder.since}`,
        next: 'use that supervisor, or stop it with `holdfast supervisor stop`',
        ...(holder === null ? {} : { details: { pid: holder.pid } }),
        cause: error,
      });
    }
  }

  /** Releases the lock. A second call does nothing. */
  release(): void {
    if (!this.#database.isOpen) return;
    rmSync(this.#holderFile, { force: true });
    this.#database.close();
  }
}

/** The holder by its own account; used only in a message. */
function readHolder(file: string): z.infer<typeof HolderSchema> | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    // The holder writes this file after it has acquired the lock, so it may be missing for a moment.
    if (hasErrorCode(error, 'ENOENT')) return null;
    throw error;
  }
  return HolderSchema.parse(JSON.parse(text));
}

function publishHolder(file: string): void {
  const temporary = `${file}.${process.pid}`;
  writeFileSync(temporary, JSON.stringify({ pid: process.pid, since: new Date().toISOString() }), {
    mode: 0o600,
  });
  renameSync(temporary, file);
}
