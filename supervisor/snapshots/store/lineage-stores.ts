import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Home } from '../../store/home.ts';
import { removeTree } from '../../store/remove-tree.ts';
import { LineageLocks } from './lineage-locks.ts';
import { LineageStore } from './lineage-store.ts';

/** How long an unused store stays open. Open indexes take memory; reading them again takes time. */
const IDLE_TIMEOUT_MS = 300_000;

interface OpenStore {
  readonly opening: Promise<LineageStore>;
  users: number;
  closeTimer: NodeJS.Timeout | null;
}

/** The stores of all lineages, opened on first use. Every use holds the lineage's lock: see `LineageLocks`. */
export class LineageStores {
  readonly #home: Pick<Home, 'store' | 'lineage'>;
  readonly #locks = new LineageLocks();
  readonly #open = new Map<string, OpenStore>();

  constructor(home: Pick<Home, 'store' | 'lineage'>) {
    this.#home = home;
  }

  /** Runs `act` under the shared lock: no stored object is removed meanwhile. */
  use<T>(lineage: string, act: (store: LineageStore) => Promise<T>): Promise<T> {
    return this.#locks.shared(lineage, () => this.#runWith(lineage, act));
  }

  /** Runs `act` under the exclusive lock, for removing objects. */
  useExclusively<T>(lineage: string, act: (store: LineageStore) => Promise<T>): Promise<T> {
    return this.#locks.exclusive(lineage, () => this.#runWith(lineage, act));
  }

  /**
   * Removes the whole store of a lineage if `isUnused` still returns true once nobody uses it. If the supervisor is
   * killed meanwhile, the next one calls this again.
   */
  async remove(lineage: string, isUnused: () => boolean): Promise<boolean> {
    return await this.#locks.exclusive(lineage, async () => {
      if (!isUnused()) return false;
      await this.#closeStore(lineage);
      await removeTree(this.#home.lineage(lineage));
      return true;
    });
  }

  /** The lineages that have a directory, even without a row. */
  async lineages(): Promise<string[]> {
    return (await readdir(this.#home.store)).sort();
  }

  /** Removes incomplete packs of an earlier supervisor. Called before the first use. */
  async clearIncoming(): Promise<void> {
    for (const lineage of await this.lineages()) {
      await removeTree(join(this.#home.lineage(lineage), 'incoming'));
    }
  }

  /** Called after the last use. */
  async close(): Promise<void> {
    for (const lineage of [...this.#open.keys()]) await this.#closeStore(lineage);
  }

  async #runWith<T>(lineage: string, act: (store: LineageStore) => Promise<T>): Promise<T> {
    let entry = this.#open.get(lineage);
    if (entry === undefined) {
      entry = { opening: LineageStore.open(this.#home.lineage(lineage)), users: 0, closeTimer: null };
      this.#open.set(lineage, entry);
    }
    const mine = entry;
    if (mine.closeTimer !== null) clearTimeout(mine.closeTimer);
    mine.closeTimer = null;
    mine.users += 1;
    try {
      return await act(await mine.opening);
    } finally {
      mine.users -= 1;
      if (mine.users === 0 && this.#open.get(lineage) === mine) {
        mine.closeTimer = setTimeout(() => void this.#closeStore(lineage), IDLE_TIMEOUT_MS).unref();
      }
    }
  }

  async #closeStore(lineage: string): Promise<void> {
    const entry = this.#open.get(lineage);
    if (entry === undefined) return;
    this.#open.delete(lineage);
    if (entry.closeTimer !== null) clearTimeout(entry.closeTimer);
    await entry.opening.then(
      (store) => store.close(),
      () => undefined,
    );
  }
}
