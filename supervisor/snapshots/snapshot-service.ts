import { HoldfastError } from '../../protocol/errors.ts';
import { type SnapshotReason, snapshotReasonRule } from '../../protocol/snapshot-reasons.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import type { Log } from '../base/log.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { ReviewRows } from '../store/reviews.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotFilter, SnapshotPatch, SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { WorkspaceBases } from '../store/workspace-bases.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import { isSetupStore } from './setup-templates.ts';
import type { SnapshotCreation } from './snapshot-creation.ts';
import type { SnapshotRequest, CreatedSnapshot } from './snapshot-records.ts';
import { SnapshotViews } from './snapshot-views.ts';

const DAY_MS = 86_400_000;
/** How long the snapshots of a deleted session are kept. */
const GRACE_PERIOD_MS = 7 * DAY_MS;
/** How long the sidecar may take to stop a restore that was aborted. */
const RESTORE_STOP_TIMEOUT_MS = 10_000;
/** A deletion waits at most this long for its last snapshot. Earlier snapshots stay in any case. */
const BEFORE_DELETE_TIMEOUT_MS = 20_000;

export interface SnapshotServiceOptions {
  readonly database: Database;
  readonly sessions: Sessions;
  readonly snapshots: Snapshots;
  /** Their trees keep a store like snapshots. */
  readonly reviewRows: Pick<ReviewRows, 'roots'>;
  readonly stores: LineageStores;
  readonly bases: Pick<WorkspaceBases, 'listByLineage'>;
  readonly events: EventLog;
  readonly turns: Turns;
  readonly operations: Operations;
  readonly snapshotCreation: SnapshotCreation;
  /** Deletions free space, so they must succeed on a full disk. */
  readonly reserve: DiskReserve;
  readonly log: Log;
  /** Default: BEFORE_DELETE_TIMEOUT_MS. */
  readonly beforeDeleteTimeoutMs?: number | undefined;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Creates, finds, lists and deletes snapshots for clients. */
export class SnapshotService {
  readonly #options: SnapshotServiceOptions;
  readonly #views: SnapshotViews;
  #dailyTimer: NodeJS.Timeout | null = null;
  #cleanup: Promise<unknown> = Promise.resolve();

  constructor(options: SnapshotServiceOptions) {
    this.#options = options;
    this.#views = new SnapshotViews(options);
  }

  /** Removes incomplete packs and expired snapshots. Called before the first request. */
  async start(): Promise<void> {
    await this.#options.stores.clearIncoming();
    this.#dailyTimer = setInterval(() => this.#removeExpired(), DAY_MS).unref();
    this.#removeExpired();
  }

  async close(): Promise<void> {
    if (this.#dailyTimer !== null) clearInterval(this.#dailyTimer);
    this.#options.snapshotCreation.close();
    await this.#cleanup;
    await this.#options.stores.close();
  }

  async create(
    session: SessionRow,
    request: Omit<SnapshotRequest, 'reason' | 'skipIfEmpty'>,
  ): Promise<CreatedSnapshot> {
    const created = await this.#options.snapshotCreation.create(session.id, { ...request, reason: 'manual' });
    if (created === null)
      throw new HoldfastError('internal', 'A manual snapshot of an empty workspace was skipped');
    return created;
  }

  /**
   * Creates an automatic snapshot for an operation that continues without it: the session's history records a failure.
   * Never rejects. Null when there is no snapshot.
   */
  async tryCreate(
    session: SessionRow,
    reason: SnapshotReason,
    create: () => Promise<CreatedSnapshot | null>,
  ): Promise<SnapshotRow | null> {
    try {
      return (await create())?.row ?? null;
    } catch (error) {
      this.#recordFailure(session, reason, HoldfastError.from(error, 'The snapshot could not be created'));
      return null;
    }
  }

  /**
   * Creates the last snapshot of a session before its workspace is deleted. The caller holds the scan lock and the
   * session's mutex.
   */
  async createBeforeDelete(session: SessionRow): Promise<void> {
    await this.tryCreate(session, 'before-delete', () =>
      this.#options.snapshotCreation.createLocked(session, {
        reason: 'before-delete',
        skipIfEmpty: true,
        signal: AbortSignal.timeout(this.#options.beforeDeleteTimeoutMs ?? BEFORE_DELETE_TIMEOUT_MS),
      }),
    );
  }

  /** Waits until the sidecar has stopped an aborted restore. The caller holds the session's mutex. Never rejects. */
  async waitForRestoreStop({ id, lineage }: SessionRow): Promise<void> {
    const { stores, snapshotCreation } = this.#options;
    const signal = AbortSignal.timeout(RESTORE_STOP_TIMEOUT_MS);
    await stores
      .use(lineage, (store) =>
        snapshotCreation.withConnection(id, (connection) =>
          connection.saveScanCache(true, store, { signal }),
        ),
      )
      .catch(() => false);
  }

  /**
   * Finds a snapshot by id. With `session`, a snapshot of another lineage is `not_found`, like an unknown one.
   */
  find(id: string, session?: string): SnapshotRow {
    const { snapshots } = this.#options;
    const row = snapshots.getOrThrow(id);
    if (session === undefined || this.findSession(session).lineage === row.lineage) return row;
    throw new HoldfastError('not_found', `There is no snapshot ${id} of ${session}`, {
      next: `see \`holdfast snapshot list ${session}\``,
    });
  }

  /** Finds a session by id or name. Deleted sessions are found by id only. */
  findSession(reference: string): SessionRow {
    const { sessions } = this.#options;
    return sessions.get(reference) ?? sessions.find(reference);
  }

  list(
    session: SessionRow,
    filter: SnapshotFilter,
  ): { readonly snapshots: Snapshot[]; readonly nextCursor: string | null } {
    const { rows, nextCursor } = this.#options.snapshots.list(session.id, filter);
    return { snapshots: rows.map((row) => this.view(row)), nextCursor };
  }

  view(row: SnapshotRow): Snapshot {
    return this.#views.of(row);
  }

  update(row: SnapshotRow, patch: SnapshotPatch): SnapshotRow {
    return this.#options.snapshots.update(row.id, patch);
  }

  /** Errors: `confirmation_required`, `conflict` while a session exists that began with this snapshot. */
  delete(id: string, session: string | undefined, force: boolean, opId?: string): void {
    const { operations, reserve } = this.#options;
    if (operations.findResult(opId, 'snapshot.delete') !== null) return;
    const row = this.find(id, session);
    if (!force) {
      throw new HoldfastError('confirmation_required', `Deleting snapshot ${id} needs a confirmation`, {
        why: 'a deleted snapshot cannot be recovered',
        next: 'repeat the command with --force',
      });
    }
    reserve.retryOnFullDisk(() =>
      operations.runOnce(opId, 'snapshot.delete', () => {
        this.remove(row, 'requested');
        return {};
      }),
    );
    reserve.ensure();
    this.removeUnusedStore(row.lineage);
  }

  /**
   * Deletes the row and records it in the history; garbage collection frees its objects later. Errors: `conflict` as
   * `delete`.
   */
  remove(row: SnapshotRow, why: string): void {
    const { database, snapshots, sessions, events } = this.#options;
    const [fork] = sessions.listByOrigin(row.id);
    if (fork !== undefined) {
      throw new HoldfastError('conflict', `Snapshot ${row.id} cannot be deleted`, {
        why: `session ${fork.name} (${fork.id}) was created from it`,
        next: 'delete that session first',
        details: { session: fork.id },
      });
    }
    database.transaction(() => {
      snapshots.remove(row.id);
      events.append(row.sessionId, [{ type: 'snapshot.deleted', data: { snapshotId: row.id, why } }]);
    });
  }

  /**
   * Deletes the automatic snapshots of a session that is being deleted, except the newest one. Part of the caller's
   * transaction.
   */
  pruneDeletedSession(session: SessionRow): void {
    const { snapshots, sessions } = this.#options;
    const newest = snapshots.newest(session.id);
    for (const row of snapshots.listBySession(session.id)) {
      const stays = row.id === newest?.id || row.pinned || snapshotReasonRule(row.reason).isKept === true;
      if (!stays && sessions.listByOrigin(row.id).length === 0) this.remove(row, 'its session was deleted');
    }
    this.#options.database.afterCommit(() => this.removeUnusedStore(session.lineage));
  }

  /** Removes, in the background, the store of a lineage that has no snapshot, no review and no base of a session left. */
  removeUnusedStore(lineage: string): void {
    const { stores, snapshots, reviewRows, bases, sessions, log } = this.#options;
    const isInUse = (sessionId: string): boolean => sessions.get(sessionId)?.deletedAt === null;
    const none = (): boolean =>
      !isSetupStore(lineage) &&
      snapshots.listByLineage(lineage).length === 0 &&
      reviewRows.roots(lineage).length === 0 &&
      !bases.listByLineage(lineage).some(({ sessionId }) => isInUse(sessionId));
    if (!none()) return;
    this.#cleanup = this.#cleanup
      .then(() => stores.remove(lineage, none))
      .catch((error: unknown) => log.warn('a store could not be removed', { lineage, error }));
  }

  /** Deletes the snapshots of sessions whose grace period is over, and the stores of lineages without a snapshot. */
  #removeExpired(): void {
    const { snapshots, sessions, now, log } = this.#options;
    try {
      for (const lineage of snapshots.listLineages()) {
        for (const row of snapshots.listByLineage(lineage)) {
          const session = sessions.get(row.sessionId);
          const over =
            session === null || (session.deletedAt !== null && now() - session.deletedAt > GRACE_PERIOD_MS);
          if (over && sessions.listByOrigin(row.id).length === 0) this.remove(row, 'its session was deleted');
        }
      }
    } catch (error) {
      log.warn('expired snapshots could not be deleted', { error });
    }
    this.#cleanup = this.#cleanup
      .then(async () => {
        for (const lineage of await this.#options.stores.lineages()) this.removeUnusedStore(lineage);
      })
      .catch((error: unknown) => log.warn('unused stores could not be removed', { error }));
  }

  #recordFailure(session: SessionRow, reason: SnapshotReason, error: HoldfastError): void {
    const { events, log } = this.#options;
    const { code, sentence: why } = error;
    log.warn('a snapshot could not be created', {
      session: session.id,
      reason,
      code,
      why,
      cause: error.cause,
    });
    try {
      events.append(session.id, [{ type: 'snapshot.failed', data: { reason, code, why } }]);
    } catch (failure) {
      log.warn('the failure could not be recorded', {
        session: session.id,
        why: HoldfastError.from(failure).sentence,
      });
    }
  }
}
