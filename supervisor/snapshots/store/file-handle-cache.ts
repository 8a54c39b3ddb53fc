import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

const { O_RDONLY, O_NOFOLLOW } = constants;

interface Opened {
  readonly handle: Promise<FileHandle>;
  users: number;
}

/** Files that are read again and again. Of those that nobody reads now, at most so many stay open: the ones that were read last. */
export class FileHandleCache {
  readonly #most: number;
  readonly #open = new Map<string, Opened>();

  constructor(most: number) {
    this.#most = most;
  }

  async use<T>(path: string, act: (handle: FileHandle) => Promise<T>): Promise<T> {
    const one = this.#open.get(path) ?? { handle: open(path, O_RDONLY | O_NOFOLLOW), users: 0 };
    // The last in the map is the last that was used.
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
      await this.#closeMore();
    }
  }

  /** Nobody reads it now. */
  async close(path: string): Promise<void> {
    const one = this.#open.get(path);
    this.#open.delete(path);
    await one?.handle.then(
      (handle) => handle.close(),
      () => undefined, // it was never open
    );
  }

  async closeAll(): Promise<void> {
    for (const path of [...this.#open.keys()]) await this.close(path);
  }

  async #closeMore(): Promise<void> {
    if (this.#open.size <= this.#most) return;
    for (const [path, { users }] of [...this.#open]) {
      // While another one was closed it may have gone, and come again.
      if (users === 0 && this.#open.get(path)?.users === 0) await this.close(path);
      if (this.#open.size <= this.#most) return;
    }
  }
}
