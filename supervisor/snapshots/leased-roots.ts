import type { Hash } from '../../snapshot-format/objects.ts';

/** How long after its last use. */
const HELD_MS = 10 * 60_000;

/** Trees that no snapshot is of and that are still looked at, page by page: what they need is not collected. */
export class LeasedRoots {
  readonly #now: () => number;
  readonly #until = new Map<string, { lineage: string; root: Hash; until: number }>();

  /** `now`: ms since 1970. */
  constructor(now: () => number) {
    this.#now = now;
  }

  lease(lineage: string, root: Hash): void {
    this.#expire();
    const until = this.#now() + HELD_MS;
    this.#until.set(`${lineage} ${root.toString('hex')}`, { lineage, root, until });
  }

  listByLineage(lineage: string): Hash[] {
    this.#expire();
    return [...this.#until.values()].filter((one) => one.lineage === lineage).map(({ root }) => root);
  }

  #expire(): void {
    for (const [key, { until }] of this.#until) if (until < this.#now()) this.#until.delete(key);
  }
}
