import { statfs } from 'node:fs/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import { MAX_MISSING_PATHS, type SnapshotReason } from '../../protocol/snapshots.ts';
import type { ScanResult, StateScope } from '../../snapshot-format/sidecar-calls.ts';
import type { Progress } from '../../protocol/wire/shapes.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Ids } from '../base/ids.ts';
import { KeyedMutex } from '../base/keyed-mutex.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import { type SidecarAccess, withRunningSidecar } from '../workspace/sidecar-access.ts';
import type { SnapshotConnection } from './connection.ts';
import type { Freezing } from '../sandboxes/freezing.ts';
import { SnapshotConnectionPool } from './connection-pool.ts';
import { type Bases, type ScannedTrees, SessionTrees } from './session-trees.ts';
import { IncomingPacks, MIN_FREE_MIB } from './store/incoming-packs.ts';
import type { LineageStore } from './store/lineage-store.ts';
import type { LineageStores } from './store/lineage-stores.ts';

const MIB = 2 ** 20;
/**
 * Extra bytes a sidecar may send on top of the workspace limit: trees, indexes and content that changed during the
 * read.
 */
const BEYOND_LIMIT = 256 * MIB;
/** Bytes that may be read during each successive freeze. Between two freezes the agent runs while the sidecar reads. */
const FROZEN_BYTES = [32 * MIB, 128 * MIB, 1024 * MIB] as const;

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

export interface SnapshotRequest {
  readonly reason: SnapshotReason;
  readonly label?: string | undefined;
  readonly pinned?: boolean | undefined;
  /** Create no snapshot of an empty workspace: the result is null. */
  readonly skipIfEmpty?: boolean;
  readonly opId?: string | undefined;
  /** The turn that the snapshot belongs to. */
  readonly turnId?: string;
  /** Whether that turn has begun. Called when the snapshot is complete. */
  readonly isDuringTurn?: () => boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

export interface CreatedSnapshot {
  readonly row: SnapshotRow;
  /** False: nothing had changed, and `row` is an earlier snapshot. */
  readonly created: boolean;
}

interface ScanAttempt extends ScannedTrees {
  readonly frozenMs: number;
}

type Options = Pick<SnapshotRequest, 'signal' | 'onProgress'>;

/**
 * Creates snapshots, one at a time per session. Lock order: `withScanLock`, the session's mutex, the lineage's
 * read-write lock.
 */
export class SnapshotCreation {
  readonly #options: SnapshotCreationOptions;
  readonly #scanLock = new KeyedMutex();
  readonly #connections: SnapshotConnectionPool;
  /** Running and waiting scans by session; aborting a controller interrupts its scan. */
  readonly #scans = new Map<string, Set<AbortController>>();
  /** The fingerprint of the store damage that each session's sidecar has already been asked to repair. */
  readonly #repairRequested = new Map<string, string>();

  constructor(options: SnapshotCreationOptions) {
    this.#options = options;
    this.#connections = new SnapshotConnectionPool((sessionId) => options.access.dial(sessionId));
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

  /** Runs `act` under the scan lock with a signal that `interrupt` aborts as well. */
  async #interruptible<T>(
    sessionId: string,
    signal: AbortSignal | undefined,
    act: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const controller = new AbortController();
    const scans = this.#scans.get(sessionId) ?? new Set();
    this.#scans.set(sessionId, scans);
    scans.add(controller);
    const combined = signal === undefined ? controller.signal : AbortSignal.any([controller.signal, signal]);
    const { access } = this.#options;
    try {
      return await this.withScanLock(sessionId, async () => {
        combined.throwIfAborted();
        const release = access.acquireLease(sessionId);
        try {
          return await withRunningSidecar(access, sessionId, () => act(combined));
        } finally {
          release();
        }
      });
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
    return this.#interruptible(sessionId, request.signal, (signal) =>
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
    return this.#interruptible(sessionId, options.signal, (signal) =>
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
        const attempt = await this.#scanConsistently(row, connection, store, incoming, request, isLocked);
        await failpoint('snapshot.after-scan');
        const { scan, state } = attempt;
        this.#options.onScan(row, scan);
        if (request.skipIfEmpty === true && [scan, state].every(isEmpty)) return null;
        const newest = snapshots.newest(row.id);
        const isSame = newest?.root === scan.root && newest.stateRoot === (state?.root ?? null);
        if (isSame && this.#isReusable(newest, request)) {
          return this.#record(request, () => ({ row: this.#reuse(newest, request), created: false }));
        }
        await incoming.publish(scan.root);
        if (state !== null) await incoming.publish(state.root);
        await failpoint('snapshot.after-publish');
        const created = this.#record(request, () => ({
          row: this.#insert(row, request, attempt, incoming.publishedBytes, newest),
          created: true,
        }));
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

  /** Scans while the agent runs. If the agent changes files meanwhile, scans again while the agent is frozen. */
  async #scanConsistently(
    row: SessionRow,
    connection: SnapshotConnection,
    store: LineageStore,
    incoming: IncomingPacks,
    options: Options,
    isLocked: boolean,
  ): Promise<ScanAttempt> {
    const { freezing, sessionMutex, stateOf } = this.#options;
    const trees = new SessionTrees({
      connection,
      store,
      incoming,
      options,
      bases: this.#bases(row),
      scope: stateOf(row),
    });
    const { damageFingerprint } = store;
    let isBaseSuspect = damageFingerprint !== null && this.#repairRequested.get(row.id) !== damageFingerprint;
    const scan = (frozen: boolean, budgetBytes: number | null, awaitsLeases = false): Promise<ScannedTrees> =>
      trees.scan({ budgetBytes, frozen, isBaseSuspect, awaitsLeases });
    const first = await scan(false, null);
    let attempt: ScanAttempt = { ...first, frozenMs: 0 };
    // Objects that replace damaged ones are published even when the tree is unchanged.
    if (isBaseSuspect && damageFingerprint !== null && first.scan.complete) {
      await trees.publish(first);
      this.#repairRequested.set(row.id, damageFingerprint);
      isBaseSuspect = false;
    }
    // The kernel breaks a lease some time after the file was first opened. A running agent can take a new lease at
    // once; a frozen one cannot.
    let hasAwaitedLeases = missingOf(first) === 0;
    const isConsistent = (one: ScanAttempt): boolean =>
      !one.scan.changedDuringScan &&
      isComplete(one) &&
      one.isStateStable &&
      (missingOf(one) === 0 || hasAwaitedLeases);
    if (!hasAwaitedLeases) attempt = addScan(attempt, await scan(false, null, true), 0);
    for (const budget of FROZEN_BYTES) {
      if (isConsistent(attempt)) return attempt;
      // The next scan uses these trees as its bases, so stored content is not read again during the freeze.
      await trees.publish(attempt);
      const awaitsLeases = missingOf(attempt) > 0 && !hasAwaitedLeases;
      const scanFrozen = (): Promise<{ result: ScannedTrees; frozenMs: number }> =>
        freezing.runFrozen(row.id, (isFrozen) =>
          scan(isFrozen, isFrozen ? budget : null, isFrozen && awaitsLeases),
        );
      const { result, frozenMs } = isLocked ? await scanFrozen() : await sessionMutex.run(row.id, scanFrozen);
      attempt = addScan(attempt, result, frozenMs);
      if (awaitsLeases) hasAwaitedLeases = true;
      if (!isComplete(attempt)) attempt = addScan(attempt, await scan(false, null), 0);
    }
    if (isConsistent(attempt)) return attempt;
    throw new HoldfastError('conflict', `No snapshot of ${row.name} was created`, {
      why: `its files changed during each of ${FROZEN_BYTES.length + 1} scans`,
      next: 'try again when fewer files are being written',
    });
  }

  #bases(row: SessionRow): Bases {
    const { snapshots } = this.#options;
    const base = snapshots.newest(row.id) ?? (row.origin === null ? null : snapshots.get(row.origin));
    return { workspace: base?.root ?? null, state: base?.stateRoot ?? null };
  }

  /**
   * Whether an earlier snapshot of the same tree answers this request. A manual snapshot records the history up to now,
   * because forks copy it: a turn that ended since counts as a change even if it left the files alone.
   */
  #isReusable(newest: SnapshotRow, { reason, label, isDuringTurn }: SnapshotRequest): boolean {
    if (label !== undefined) return false;
    // The new snapshot is certainly from before the turn, and the earlier one is not.
    if (newest.duringTurn && isDuringTurn?.() !== true) return false;
    // The agent can have its own thinned out, and so must not take away what a turn or a person relies on.
    if (newest.reason === 'agent' && reason !== 'agent') return false;
    if (reason !== 'manual') return true;
    const { sessionId, eventSeq } = newest;
    return (
      this.#options.events.read(sessionId, { after: eventSeq, type: 'turn.ended', limit: 1 }).length === 0
    );
  }

  /** Reuses the newest snapshot because nothing changed. A manual request turns it into a manual snapshot. */
  #reuse(newest: SnapshotRow, { reason, pinned }: SnapshotRequest): SnapshotRow {
    return this.#options.snapshots.update(newest.id, {
      ...(pinned === undefined ? {} : { pinned }),
      ...(reason === 'manual' ? { reason } : {}),
    });
  }

  /** In one transaction with the answer to the request's `opId`. */
  #record({ opId }: SnapshotRequest, write: () => CreatedSnapshot): CreatedSnapshot {
    const { operations, snapshots } = this.#options;
    const { result } = operations.runOnce(opId, 'snapshot.create', () => {
      const { row, created } = write();
      return { id: row.id, created: created ? 'yes' : 'no' };
    });
    return { row: snapshots.getOrThrow(result.id), created: result.created === 'yes' };
  }

  /** Part of the caller's transaction. */
  #insert(
    session: SessionRow,
    { reason, label, pinned, turnId, isDuringTurn }: SnapshotRequest,
    { scan, state, frozenMs }: ScanAttempt,
    newBytes: number,
    newest: SnapshotRow | null,
  ): SnapshotRow {
    const { snapshots, events, ids, now } = this.#options;
    const { root, files, directories, bytes, changedFiles, changedBytes, scanMs } = scan;
    const row: SnapshotRow = {
      id: ids.next('snp'),
      sessionId: session.id,
      lineage: session.lineage,
      createdAt: now(),
      reason,
      label: label ?? null,
      pinned: pinned ?? false,
      base: newest?.id ?? null,
      root,
      stateRoot: state?.root ?? null,
      files,
      directories,
      bytes,
      changedFiles,
      changedBytes,
      newBytes,
      scanMs,
      frozenMs,
      eventSeq: events.head(session.id).seq,
      duringTurn: isDuringTurn?.() ?? false,
      missing: scan.missing + (state?.missing ?? 0),
      missingPaths: [...scan.missingPaths, ...(state?.missingPaths ?? [])].slice(0, MAX_MISSING_PATHS),
    };
    snapshots.insert(row);
    const data = {
      snapshotId: row.id,
      reason,
      label: row.label,
      root,
      files,
      bytes,
      changedFiles,
      newBytes,
      frozenMs,
      ...(turnId === undefined ? {} : { turnId }),
      ...(row.duringTurn ? { duringTurn: true } : {}),
      ...(row.stateRoot === null ? {} : { stateRoot: row.stateRoot }),
      ...(row.missing > 0 ? { missing: row.missing, missingPaths: row.missingPaths } : {}),
    };
    events.append(session.id, [{ type: 'snapshot.created', data }]);
    return row;
  }

  async #maxBytes(sessionId: string): Promise<number> {
    const { home, limitOf } = this.#options;
    const { bavail, bsize } = await statfs(home.store);
    const free = Math.max(0, bavail * bsize - MIN_FREE_MIB * MIB);
    const limit = limitOf(sessionId);
    return limit === null ? free : Math.min(free, limit * 2 + BEYOND_LIMIT);
  }
}

function isComplete({ scan, state }: ScannedTrees): boolean {
  return scan.complete && (state?.complete ?? true);
}

/** Files that could not be read. */
function missingOf({ scan, state }: ScannedTrees): number {
  return scan.missing + (state?.missing ?? 0);
}

function isEmpty(scan: ScanResult | null): boolean {
  return scan === null || (scan.files === 0 && scan.directories === 0);
}

/** Adds up several scans. A file that changed between two of them counts each time. */
function addScan(
  before: ScanAttempt,
  { scan, state, isStateStable }: ScannedTrees,
  frozenMs: number,
): ScanAttempt {
  const { changedFiles, changedBytes, newObjects, newBytes, scanMs, readMs } = before.scan;
  return {
    scan: {
      ...scan,
      changedFiles: changedFiles + scan.changedFiles,
      changedBytes: changedBytes + scan.changedBytes,
      newObjects: newObjects + scan.newObjects,
      newBytes: newBytes + scan.newBytes,
      scanMs: scanMs + scan.scanMs,
      readMs: readMs + scan.readMs,
    },
    state,
    isStateStable,
    frozenMs: before.frozenMs + frozenMs,
  };
}
