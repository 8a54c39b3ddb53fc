import { HoldfastError } from '../../protocol/errors.ts';
import type { ScanResult, StateScope } from '../../snapshot-format/sidecar-calls.ts';
import type { SnapshotCallOptions, SnapshotConnection } from './connection.ts';
import type { IncomingPacks } from './store/incoming-packs.ts';
import type { LineageStore } from './store/lineage-store.ts';

export interface ScannedTrees {
  readonly scan: ScanResult;
  /** The agent's state; null if the profile names none. */
  readonly state: ScanResult | null;
  /** The state was the same before and after the scan of the workspace: both trees are from one moment. */
  readonly isStateStable: boolean;
}

/** The trees that the next scans start from, as hashes of their roots; null: share nothing with the store. */
export interface Bases {
  readonly workspace: string | null;
  readonly state: string | null;
}

export interface SessionTreesOptions {
  readonly connection: SnapshotConnection;
  readonly store: LineageStore;
  readonly incoming: IncomingPacks;
  readonly options: SnapshotCallOptions;
  readonly bases: Bases;
  /** Null: only the workspace. */
  readonly scope: StateScope | null;
}

interface ScanParams {
  readonly frozen: boolean;
  readonly budgetBytes: number | null;
  readonly awaitsLeases: boolean;
  readonly isBaseSuspect: boolean;
}

/** Scans the workspace and the agent's state of one session for one snapshot. */
export class SessionTrees {
  readonly #options: SessionTreesOptions;
  #bases: Bases;

  constructor(options: SessionTreesOptions) {
    this.#options = options;
    this.#bases = options.bases;
  }

  /** A base that cannot be read is dropped: a full scan makes at least this snapshot readable. */
  async scan(params: ScanParams): Promise<ScannedTrees> {
    // While the agent runs, equal states before and after prove what the state was during the scan in between.
    const before = params.frozen ? null : await this.#scanState(params);
    const scan = await this.#scanOne('workspace', params, null);
    const state = await this.#scanState(params);
    return { scan, state, isStateStable: state === null || isStable(before, state, params.frozen) };
  }

  /** Makes what was received durable. What is complete is the base of the next scans, and is not read again. */
  async publish({ scan, state }: ScannedTrees): Promise<void> {
    const { incoming } = this.#options;
    if (scan.complete) {
      await incoming.publish(scan.root);
      this.#bases = { ...this.#bases, workspace: scan.root };
    }
    if (state?.complete === true) {
      await incoming.publish(state.root);
      this.#bases = { ...this.#bases, state: state.root };
    }
  }

  async #scanState(params: ScanParams): Promise<ScanResult | null> {
    const { scope } = this.#options;
    return scope === null ? null : await this.#scanOne('state', params, scope);
  }

  async #scanOne(tree: keyof Bases, params: ScanParams, state: StateScope | null): Promise<ScanResult> {
    const { connection, store, incoming, options } = this.#options;
    const scan = (): Promise<ScanResult> =>
      connection.scan({ ...params, base: this.#bases[tree], state }, store, incoming, options);
    try {
      return await scan();
    } catch (error) {
      const isDamaged = error instanceof HoldfastError && error.code === 'snapshot_damaged';
      if (!isDamaged || this.#bases[tree] === null) throw error;
      this.#bases = { ...this.#bases, [tree]: null };
      return await scan();
    }
  }
}

function isStable(before: ScanResult | null, after: ScanResult, frozen: boolean): boolean {
  if (!after.complete || after.changedDuringScan) return false;
  return frozen || (before !== null && !before.changedDuringScan && before.root === after.root);
}
