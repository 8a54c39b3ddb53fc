import { statfs } from 'node:fs/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SnapshotReason } from '../../protocol/snapshots.ts';
import type { ScanResult } from '../../snapshot-format/sidecar-calls.ts';
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
import { IncomingPacks, MIN_FREE_MIB } from './store/incoming-packs.ts';
import type { LineageStore } from './store/lineage-store.ts';
import type { LineageStores } from './store/lineage-stores.ts';

const MIB = 2 ** 20;
/** What a sidecar may send beyond what the workspace may hold: trees, indexes, content that changed while it was read. */
const BEYOND_LIMIT = 256 * MIB;
/** How much may be read while the agent stands still, freeze by freeze; in between it is read while the agent runs. */
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
  readonly lanes: KeyedMutex;
  readonly ids: Ids;
  readonly access: SidecarAccess;
  /** A snapshot was looked for, and this is what was read for it. */
  readonly onScan: (row: SessionRow, scan: ScanResult) => void;
  /** The most that the workspace of a session may hold, bytes; null without a limit. */
  readonly limitOf: (sessionId: string) => number | null;
  /** ms since 1970. */
  readonly now: () => number;
}

export interface SnapshotRequest {
  readonly reason: SnapshotReason;
  readonly label?: string | undefined;
  readonly pinned?: boolean | undefined;
  /** A snapshot of a workspace with nothing in it is worth nothing: null instead. */
  readonly skipIfEmpty?: boolean;
  readonly opId?: string | undefined;
  /** The turn that it is taken for. */
  readonly turnId?: string;
  /** Whether that turn has begun. Asked when the snapshot is complete. */
  readonly isDuringTurn?: () => boolean;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

export interface CreatedSnapshot {
  readonly row: SnapshotRow;
  /** False: nothing had changed, the row is an earlier one. */
  readonly created: boolean;
}

interface Looked {
  readonly scan: ScanResult;
  readonly frozenMs: number;
}

type Options = Pick<SnapshotRequest, 'signal' | 'onProgress'>;

/**
 * Takes snapshots, one at a time per session. Whoever needs several locks asks for them in this order: `alone`, the session's
 * lane, the lock of the lineage.
 */
export class SnapshotCreation {
  readonly #options: SnapshotCreationOptions;
  readonly #alone = new KeyedMutex();
  readonly #connections: SnapshotConnectionPool;
  /** What looks at the workspace of a session or waits to do so, with who may interrupt it. */
  readonly #under = new Map<string, Set<AbortController>>();
  /** Damage of the store that sidecars have been told of, by session. */
  readonly #toldOf = new Map<string, string>();

  constructor(options: SnapshotCreationOptions) {
    this.#options = options;
    this.#connections = new SnapshotConnectionPool((sessionId) => options.access.dial(sessionId));
  }

  close(): void {
    this.#connections.close();
  }

  /** The connection that its last snapshot came by, or another one. `act` is called again where its sidecar went while nobody looked. */
  withConnection<T>(sessionId: string, act: (connection: SnapshotConnection) => Promise<T>): Promise<T> {
    return this.#connections.use(sessionId, act);
  }

  /** Ends what looks at the workspace of a session, and what waits to do so. What is in the session's lane goes on. */
  interrupt(sessionId: string, why: HoldfastError): void {
    for (const interrupted of this.#under.get(sessionId) ?? []) interrupted.abort(why);
  }

  /** `act` alone, with a signal that `interrupt` aborts, too. */
  async #interruptible<T>(
    sessionId: string,
    signal: AbortSignal | undefined,
    act: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const interrupted = new AbortController();
    const under = this.#under.get(sessionId) ?? new Set();
    this.#under.set(sessionId, under);
    under.add(interrupted);
    const either = signal === undefined ? interrupted.signal : AbortSignal.any([interrupted.signal, signal]);
    const { access } = this.#options;
    try {
      return await this.withScanLock(sessionId, async () => {
        either.throwIfAborted();
        const release = access.acquireLease(sessionId);
        try {
          return await withRunningSidecar(access, sessionId, () => act(either));
        } finally {
          release();
        }
      });
    } catch (error) {
      if (interrupted.signal.aborted) throw interrupted.signal.reason;
      throw error;
    } finally {
      under.delete(interrupted);
      if (under.size === 0) this.#under.delete(sessionId);
    }
  }

  /** No snapshot of the session is taken beside `act`. */
  withScanLock<T>(sessionId: string, act: () => Promise<T>): Promise<T> {
    return this.#alone.run(sessionId, act);
  }

  /**
   * A snapshot of the workspace of a session that is not deleted, whatever runs in it. Null only with `skipIfEmpty`. Errors: those of
   * the sidecar (`file_*` with the path), `no_space`, `conflict` where it changes too fast, `snapshot_damaged`.
   */
  create(sessionId: string, request: SnapshotRequest): Promise<CreatedSnapshot | null> {
    const { records } = this.#options;
    return this.#interruptible(sessionId, request.signal, (signal) =>
      this.#take(records.get(sessionId), { ...request, signal }, false),
    );
  }

  /** As `take`, for callers that are `alone` and in the session's lane, with its sidecar running. */
  createLocked(row: SessionRow, request: SnapshotRequest): Promise<CreatedSnapshot | null> {
    return this.#take(row, request, true);
  }

  /**
   * The tree of the workspace as it is, kept for as long as `act` runs; no snapshot of the session is taken meanwhile. What was new
   * in it stays in the store until that is collected. `moved`: it was written to during the look.
   */
  withCurrentTree<T>(
    sessionId: string,
    act: (store: LineageStore, scan: ScanResult) => Promise<T>,
    options: Options = {},
  ): Promise<T> {
    const { records } = this.#options;
    return this.#interruptible(sessionId, options.signal, (signal) =>
      this.#now(records.get(sessionId), act, { ...options, signal }),
    );
  }

  async #now<T>(
    row: SessionRow,
    act: (store: LineageStore, scan: ScanResult) => Promise<T>,
    options: Options,
  ): Promise<T> {
    return await this.#options.stores.use(row.lineage, (store) =>
      this.#receive(row, store, async (connection, incoming) => {
        const params = {
          base: this.#base(row),
          budgetBytes: null,
          frozen: false,
          isBaseSuspect: false,
          awaitsLeases: false,
        };
        const scan = await connection.scan(params, store, incoming, options);
        await incoming.publish(scan.root);
        return await act(store, scan);
      }),
    );
  }

  async #take(row: SessionRow, request: SnapshotRequest, inLane: boolean): Promise<CreatedSnapshot | null> {
    const { stores, snapshots, operations } = this.#options;
    const { opId } = request;
    const earlier = operations.findResult(opId, 'snapshot.create');
    if (earlier !== null) {
      const { id, created } = earlier.result as { id: string; created: string };
      return { row: snapshots.getOrThrow(id), created: created === 'yes' };
    }
    return await stores.use(row.lineage, (store) =>
      this.#receive(row, store, async (connection, incoming) => {
        const looked = await this.#look(row, connection, store, incoming, request, inLane);
        await failpoint('snapshot.after-scan');
        const { scan } = looked;
        this.#options.onScan(row, scan);
        if (request.skipIfEmpty === true && scan.files === 0 && scan.directories === 0) return null;
        const newest = snapshots.newest(row.id);
        if (newest?.root === scan.root && this.#isOne(newest, request)) {
          return this.#record(request, () => ({ row: this.#again(newest, request), created: false }));
        }
        await incoming.publish(scan.root);
        await failpoint('snapshot.after-publish');
        const taken = this.#record(request, () => ({
          row: this.#insert(row, request, looked, incoming.publishedBytes, newest),
          created: true,
        }));
        await failpoint('snapshot.after-row');
        return taken;
      }),
    );
  }

  async #receive<T>(
    row: SessionRow,
    store: LineageStore,
    act: (connection: SnapshotConnection, incoming: IncomingPacks) => Promise<T>,
  ): Promise<T> {
    return await this.#connections.use(row.id, async (connection) => {
      const incoming = new IncomingPacks(store, () => this.#mostBytes(row.id));
      try {
        return await act(connection, incoming);
      } finally {
        await incoming.close();
      }
    });
  }

  /** While the agent goes on; where it changes something meanwhile, a second look while it stands still. */
  async #look(
    row: SessionRow,
    connection: SnapshotConnection,
    store: LineageStore,
    incoming: IncomingPacks,
    options: Options,
    inLane: boolean,
  ): Promise<Looked> {
    const { freezing, lanes } = this.#options;
    let base = this.#base(row);
    const { damageFingerprint } = store;
    let isBaseSuspect = damageFingerprint !== null && this.#toldOf.get(row.id) !== damageFingerprint;
    const scan = async (
      frozen: boolean,
      budgetBytes: number | null,
      awaitsLeases = false,
    ): Promise<ScanResult> => {
      const params = { base, budgetBytes, frozen, isBaseSuspect, awaitsLeases };
      return await connection.scan(params, store, incoming, options);
    };
    let first: ScanResult;
    try {
      first = await scan(false, null);
    } catch (error) {
      // What it would begin with cannot be read: all is looked at anew, so that at least this one can be.
      const isDamaged = error instanceof HoldfastError && error.code === 'snapshot_damaged';
      if (!isDamaged || base === null) throw error;
      base = null;
      first = await scan(false, null);
    }
    let looked: Looked = { scan: first, frozenMs: 0 };
    // What was stored anew is published, also where the tree is the same.
    if (isBaseSuspect && damageFingerprint !== null && first.complete) {
      await incoming.publish(first.root);
      this.#toldOf.set(row.id, damageFingerprint);
      isBaseSuspect = false;
    }
    // The kernel takes a lease from a program that does not give it up, some time after the file was first opened. While the agent runs it
    // can have another one at once: only while it stands still it cannot.
    let isPatient = first.missing === 0;
    const isOne = ({ scan }: Looked): boolean =>
      !scan.changedDuringScan && scan.complete && (scan.missing === 0 || isPatient);
    if (!isPatient) looked = added(looked, await scan(false, null, true), 0);
    for (const budget of FROZEN_BYTES) {
      if (isOne(looked)) return looked;
      // The next look begins with this one: what is in the store need not be read again while the agent stands still.
      if (looked.scan.complete) {
        await incoming.publish(looked.scan.root);
        base = looked.scan.root;
      }
      const again = (): Promise<{ result: ScanResult; frozenMs: number }> =>
        freezing.runFrozen(row.id, (still) => scan(still, still ? budget : null, still && awaitsLeases));
      const awaitsLeases = looked.scan.missing > 0 && !isPatient;
      const { result, frozenMs } = inLane ? await again() : await lanes.run(row.id, again);
      looked = added(looked, result, frozenMs);
      if (awaitsLeases) isPatient = true;
      if (!looked.scan.complete) looked = added(looked, await scan(false, null), 0);
    }
    if (isOne(looked)) return looked;
    throw new HoldfastError('conflict', `No snapshot of ${row.name} was taken`, {
      why: `its files changed at each of ${FROZEN_BYTES.length + 1} looks`,
      next: 'try again when less is written to the workspace',
    });
  }

  #base(row: SessionRow): string | null {
    const { snapshots } = this.#options;
    const newest = snapshots.newest(row.id);
    if (newest !== null) return newest.root;
    return row.origin === null ? null : (snapshots.get(row.origin)?.root ?? null);
  }

  /**
   * Whether an earlier one of the same tree is the answer. A person's has the history up to now, for who forks it: a turn that ended
   * since is a change, even one that left no trace in the files.
   */
  #isOne(newest: SnapshotRow, { reason, label, isDuringTurn }: SnapshotRequest): boolean {
    if (label !== undefined) return false;
    // This one is known to be of a moment before the turn.
    if (newest.duringTurn && isDuringTurn?.() !== true) return false;
    if (reason !== 'manual') return true;
    const { sessionId, eventSeq } = newest;
    return (
      this.#options.events.read(sessionId, { after: eventSeq, type: 'turn.ended', limit: 1 }).length === 0
    );
  }

  /** Nothing has changed. What a person asks for is kept as theirs from now on. */
  #again(newest: SnapshotRow, { reason, pinned }: SnapshotRequest): SnapshotRow {
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
    { scan, frozenMs }: Looked,
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
      missing: scan.missing,
      missingPaths: scan.missingPaths,
    };
    snapshots.insert(row);
    const told = {
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
      ...(row.missing > 0 ? { missing: row.missing, missingPaths: row.missingPaths } : {}),
    };
    events.append(session.id, [{ type: 'snapshot.created', data: told }]);
    return row;
  }

  async #mostBytes(sessionId: string): Promise<number> {
    const { home, limitOf } = this.#options;
    const { bavail, bsize } = await statfs(home.store);
    const free = Math.max(0, bavail * bsize - MIN_FREE_MIB * MIB);
    const limit = limitOf(sessionId);
    return limit === null ? free : Math.min(free, limit * 2 + BEYOND_LIMIT);
  }
}

/** What several looks found together; a file that changed in between counts each time. */
function added(before: Looked, scan: ScanResult, frozenMs: number): Looked {
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
    frozenMs: before.frozenMs + frozenMs,
  };
}
