import type { Hash } from '../../snapshot-format/objects.ts';

/** A lease ends this long after the last use of its tree. */
const LEASE_MS = 10 * 60_000;

/** Trees without a snapshot that a client still pages through: garbage collection keeps their objects. */
export class LeasedRoots {
  readonly #now: () => number;
  readonly #leases = new Map<string, { lineage: string; root: Hash; until: number }>();

  /** `now`: ms since 1970. */
  constructor(now: () => number) {
    this.#now = now;
  }

  lease(lineage: string, root: Hash): void {
    this.#expire();
    const until = this.#now() + LEASE_MS;
    this.#leases.set(`${lineage} ${root.toString('hex')}`, { lineage, root, until });
  }

  listByLineage(lineage: string): Hash[] {
    this.#expire();
    return [...this.#leases.values()].filter((one) => one.lineage === lineage).map(({ root }) => root);
  }

  #expire(): void {
    for (const [key, { until }] of this.#leases) if (until < this.#now()) this.#leases.delete(key);
  }
}
