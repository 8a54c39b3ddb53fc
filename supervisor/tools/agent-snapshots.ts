import { HoldfastError } from '../../protocol/errors.ts';
import { KeyedMutex } from '../base/keyed-mutex.ts';
import type { SnapshotMaintenance } from '../snapshots/maintenance.ts';
import type { SnapshotCreation } from '../snapshots/snapshot-creation.ts';
import type { CreatedSnapshot } from '../snapshots/snapshot-records.ts';
import type { Snapshots } from '../store/snapshots.ts';

const MIB = 2 ** 20;
const DAY_MS = 86_400_000;
/** What an agent's snapshots leave of the home's disk for everything else. */
const MIN_FREE_BYTES = 2048 * MIB;
/** So many times what a session may hold can be stored in a day. */
const BUDGET_FACTOR = 2;

export interface AgentSnapshotsOptions {
  readonly snapshots: Pick<Snapshots, 'listBySession'>;
  readonly snapshotCreation: Pick<SnapshotCreation, 'create'>;
  readonly maintenance: Pick<SnapshotMaintenance, 'thinSession'>;
  /** Bytes that a snapshot of the session may hold; null: no limit. */
  readonly limitOf: (sessionId: string) => number | null;
  /** Free bytes of the disk with the snapshots. */
  readonly freeBytes: () => Promise<number>;
  /** ms since 1970. */
  readonly now: () => number;
}

/**
 * Snapshots that an agent asks for, one at a time per session. The agent is not to fill the disk with them: only the newest of them stay,
 * and what they store has a budget, because the bytes of those that are gone are given back later.
 */
export class AgentSnapshots {
  readonly #options: AgentSnapshotsOptions;
  readonly #mutex = new KeyedMutex();
  /** By session: bytes stored, less what a day has forgiven since. */
  readonly #stored = new Map<string, { readonly bytes: number; readonly at: number }>();

  constructor(options: AgentSnapshotsOptions) {
    this.#options = options;
  }

  /** Errors: `overloaded` beyond the budget, `no_space`, those of a snapshot. */
  async create(sessionId: string, label: string | undefined, signal: AbortSignal): Promise<CreatedSnapshot> {
    return await this.#mutex.run(sessionId, async () => {
      const { snapshotCreation, maintenance, now } = this.#options;
      signal.throwIfAborted();
      await this.#requireSpace();
      const stored = this.#requireBudget(sessionId);
      const made = await snapshotCreation.create(sessionId, { reason: 'agent', label, signal });
      if (made === null) throw new HoldfastError('internal', 'No snapshot was created');
      if (made.created) {
        this.#stored.set(sessionId, { bytes: stored + made.row.newBytes, at: now() });
        maintenance.thinSession(sessionId);
      }
      return made;
    });
  }

  async #requireSpace(): Promise<void> {
    if ((await this.#options.freeBytes()) >= MIN_FREE_BYTES) return;
    throw new HoldfastError('no_space', 'No snapshot was created', {
      why: `the disk has less than the ${MIN_FREE_BYTES / MIB} MiB free that snapshots of an agent leave`,
      next: 'continue without one, or tell the person',
    });
  }

  /** The bytes that count against the budget now. */
  #requireBudget(sessionId: string): number {
    const { limitOf, now } = this.#options;
    const limit = limitOf(sessionId);
    const at = now();
    const before = this.#stored.get(sessionId) ?? { bytes: this.#storedLately(sessionId, at), at };
    if (limit === null) return before.bytes;
    const budget = BUDGET_FACTOR * limit;
    const bytes = Math.max(0, before.bytes - (Math.max(0, at - before.at) / DAY_MS) * budget);
    this.#stored.set(sessionId, { bytes, at });
    if (bytes < budget) return bytes;
    throw new HoldfastError('overloaded', 'No snapshot was created', {
      why: `those of this agent have stored ${Math.floor(bytes / MIB)} MiB lately, and ${Math.floor(budget / MIB)} MiB a day are allowed`,
      next: 'continue without one; a person can create one at any time',
    });
  }

  /** What an earlier supervisor stored. */
  #storedLately(sessionId: string, at: number): number {
    return this.#options.snapshots
      .listBySession(sessionId)
      .filter(({ reason, createdAt }) => reason === 'agent' && at - createdAt < DAY_MS)
      .reduce((sum, { newBytes }) => sum + newBytes, 0);
  }
}
