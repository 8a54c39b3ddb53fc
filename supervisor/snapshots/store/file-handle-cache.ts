import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

const { O_RDONLY, O_NOFOLLOW } = constants;

interface OpenFile {
  readonly handle: Promise<FileHandle>;
  users: number;
}

/**
 * Keeps files open that are read repeatedly. When more than `maxOpen` are open, the least recently used idle ones are
 * closed.
 */
export class FileHandleCache {
  readonly #maxOpen: number;
  readonly #open = new Map<string, OpenFile>();

  constructor(maxOpen: number) {
    this.#maxOpen = maxOpen;
  }

  async use<T>(path: string, act: (handle: FileHandle) => Promise<T>): Promise<T> {
    const one = this.#open.get(path) ?? { handle: open(path, O_RDONLY | O_NOFOLLOW), users: 0 };
    // The map is ordered by last use.
    this.#open.delete(path);
    this.#open.set(path, one);
    one.users += 1;
    try {
      return await act(await one.handle);
    } catch (error) {
      if (this.#open.get(path) === one && one.users === 1) await this.close(path);
      throw error;
    } finally {
      one.users -= 1;
      await this.#closeIdle();
    }
  }

  /** Closes a file that nobody is reading. */
  async close(path: string): Promise<void> {
    const one = this.#open.get(path);
    this.#open.delete(path);
    await one?.handle.then(
      (handle) => handle.close(),
      () => undefined, // opening it had failed
    );
  }

  async closeAll(): Promise<void> {
    for (const path of [...this.#open.keys()]) await this.close(path);
  }

  async #closeIdle(): Promise<void> {
    if (this.#open.size <= this.#maxOpen) return;
    for (const [path, { users }] of [...this.#open]) {
      // While another file was closed, this one may have been closed and reopened.
      if (users === 0 && this.#open.get(path)?.users === 0) await this.close(path);
      if (this.#open.size <= this.#maxOpen) return;
    }
  }
}
