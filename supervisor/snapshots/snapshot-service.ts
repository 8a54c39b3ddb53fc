import { HoldfastError } from '../../protocol/errors.ts';
import type { Snapshot, SnapshotReason } from '../../protocol/snapshots.ts';
import type { Log } from '../base/log.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotFilter, SnapshotPatch, SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import type { SnapshotRequest, CreatedSnapshot, SnapshotCreation } from './snapshot-creation.ts';
import { SnapshotViews } from './snapshot-views.ts';

const DAY_MS = 86_400_000;
/** How long the snapshots of a deleted session stay. */
const GRACE_MS = 7 * DAY_MS;
/** A deletion waits this long for the snapshot before it; what was taken before stays in any case. */
const BEFORE_DELETE_MS = 20_000;

export interface SnapshotServiceOptions {
  readonly database: Database;
  readonly sessions: Sessions;
  readonly snapshots: Snapshots;
  readonly stores: LineageStores;
  readonly events: EventLog;
  readonly turns: Turns;
  readonly operations: Operations;
  readonly snapshotCreation: SnapshotCreation;
  /** What is written here frees space: it must be writable on a full disk. */
  readonly reserve: DiskReserve;
  readonly log: Log;
  /** BEFORE_DELETE_MS when left out. */
  readonly beforeDeleteTimeoutMs?: number | undefined;
  /** ms since 1970. */
  readonly now: () => number;
}

/** Snapshots as clients know them. */
export class SnapshotService {
  readonly #options: SnapshotServiceOptions;
  readonly #views: SnapshotViews;
  #tick: NodeJS.Timeout | null = null;
  #tidying: Promise<unknown> = Promise.resolve();

  constructor(options: SnapshotServiceOptions) {
    this.#options = options;
    this.#views = new SnapshotViews(options);
  }

  /** Takes away what is over. Before the first request. */
  async start(): Promise<void> {
    await this.#options.stores.clearIncoming();
    this.#tick = setInterval(() => this.#tidyAll(), DAY_MS).unref();
    this.#tidyAll();
  }

  async close(): Promise<void> {
    if (this.#tick !== null) clearInterval(this.#tick);
    this.#options.snapshotCreation.close();
    await this.#tidying;
    await this.#options.stores.close();
  }

  async create(
    session: SessionRow,
    request: Omit<SnapshotRequest, 'reason' | 'skipIfEmpty'>,
  ): Promise<CreatedSnapshot> {
    const taken = await this.#options.snapshotCreation.create(session.id, { ...request, reason: 'manual' });
    if (taken === null) throw new HoldfastError('internal', 'There is no snapshot of an empty workspace');
    return taken;
  }

  /**
   * One that Holdfast takes by itself, for something that goes on all the same: what fails is told in the session's history. Never
   * rejects. Null where there is none.
   */
  async tryCreate(
    session: SessionRow,
    reason: SnapshotReason,
    take: () => Promise<CreatedSnapshot | null>,
  ): Promise<SnapshotRow | null> {
    try {
      return (await take())?.row ?? null;
    } catch (error) {
      this.#failed(session, reason, HoldfastError.from(error, 'The snapshot could not be taken'));
      return null;
    }
  }

  /** Settles when the workspace of a session that is being deleted may go. In its lane, `alone`. */
  async createBeforeDelete(session: SessionRow): Promise<void> {
    await this.tryCreate(session, 'before-delete', () =>
      this.#options.snapshotCreation.createLocked(session, {
        reason: 'before-delete',
        skipIfEmpty: true,
        signal: AbortSignal.timeout(this.#options.beforeDeleteTimeoutMs ?? BEFORE_DELETE_MS),
      }),
    );
  }

  /**
   * By id. With `session`, one of another lineage is `not_found`, as one that nobody knows: ids tell nothing about what they are of.
   */
  find(id: string, session?: string): SnapshotRow {
    const { snapshots } = this.#options;
    const row = snapshots.getOrThrow(id);
    if (session === undefined || this.findSession(session).lineage === row.lineage) return row;
    throw new HoldfastError('not_found', `There is no snapshot ${id} of ${session}`, {
      next: `see \`holdfast snapshot list ${session}\``,
    });
  }

  /** The session that is named; one that was deleted by its id. */
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

  /** Errors: `confirmation_required`, `conflict` while a session that began with it is there. */
  delete(id: string, session: string | undefined, force: boolean, opId?: string): void {
    const { operations, reserve } = this.#options;
    if (operations.findResult(opId, 'snapshot.delete') !== null) return;
    const row = this.find(id, session);
    if (!force) {
      throw new HoldfastError('confirmation_required', `Snapshot ${id} is not deleted without a yes`, {
        why: 'nothing could bring it back',
        next: 'repeat it with --force',
      });
    }
    reserve.retryOnFullDisk(() =>
      operations.runOnce(opId, 'snapshot.delete', () => {
        this.remove(row, 'asked for');
        return {};
      }),
    );
    reserve.ensure();
    this.removeUnusedStore(row.lineage);
  }

  /** Takes the row away and says so in the history; what only it needed is collected later. Errors: `conflict` as `delete`. */
  remove(row: SnapshotRow, why: string): void {
    const { database, snapshots, sessions, events } = this.#options;
    const [fork] = sessions.listByOrigin(row.id);
    if (fork !== undefined) {
      throw new HoldfastError('conflict', `Snapshot ${row.id} is not deleted`, {
        why: `session ${fork.name} (${fork.id}) began with it`,
        next: 'delete that session first',
        details: { session: fork.id },
      });
    }
    database.transaction(() => {
      snapshots.remove(row.id);
      events.append(row.sessionId, [{ type: 'snapshot.deleted', data: { snapshotId: row.id, why } }]);
    });
  }

  /** A session is being deleted: of what was taken without being asked for only the last one stays. Part of the caller's transaction. */
  pruneDeletedSession(session: SessionRow): void {
    const { snapshots, sessions } = this.#options;
    const newest = snapshots.newest(session.id);
    for (const row of snapshots.listBySession(session.id)) {
      const stays = row.id === newest?.id || row.pinned || row.reason === 'manual';
      if (!stays && sessions.listByOrigin(row.id).length === 0) this.remove(row, 'its session was deleted');
    }
    this.#options.database.afterCommit(() => this.removeUnusedStore(session.lineage));
  }

  /** Removes the store of a lineage that has no snapshot any more. In the background. */
  removeUnusedStore(lineage: string): void {
    const { stores, snapshots, log } = this.#options;
    const none = (): boolean => snapshots.listByLineage(lineage).length === 0;
    if (!none()) return;
    this.#tidying = this.#tidying
      .then(() => stores.remove(lineage, none))
      .catch((error: unknown) => log.warn('a store could not be removed', { lineage, error }));
  }

  /** Ends the grace of sessions that were deleted, and removes what is left without a row. */
  #tidyAll(): void {
    const { snapshots, sessions, now, log } = this.#options;
    try {
      for (const lineage of snapshots.listLineages()) {
        for (const row of snapshots.listByLineage(lineage)) {
          const session = sessions.get(row.sessionId);
          const over =
            session === null || (session.deletedAt !== null && now() - session.deletedAt > GRACE_MS);
          if (over && sessions.listByOrigin(row.id).length === 0) this.remove(row, 'its session was deleted');
        }
      }
    } catch (error) {
      log.warn('old snapshots stay', { error });
    }
    this.#tidying = this.#tidying
      .then(async () => {
        for (const lineage of await this.#options.stores.lineages()) this.removeUnusedStore(lineage);
      })
      .catch((error: unknown) => log.warn('stores without a snapshot stay', { error }));
  }

  #failed(session: SessionRow, reason: SnapshotReason, error: HoldfastError): void {
    const { events, log } = this.#options;
    const { code, sentence: why } = error;
    log.warn('a snapshot could not be taken', { session: session.id, reason, code, why, cause: error.cause });
    try {
      events.append(session.id, [{ type: 'snapshot.failed', data: { reason, code, why } }]);
    } catch (failure) {
      log.warn('nor could that be told', { session: session.id, why: HoldfastError.from(failure).sentence });
    }
  }
}
