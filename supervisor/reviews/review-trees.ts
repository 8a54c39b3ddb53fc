import { statfs } from 'node:fs/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Hash, type ObjectReader, parseHash } from '../../snapshot-format/objects.ts';
import type { Home } from '../store/home.ts';
import type { DecisionState, ReviewRow } from '../store/reviews.ts';
import { IncomingPacks, MIN_FREE_MIB } from '../snapshots/store/incoming-packs.ts';
import type { LineageStore } from '../snapshots/store/lineage-store.ts';
import type { LineageStores } from '../snapshots/store/lineage-stores.ts';
import { acceptedEdits } from './accepted-edits.ts';
import { editTree, type TreeEdit } from './accepted-tree.ts';
import { collectUnits, type ReviewUnit } from './review-units.ts';
import { NewObjects } from './store-objects.ts';

/** The changed paths of two trees. */
export interface ComparedTrees {
  readonly baseRoot: string;
  readonly targetRoot: string;
  /** The most dangerous first. */
  readonly units: readonly ReviewUnit[];
  readonly byKey: ReadonlyMap<string, ReviewUnit>;
}

type Trees = Pick<ReviewRow, 'lineage' | 'baseRoot' | 'targetRoot'>;

/** How many comparisons are remembered. */
const MAX_REMEMBERED = 4;

/** The trees of reviews: what differs between two of them, and the one that is made of accepted changes. */
export class ReviewTrees {
  readonly #home: Pick<Home, 'store'>;
  readonly #stores: LineageStores;
  readonly #known = new Map<string, ComparedTrees>();

  constructor({ home, stores }: { readonly home: Pick<Home, 'store'>; readonly stores: LineageStores }) {
    this.#home = home;
    this.#stores = stores;
  }

  /** Runs `act` while no object of the lineage is removed. */
  use<T>(lineage: string, act: (store: LineageStore) => Promise<T>): Promise<T> {
    return this.#stores.use(lineage, act);
  }

  async compare(store: ObjectReader, trees: Trees, signal?: AbortSignal): Promise<ComparedTrees> {
    const { lineage, baseRoot, targetRoot } = trees;
    const key = [lineage, baseRoot, targetRoot].join(' ');
    const known = this.#known.get(key);
    this.#known.delete(key);
    const found = known ?? (await this.#compare(store, trees, signal));
    this.#known.set(key, found);
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MAX_REMEMBERED) break;
      this.#known.delete(oldest);
    }
    return found;
  }

  async #compare(
    store: ObjectReader,
    { baseRoot, targetRoot }: Trees,
    signal?: AbortSignal,
  ): Promise<ComparedTrees> {
    const roots = { before: parseHash(baseRoot), after: parseHash(targetRoot) };
    const units = await collectUnits(store, roots, signal);
    return { baseRoot, targetRoot, units, byKey: new Map(units.map((unit) => [unit.key, unit])) };
  }

  /**
   * Stores the tree of what is accepted and runs `record` with its root before any object of it can be collected. A
   * complete target of which everything is accepted is that tree itself, with its times.
   */
  async storeAccepted<T>(
    trees: Trees & { readonly isTargetComplete: boolean },
    decisions: ReadonlyMap<string, DecisionState>,
    record: (root: string) => T,
    signal?: AbortSignal,
  ): Promise<T> {
    const edits = async (objects: NewObjects, store: LineageStore): Promise<readonly TreeEdit[] | null> => {
      const { units } = await this.compare(store, trees, signal);
      const isAll = units.every(({ key }) => decisions.get(key)?.whole === 'accept');
      if (isAll && trees.isTargetComplete && units.length > 0) return null;
      return await acceptedEdits(units, decisions, objects);
    };
    return await this.storeEdited(trees, edits, record, signal);
  }

  /**
   * Stores the base with edits and runs `record` with its root before any object of it can be collected. `edits` null: the target
   * itself.
   */
  async storeEdited<T>(
    trees: Trees,
    edits: (objects: NewObjects, store: LineageStore) => Promise<readonly TreeEdit[] | null>,
    record: (root: string) => T,
    signal?: AbortSignal,
  ): Promise<T> {
    return await this.#stores.use(trees.lineage, async (store) => {
      const objects = new NewObjects(store);
      const chosen = await edits(objects, store);
      if (chosen === null) return record(trees.targetRoot);
      const root: Hash = await editTree(parseHash(trees.baseRoot), parseHash(trees.targetRoot), chosen, {
        reader: objects,
        sink: objects.add,
        signal,
      });
      if (chosen.length > 0) {
        const incoming = new IncomingPacks(store, () => this.#freeBytes());
        try {
          await objects.publish(incoming, root);
        } finally {
          await incoming.close();
        }
      }
      return record(root.toString('hex'));
    });
  }

  async #freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.#home.store);
    return Math.max(0, bavail * bsize - MIN_FREE_MIB * 2 ** 20);
  }
}

/** The unit of a path. Errors: `conflict` if it is not part of the review. */
export function unitAt({ byKey }: ComparedTrees, path: string): ReviewUnit {
  const unit = byKey.get(path);
  if (unit !== undefined) return unit;
  throw new HoldfastError('conflict', `${path} is not part of the review`, {
    why: 'it does not differ from the base, or goes with a folder above it',
    next: 'see `holdfast review SESSION`',
  });
}
