import { closeSync, fsyncSync, openSync, renameSync, rmSync, statSync, writeSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Home } from './home.ts';
import { storageError } from './storage-error.ts';

const RESERVE_BYTES = 8 * 2 ** 20;

/**
 * A file that only takes up space. On a full disk it is deleted, so that deleting and cancelling, which first write
 * intents, events and rows, still work.
 */
export class DiskReserve {
  readonly #path: string;

  constructor(home: Home) {
    this.#path = home.reserve;
  }

  /** Creates the file if it is missing. False if the disk has no space for it now. */
  ensure(): boolean {
    if (this.#isThere()) return true;
    const temporary = `${this.#path}.part`;
    try {
      const descriptor = openSync(temporary, 'w', 0o600);
      try {
        const block = Buffer.alloc(2 ** 20);
        for (let written = 0; written < RESERVE_BYTES;) written += writeSync(descriptor, block);
        fsyncSync(descriptor);
      } finally {
        closeSync(descriptor);
      }
      renameSync(temporary, this.#path);
      return true;
    } catch (error) {
      rmSync(temporary, { force: true });
      const failure = storageError(error, 'The reserve of the home could not be made');
      if (failure.code === 'no_space') return false;
      throw failure;
    }
  }

  /**
   * Runs `fn`; if the disk is full, deletes the file and runs it again. Only for operations that free space or stop
   * its use.
   */
  retryOnFullDisk<T>(fn: () => T): T {
    try {
      return fn();
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'no_space' || !this.#isThere()) throw error;
      rmSync(this.#path, { force: true });
      return fn();
    }
  }

  #isThere(): boolean {
    return statSync(this.#path, { throwIfNoEntry: false }) !== undefined;
  }
}
