import type { FileStat } from 'vscode';

const MOST = 5_000;

/** What files were when they were last seen: all there is to say of them while nobody answers. */
export class StatCache {
  readonly #stats = new Map<string, FileStat>();

  set(key: string, stat: FileStat): void {
    this.#stats.delete(key);
    this.#stats.set(key, stat);
    if (this.#stats.size <= MOST) return;
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
