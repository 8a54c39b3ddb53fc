import type { FileStat } from 'vscode';

const MAX_STATS = 5_000;

/** The last known stats of files, for the time while the supervisor does not answer. */
export class StatCache {
  readonly #stats = new Map<string, FileStat>();

  set(key: string, stat: FileStat): void {
    this.#stats.delete(key);
    this.#stats.set(key, stat);
    if (this.#stats.size <= MAX_STATS) return;
    const [oldest] = this.#stats.keys();
    if (oldest !== undefined) this.#stats.delete(oldest);
  }

  get size(): number {
    return this.#stats.size;
  }

  get(key: string): FileStat | undefined {
    return this.#stats.get(key);
  }
}
