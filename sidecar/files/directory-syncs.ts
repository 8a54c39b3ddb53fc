import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { errnoOf, type Directory } from './directory.ts';
import { syncFile } from './staged-file.ts';

interface Syncs {
  readonly current: Promise<void>;
  /** Begins after the current one. */
  next: Promise<void> | null;
}

/**
 * Syncs of directory entries to the disk. A sync covers what was there when it began, so those who come while one runs share
 * the next one: many small files of a folder then cost a few syncs of it.
 */
export class DirectorySyncs {
  readonly #sync: (fd: number) => Promise<void>;
  readonly #running = new Map<string, Syncs>();

  /** `sync`: for tests. */
  constructor(sync: (fd: number) => Promise<void> = syncFile) {
    this.#sync = sync;
  }

  /**
   * Resolves once the entries that the directory has now are on the disk. The caller keeps `directory` open until then. If it cannot be
   * opened for reading, its entries are written when the system gets to it.
   */
  async sync(directory: Directory): Promise<void> {
    let fd: number;
    try {
      fd = openSync(directory.selfPath, constants.O_RDONLY | constants.O_DIRECTORY);
    } catch (error) {
      if (errnoOf(error) === 'EACCES') return;
      throw error;
    }
    try {
      const { dev, ino } = fstatSync(fd, { bigint: true });
      await this.#shared(`${dev}:${ino}`, fd);
    } finally {
      closeSync(fd);
    }
  }

  #shared(key: string, fd: number): Promise<void> {
    const running = this.#running.get(key);
    if (running === undefined) return this.#begin(key, fd);
    running.next ??= running.current.catch(() => undefined).then(() => this.#begin(key, fd));
    return running.next;
  }

  #begin(key: string, fd: number): Promise<void> {
    const current = this.#sync(fd);
    const syncs: Syncs = { current, next: null };
    this.#running.set(key, syncs);
    const end = (): void => {
      if (syncs.next === null && this.#running.get(key) === syncs) this.#running.delete(key);
    };
    current.then(end, end);
    return current;
  }
}
