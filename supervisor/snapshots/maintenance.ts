import { RootHashSchema } from '../../snapshot-format/sidecar-calls.ts';
import { type Hash, parseHash } from '../../snapshot-format/objects.ts';
import type { SnapshotUsage } from '../../protocol/snapshots.ts';
import type { Garbage } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Operations } from '../store/operations.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { ReviewRows } from '../store/reviews.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { WorkspaceBases } from '../store/workspace-bases.ts';
import {
  type CollectOptions,
  collectLineage,
  type CollectionResult,
  planLineageCollection,
} from './gc/collect-lineage.ts';
import { SnapshotFiles } from './files/snapshot-files.ts';
import { uniqueBytes } from './gc/unique-bytes.ts';
import type { LeasedRoots } from './leased-roots.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { LineageStore } from './store/lineage-store.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import { snapshotsToThin } from './thinning.ts';
import { type VerifyResult, verifyTree } from './verify/verify-tree.ts';

const HOUR_MS = 3_600_000;
/** The first run comes early, for supervisors that live less than an hour. */
const FIRST_RUN_MS = 120_000;
const MIN_COUNT_INTERVAL_MS = 10_000;
const MAX_REPORTED_DAMAGES = 1000;

export interface SnapshotMaintenanceOptions {
  readonly snapshots: Snapshots;
  readonly reviewRows: Pick<ReviewRows, 'roots'>;
  readonly sessions: Sessions;
  readonly stores: LineageStores;
  readonly operations: Operations;
  readonly leasedRoots: LeasedRoots;
  readonly bases: Pick<WorkspaceBases, 'listByLineage'>;
  readonly reserve: DiskReserve;
  /** Deletes the row of a snapshot and records it in the history. */
  readonly remove: (row: SnapshotRow, why: string) => void;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Maintains the snapshot stores: thins out old snapshots, collects garbage, verifies, and measures disk use. */
export class SnapshotMaintenance {
  readonly #options: SnapshotMaintenanceOptions;
  /** By lineage: the snapshots that existed when it was last collected. */
  readonly #collected = new Map<string, string>();
  /**
   * By lineage: the bytes that only the snapshots of each session need, and the set of snapshots this was measured for.
   */
  readonly #measured = new Map<
    string,
    { readonly of: string; readonly bytes: ReadonlyMap<string, number> }
  >();
  /** By lineage: when that measurement was last requested. */
  readonly #requestedAt = new Map<string, number>();
  readonly #shutdown = new AbortController();
  #hourlyTimer: NodeJS.Timeout | null = null;
  #firstTimer: NodeJS.Timeout | null = null;
  #work: Promise<unknown> = Promise.resolve();

  constructor(options: SnapshotMaintenanceOptions) {
    this.#options = options;
  }

  start(): void {
    const run = (): void => void this.#enqueue(() => this.#hourly());
    this.#firstTimer = setTimeout(run, FIRST_RUN_MS).unref();
    this.#hourlyTimer = setInterval(run, HOUR_MS).unref();
  }

  async close(): Promise<void> {
    if (this.#hourlyTimer !== null) clearInterval(this.#hourlyTimer);
    if (this.#firstTimer !== null) clearTimeout(this.#firstTimer);
    this.#shutdown.abort(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
    await this.#work;
  }

  /** Deletes the snapshots that thinning selects. */
  thin(): void {
    const { snapshots } = this.#options;
    const ids = new Set(
      snapshots
        .listLineages()
        .flatMap((one) => snapshots.listByLineage(one).map(({ sessionId }) => sessionId)),
    );
    for (const sessionId of ids) this.thinSession(sessionId);
  }

  /** As `thin`, for one session. */
  thinSession(sessionId: string): void {
    const { snapshots, sessions, remove, log, now } = this.#options;
    const rows = snapshots.listBySession(sessionId);
    const bases = new Set(rows.map(({ id }) => id).filter((id) => sessions.listByOrigin(id).length > 0));
    const byId = new Map(rows.map((row) => [row.id, row]));
    for (const { id } of snapshotsToThin(rows, bases, now())) {
      const row = byId.get(id);
      try {
        if (row !== undefined) remove(row, 'thinned out');
      } catch (error) {
        log.warn('a snapshot could not be thinned out', { snapshot: id, error });
      }
    }
  }

  /**
   * Collects the garbage of every lineage; with `dryRun` only reports it. A lineage that fails is logged and skipped.
   */
  async collect(dryRun: boolean): Promise<Garbage[]> {
    const { log } = this.#options;
    if (!dryRun) this.thin();
    const found: Garbage[] = [];
    for (const lineage of this.#options.snapshots.listLineages()) {
      try {
        const { freedBytes } = await this.#enqueue(() => this.#collectOne(lineage, dryRun));
        if (freedBytes <= 0) continue;
        const why = 'no snapshot of the session or its forks needs it';
        found.push({ kind: 'snapshots', name: lineage, why, bytes: freedBytes });
      } catch (error) {
        const { code, sentence: why } = HoldfastError.from(error);
        log.warn('the garbage of a lineage could not be collected', { lineage, code, why });
      }
    }
    return found;
  }

  /** Reads and checks every object of a snapshot from disk. Packs with damage are marked suspect. */
  async verify(row: SnapshotRow, signal?: AbortSignal): Promise<VerifyResult> {
    return await this.#options.stores.use(row.lineage, async (used) => {
      const store = await LineageStore.open(used.directory);
      try {
        const verified: VerifyResult[] = [];
        for (const root of rootsOf([row])) verified.push(await verifyTree(store, root, signal));
        const both = addUp(verified);
        await used.markSuspect(both.damages.flatMap(({ pack }) => pack ?? []));
        return both;
      } finally {
        await store.close();
      }
    });
  }

  /**
   * The disk use of a session's snapshots. `uniqueBytes` is known at once when the session has no forks. Otherwise all
   * trees have to be walked: the first request and `gc` start that, and later requests get the result.
   */
  async usage(session: SessionRow): Promise<SnapshotUsage> {
    const { snapshots, stores } = this.#options;
    const rows = snapshots.listByLineage(session.lineage);
    const mine = rows.filter(({ sessionId }) => sessionId === session.id).length;
    const bytes = await stores.use(session.lineage, (store) => Promise.resolve(store.bytes));
    const measured = this.#measured.get(session.lineage);
    const unique =
      mine === rows.length
        ? bytes
        : measured?.of === idsOf(rows)
          ? (measured.bytes.get(session.id) ?? 0)
          : null;
    if (unique === null && mine > 0) this.#measureSoon(session.lineage);
    return { snapshots: mine, bytes, uniqueBytes: mine === 0 ? 0 : unique };
  }

  /** Runs `act` with the files of a snapshot, which are not collected meanwhile. */
  async withFiles<T>({ lineage, root }: SnapshotRow, act: (files: SnapshotFiles) => Promise<T>): Promise<T> {
    return await this.#options.stores.use(lineage, (store) => act(new SnapshotFiles(store, parseHash(root))));
  }

  async #hourly(): Promise<void> {
    const { snapshots, log } = this.#options;
    try {
      this.thin();
      for (const lineage of snapshots.listLineages()) {
        const current = idsOf(snapshots.listByLineage(lineage));
        if (this.#collected.get(lineage) === current) continue;
        await this.#collectOne(lineage, false);
        this.#collected.set(lineage, current);
      }
    } catch (error) {
      if (!this.#shutdown.signal.aborted) log.warn('the maintenance of snapshots failed', { error });
    }
  }

  async #collectOne(lineage: string, dryRun: boolean): Promise<CollectionResult> {
    const { stores, reserve } = this.#options;
    const options: CollectOptions = {
      stores,
      lineage,
      roots: () => this.#roots(lineage),
      signal: this.#shutdown.signal,
      urgently: (write) => reserve.retryOnFullDisk(write),
    };
    if (dryRun) return await planLineageCollection(options);
    try {
      const collected = await collectLineage(options);
      await this.#measure(lineage);
      return collected;
    } finally {
      reserve.ensure();
    }
  }

  /** Starts a measurement, at most once per interval for each lineage. */
  #measureSoon(lineage: string): void {
    const { now, log } = this.#options;
    if (now() - (this.#requestedAt.get(lineage) ?? -Infinity) < MIN_COUNT_INTERVAL_MS) return;
    this.#requestedAt.set(lineage, now());
    this.#enqueue(() => this.#measure(lineage)).catch((error: unknown) => {
      if (!this.#shutdown.signal.aborted)
        log.warn('the disk use of snapshots could not be measured', { lineage, error });
    });
  }

  async #measure(lineage: string): Promise<void> {
    const { snapshots, stores } = this.#options;
    const rows = snapshots.listByLineage(lineage);
    const sessions = [...new Set(rows.map(({ sessionId }) => sessionId))];
    if (sessions.length < 2) return;
    const bytes = new Map<string, number>();
    const slices = new TimeSlice(this.#shutdown.signal);
    await stores.use(lineage, async (store) => {
      for (const id of sessions) {
        const mine = rows.filter(({ sessionId }) => sessionId === id);
        const others = rows.filter(({ sessionId }) => sessionId !== id);
        bytes.set(id, await uniqueBytes(store, rootsOf(mine), rootsOf(others), slices));
      }
    });
    this.#measured.set(lineage, { of: idsOf(rows), bytes });
  }

  /** The roots that must stay: those of snapshots, of reviews, of what workspaces began with, of pending restores, and leased ones. */
  #roots(lineage: string): Hash[] {
    const { snapshots, reviewRows, bases, operations, sessions, leasedRoots } = this.#options;
    const intended = operations
      .pending()
      .filter(({ sessionId }) => sessionId !== null && sessions.get(sessionId)?.lineage === lineage)
      .flatMap(({ data }) => {
        return [data['root'], data['stateRoot']].flatMap((value) => {
          const root = RootHashSchema.safeParse(value);
          return root.success ? [root.data] : [];
        });
      });
    const hashes = new Set([
      ...snapshots.listByLineage(lineage).flatMap(rootsOfOne),
      ...reviewRows.roots(lineage),
      ...bases.listByLineage(lineage).map(({ root }) => root),
      ...intended,
    ]);
    return [...[...hashes].map(parseHash), ...leasedRoots.listByLineage(lineage)];
  }

  /** Runs work one after another, so that no lineage is collected twice at once. */
  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#work.then(work);
    this.#work = mine.catch(() => undefined);
    return mine;
  }
}

/** Objects that both trees need count twice. */
function addUp(results: readonly VerifyResult[]): VerifyResult {
  const sum = (of: (one: VerifyResult) => number): number =>
    results.reduce((total, one) => total + of(one), 0);
  return {
    ok: results.every(({ ok }) => ok),
    objects: sum(({ objects }) => objects),
    bytes: sum(({ bytes }) => bytes),
    damaged: sum(({ damaged }) => damaged),
    damages: results.flatMap(({ damages }) => damages).slice(0, MAX_REPORTED_DAMAGES),
  };
}

function idsOf(rows: readonly SnapshotRow[]): string {
  return rows.map(({ id }) => id).join();
}

function rootsOf(rows: readonly SnapshotRow[]): Hash[] {
  return rows.flatMap(rootsOfOne).map(parseHash);
}

/** The workspace's tree, and that of the agent's state. */
function rootsOfOne({ root, stateRoot }: SnapshotRow): string[] {
  return stateRoot === null ? [root] : [root, stateRoot];
}
