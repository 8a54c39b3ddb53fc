import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Home } from '../../store/home.ts';
import { removeTree } from '../../store/remove-tree.ts';
import { LineageLocks } from './lineage-locks.ts';
import { LineageStore } from './lineage-store.ts';

/** How long a store that nobody uses stays open: its indexes take memory, and reading them again time. */
const UNUSED_MS = 300_000;

interface Kept {
  readonly opening: Promise<LineageStore>;
  users: number;
  closing: NodeJS.Timeout | null;
}

/** The stores of all lineages, opened at their first use. Every use holds the lineage's lock: see `LineageLocks`. */
export class LineageStores {
  readonly #home: Pick<Home, 'store' | 'lineage'>;
  readonly #locks = new LineageLocks();
  readonly #open = new Map<string, Kept>();

  constructor(home: Pick<Home, 'store' | 'lineage'>) {
    this.#home = home;
  }

  /** Objects that are there stay there until `act` has ended. */
  use<T>(lineage: string, act: (store: LineageStore) => Promise<T>): Promise<T> {
    return this.#locks.shared(lineage, () => this.#with(lineage, act));
  }

  /** Nobody else uses it meanwhile: for taking objects away. */
  useExclusively<T>(lineage: string, act: (store: LineageStore) => Promise<T>): Promise<T> {
    return this.#locks.exclusive(lineage, () => this.#with(lineage, act));
  }

  /** Everything of a lineage, where `still` says so once nobody uses it. Killed in between, it is called again. */
  async remove(lineage: string, still: () => boolean): Promise<boolean> {
    return await this.#locks.exclusive(lineage, async () => {
      if (!still()) return false;
      await this.#forget(lineage);
      await removeTree(this.#home.lineage(lineage));
      return true;
    });
  }

  /** Folders there are, whether or not anybody knows their lineages. */
  async lineages(): Promise<string[]> {
    return (await readdir(this.#home.store)).sort();
  }

  /** Takes away what an earlier supervisor had begun to receive. Before the first use. */
  async clearIncoming(): Promise<void> {
    for (const lineage of await this.lineages()) {
      await removeTree(join(this.#home.lineage(lineage), 'incoming'));
    }
  }

  /** After the last use. */
  async close(): Promise<void> {
    for (const lineage of [...this.#open.keys()]) await this.#forget(lineage);
  }

  async #with<T>(lineage: string, act: (store: LineageStore) => Promise<T>): Promise<T> {
    let kept = this.#open.get(lineage);
    if (kept === undefined) {
      kept = { opening: LineageStore.open(this.#home.lineage(lineage)), users: 0, closing: null };
      this.#open.set(lineage, kept);
    }
    const mine = kept;
    if (mine.closing !== null) clearTimeout(mine.closing);
    mine.closing = null;
    mine.users += 1;
    try {
      return await act(await mine.opening);
    } finally {
      mine.users -= 1;
      if (mine.users === 0 && this.#open.get(lineage) === mine) {
        mine.closing = setTimeout(() => void this.#forget(lineage), UNUSED_MS).unref();
      }
    }
  }

  async #forget(lineage: string): Promise<void> {
    const kept = this.#open.get(lineage);
    if (kept === undefined) return;
    this.#open.delete(lineage);
    if (kept.closing !== null) clearTimeout(kept.closing);
    await kept.opening.then(
      (store) => store.close(),
      () => undefined,
    );
  }
}
