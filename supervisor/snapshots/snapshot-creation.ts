import { statfs } from 'node:fs/promises';
import type { HoldfastError } from '../../protocol/errors.ts';
import type { ScanResult, StateScope } from '../../snapshot-format/sidecar-calls.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Ids } from '../base/ids.ts';
import { KeyedMutex } from '../base/keyed-mutex.ts';
import { raceAbort } from '../base/race-abort.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import { requireSidecar, type SidecarAccess, withRunningSidecar } from '../workspace/sidecar-access.ts';
import type { SnapshotConnection } from './connection.ts';
import type { Freezing } from '../sandboxes/freezing.ts';
import { SnapshotConnectionPool } from './connection-pool.ts';
import { ConsistentScans } from './consistent-scans.ts';
import { type Bases, SessionTrees } from './session-trees.ts';
import {
  type CreatedSnapshot,
  type ScanTotals,
  SnapshotRecords,
  type SnapshotRequest,
} from './snapshot-records.ts';
import { IncomingPacks, MIN_FREE_MIB } from './store/incoming-packs.ts';
import type { LineageStore } from './store/lineage-store.ts';
import type { LineageStores } from './store/lineage-stores.ts';

const MIB = 2 ** 20;
/**
 * Extra bytes a sidecar may send on top of the workspace limit: trees, indexes and content that changed during the
 * read.
 */
const BEYOND_LIMIT = 256 * MIB;

export interface SnapshotCreationOptions {
  readonly home: Pick<Home, 'store'>;
  readonly database: Database;
  readonly snapshots: Snapshots;
  readonly stores: LineageStores;
  readonly records: SessionRecords;
  readonly events: EventLog;
  readonly operations: Operations;
  readonly freezing: Freezing;
  readonly sessionMutex: KeyedMutex;
  readonly ids: Ids;
  readonly access: SidecarAccess;
  /** Called after each scan that a snapshot needed. */
  readonly onScan: (row: SessionRow, scan: ScanResult) => void;
  /** The workspace limit of the session in bytes; null when it has none. */
  readonly limitOf: (sessionId: string) => number | null;
  /** What of the agent's HOME belongs to its snapshots; null: nothing. */
  readonly stateOf: (row: SessionRow) => StateScope | null;
  /** ms since 1970. */
  readonly now: () => number;
}

type Options = Pick<SnapshotRequest, 'signal' | 'onProgress' | 'needsSidecar'>;

/**
 * Creates snapshots, one at a time per session. Lock order: `withScanLock`, the session's mutex, the lineage's
 * read-write lock.
 */
export class SnapshotCreation {
  readonly #options: SnapshotCreationOptions;
  readonly #scanLock = new KeyedMutex();
  readonly #connections: SnapshotConnectionPool;
  readonly #consistentScans: ConsistentScans;
  readonly #records: SnapshotRecords;
  /** Running and waiting scans by session; aborting a controller interrupts its scan. */
  readonly #scans = new Map<string, Set<AbortController>>();
  /** What scans found and stored since the newest snapshot of a session, without one of their own: it belongs to the next. */
  readonly #unrecorded = new Map<string, ScanTotals>();

  constructor(options: SnapshotCreationOptions) {
    this.#options = options;
    this.#connections = new SnapshotConnectionPool((sessionId) => options.access.dial(sessionId));
    this.#consistentScans = new ConsistentScans(options);
    this.#records = new SnapshotRecords(options);
  }

  close(): void {
    this.#connections.close();
  }

  /**
   * Runs `act` with a pooled connection to the sidecar. Calls `act` again if the sidecar of the pooled connection had
   * exited.
   */
  withConnection<T>(sessionId: string, act: (connection: SnapshotConnection) => Promise<T>): Promise<T> {
    return this.#connections.use(sessionId, act);
  }

  /** Aborts the running and waiting scans of a session, except those that already hold the session's mutex. */
  interrupt(sessionId: string, why: HoldfastError): void {
    for (const controller of this.#scans.get(sessionId) ?? []) controller.abort(why);
  }

  /**
   * Runs `act` under the scan lock with a signal that `interrupt` aborts as well. Whoever aborts while it waits for the lock
   * gets the answer at once: the scan that holds it can take minutes.
   */
  async #interruptible<T>(
    sessionId: string,
    { signal, needsSidecar = false }: Options,
    act: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const controller = new AbortController();
    const scans = this.#scans.get(sessionId) ?? new Set();
    this.#scans.set(sessionId, scans);
    scans.add(controller);
    const combined = signal === undefined ? controller.signal : AbortSignal.any([controller.signal, signal]);
    const { access } = this.#options;
    const begun = Promise.withResolvers<true>();
    try {
      const done = this.withScanLock(sessionId, async () => {
        begun.resolve(true);
        combined.throwIfAborted();
        const release = access.acquireLease(sessionId);
        try {
          if (!needsSidecar) return await withRunningSidecar(access, sessionId, () => act(combined));
          await requireSidecar(access, sessionId);
          return await act(combined);
        } finally {
          release();
        }
      });
      // Nobody waits for it any more where it was aborted before it began.
      done.catch(() => undefined);
      if ((await raceAbort(begun.promise, combined)) === null) combined.throwIfAborted();
      return await done;
    } catch (error) {
      if (controller.signal.aborted) throw controller.signal.reason;
      throw error;
    } finally {
      scans.delete(controller);
      if (scans.size === 0) this.#scans.delete(sessionId);
    }
  }

  /** Runs `act` while no snapshot of the session is created. */
  withScanLock<T>(sessionId: string, act: () => Promise<T>): Promise<T> {
    return this.#scanLock.run(sessionId, act);
  }

  /**
   * Creates a snapshot of a session that is not deleted, whatever runs in it. Null only with `skipIfEmpty`. Errors:
   * those of the sidecar (`file_*` with the path), `no_space`, `conflict` when the workspace changes too fast,
   * `snapshot_damaged`.
   */
  create(sessionId: string, request: SnapshotRequest): Promise<CreatedSnapshot | null> {
    const { records } = this.#options;
    return this.#interruptible(sessionId, request, (signal) =>
      this.#createSnapshot(records.get(sessionId), { ...request, signal }, false),
    );
  }

  /** As `create`, for callers that hold the scan lock and the session's mutex while the sidecar runs. */
  createLocked(row: SessionRow, request: SnapshotRequest): Promise<CreatedSnapshot | null> {
    return this.#createSnapshot(row, request, true);
  }

  /**
   * Scans the workspace and runs `act` with the resulting tree, which stays in the store while `act` runs. No snapshot
   * of the session is created meanwhile. New objects stay in the store until the next garbage collection.
   * `changedDuringScan` may be true.
   */
  withCurrentTree<T>(
    sessionId: string,
    act: (store: LineageStore, scan: ScanResult) => Promise<T>,
    options: Options = {},
  ): Promise<T> {
    const { records } = this.#options;
    return this.#interruptible(sessionId, options, (signal) =>
      this.#withTree(records.get(sessionId), act, { ...options, signal }),
    );
  }

  /**
   * Scans the workspace and stores its tree. `keep` gets the hash of the root, hexadecimal, and makes it one that collection
   * keeps. The caller holds the session's mutex, the sidecar runs, and no process of the agent: nothing changes meanwhile.
   */
  async storeTreeLocked(row: SessionRow, keep: (root: string) => void, signal: AbortSignal): Promise<void> {
    await this.#withTree(
      row,
      (_store, { root }) => {
        keep(root);
        return Promise.resolve();
      },
      { signal },
    );
  }

  async #withTree<T>(
    row: SessionRow,
    act: (store: LineageStore, scan: ScanResult) => Promise<T>,
    options: Options,
  ): Promise<T> {
    return await this.#options.stores.use(row.lineage, (store) =>
      this.#receive(row, store, async (connection, incoming) => {
        const params = {
          base: this.#bases(row).workspace,
          budgetBytes: null,
          frozen: false,
          isBaseSuspect: false,
          awaitsLeases: false,
          state: null,
        };
        const scan = await connection.scan(params, store, incoming, options);
        await incoming.publish(scan.root);
        this.#unrecorded.set(row.id, this.#totalsOf(row.id, scan, incoming.publishedBytes));
        return await act(store, scan);
      }),
    );
  }

  async #createSnapshot(
    row: SessionRow,
    request: SnapshotRequest,
    isLocked: boolean,
  ): Promise<CreatedSnapshot | null> {
    const { stores, snapshots, operations } = this.#options;
    const { opId } = request;
    const replay = operations.findResult(opId, 'snapshot.create');
    if (replay !== null) {
      const { id, created } = replay.result as { id: string; created: string };
      return { row: snapshots.getOrThrow(id), created: created === 'yes' };
    }
    return await stores.use(row.lineage, (store) =>
      this.#receive(row, store, async (connection, incoming) => {
        const scope = this.#options.stateOf(row);
        const bases = this.#bases(row);
        const trees = new SessionTrees({ connection, store, incoming, options: request, bases, scope });
        const attempt = await this.#consistentScans.run(row, trees, store, isLocked);
        await failpoint('snapshot.after-scan');
        const { scan, state } = attempt;
        this.#options.onScan(row, scan);
        if (request.skipIfEmpty === true && [scan, state].every(isEmpty)) return null;
        const newest = snapshots.newest(row.id);
        const isSame = newest?.root === scan.root && newest.stateRoot === (state?.root ?? null);
        if (isSame && this.#records.isReusable(newest, request)) {
          this.#unrecorded.delete(row.id);
          return this.#records.record(request, () => ({
            row: this.#records.reuse(newest, request),
            created: false,
          }));
        }
        await incoming.publish(scan.root);
        if (state !== null) await incoming.publish(state.root);
        await failpoint('snapshot.after-publish');
        const totals = this.#totalsOf(row.id, scan, incoming.publishedBytes);
        const created = this.#records.record(request, () => ({
          row: this.#records.insert(row, request, attempt, totals, newest),
          created: true,
        }));
        this.#unrecorded.delete(row.id);
        await failpoint('snapshot.after-row');
        return created;
      }),
    );
  }

  async #receive<T>(
    row: SessionRow,
    store: LineageStore,
    act: (connection: SnapshotConnection, incoming: IncomingPacks) => Promise<T>,
  ): Promise<T> {
    return await this.#connections.use(row.id, async (connection) => {
      const incoming = new IncomingPacks(store, () => this.#maxBytes(row.id));
      try {
        return await act(connection, incoming);
      } finally {
        await incoming.close();
      }
    });
  }

  #totalsOf(sessionId: string, scan: ScanResult, newBytes: number): ScanTotals {
    const earlier = this.#unrecorded.get(sessionId);
    return {
      changedFiles: scan.changedFiles + (earlier?.changedFiles ?? 0),
      changedBytes: scan.changedBytes + (earlier?.changedBytes ?? 0),
      newBytes: newBytes + (earlier?.newBytes ?? 0),
    };
  }

  #bases(row: SessionRow): Bases {
    const { snapshots } = this.#options;
    const base = snapshots.newest(row.id) ?? (row.origin === null ? null : snapshots.get(row.origin));
    return { workspace: base?.root ?? null, state: base?.stateRoot ?? null };
  }

  async #maxBytes(sessionId: string): Promise<number> {
    const { home, limitOf } = this.#options;
    const { bavail, bsize } = await statfs(home.store);
    const free = Math.max(0, bavail * bsize - MIN_FREE_MIB * MIB);
    const limit = limitOf(sessionId);
    return limit === null ? free : Math.min(free, limit * 2 + BEYOND_LIMIT);
  }
}

function isEmpty(scan: ScanResult | null): boolean {
  return scan === null || (scan.files === 0 && scan.directories === 0);
}
