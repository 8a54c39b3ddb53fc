import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { type ErrorCode, HoldfastError } from '../../protocol/errors.ts';
import { type RestoreCounts, RestoreCountsSchema, type SnapshotReason } from '../../protocol/snapshots.ts';
import type { RestoreResult, StateScope } from '../../snapshot-format/sidecar-calls.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import { retryIfSandboxLost, type SidecarAccess } from '../workspace/sidecar-access.ts';
import type { Seeding } from '../workspace/seeding.ts';
import type { KeyedReadWriteLock } from '../base/keyed-read-write-lock.ts';
import type { SnapshotCallOptions } from './connection.ts';
import type { Hydration } from './hydration.ts';
import { RESTORE, type RestoreData, type RestoreIntent, type RestoreIntents } from './restore-intents.ts';
import type { SnapshotService } from './snapshot-service.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import type { SnapshotCreation } from './snapshot-creation.ts';
import type { CreatedSnapshot } from './snapshot-records.ts';

/** When a sidecar exits during a restore, the next one continues it. */
const MAX_ATTEMPTS = 5;
const RETRY_DELAY_MS = 200;
/** Codes of errors that say the restore was stopped here: they are no failure. */
const STOPPED: ReadonlySet<ErrorCode> = new Set(['shutting_down', 'not_found']);

const AnswerSchema = RestoreCountsSchema.extend({
  snapshot: z.string(),
  undo: z.string().nullable(),
  stateRoot: z.string().nullable().default(null),
});
export type RestoreAnswer = z.infer<typeof AnswerSchema>;

export interface RestoresOptions {
  readonly database: Database;
  readonly operations: Operations;
  readonly intents: RestoreIntents;
  readonly records: SessionRecords;
  readonly events: EventLog;
  readonly stores: LineageStores;
  readonly snapshotCreation: SnapshotCreation;
  readonly service: SnapshotService;
  readonly lifecycle: Lifecycle;
  readonly sessionMutex: KeyedMutex;
  readonly seeding: Pick<Seeding, 'finishPending'>;
  readonly access: SidecarAccess;
  readonly hydration: Pick<Hydration, 'hydrate'>;
  readonly writeLock: Pick<KeyedReadWriteLock, 'runExclusive'>;
  /** Throws `conflict` while a turn, exec or terminal is active in the session. */
  readonly requireIdle: (row: SessionRow, what: string) => void;
  /** Ends every turn, exec and terminal of the session and waits for their end. */
  readonly drain: (sessionId: string, why: string) => Promise<void>;
  /** Finishes the cleans that an earlier supervisor began. The caller holds the session's mutex. */
  readonly finishCleans: (sessionId: string) => Promise<void>;
  /** What of the agent's HOME belongs to snapshots; null: nothing. */
  readonly stateOf: (row: SessionRow) => StateScope | null;
  /** Called when the size of the workspace has changed. */
  readonly onResized: (sessionId: string) => void;
}

export interface ChangeRequest extends SnapshotCallOptions {
  /** Change only this path; null or absent: the whole workspace. */
  readonly path?: string | null;
  /** End active turns, execs and terminals instead of refusing. */
  readonly cancel: boolean;
  /** Continue even if the undo snapshot cannot be created. */
  readonly force: boolean;
}

export interface RestoreRequest extends ChangeRequest {
  readonly snapshot: SnapshotRow;
  readonly path: string | null;
  /** Restore the agent's state too. */
  readonly withState: boolean;
  readonly opId?: string | undefined;
}

/**
 * Restores workspaces from snapshots. The intent is on disk before the first file changes and is removed in the
 * transaction that appends the event. If the supervisor is killed in between, the next one finishes the restore before
 * any other use of the session.
 */
export class Restores {
  readonly #options: RestoresOptions;

  constructor(options: RestoresOptions) {
    this.#options = options;
  }

  /**
   * Errors: `conflict` while something is active, `not_supported` for an ephemeral session, those of creating a
   * snapshot and of the sidecar.
   */
  async restore(session: SessionRow, request: RestoreRequest): Promise<RestoreAnswer> {
    const { snapshot, path, withState, opId } = request;
    const earlier = this.#options.operations.findResult(opId, RESTORE);
    if (earlier !== null) return AnswerSchema.parse(earlier.result);
    requirePersistent(session, 'restored');
    if (withState) requireState(snapshot, path, this.#options.stateOf(session));
    return await this.changeWorkspace(session, 'before-restore', 'restored', request, async (row, undo) => {
      const { id, root } = snapshot;
      const stateRoot = withState ? snapshot.stateRoot : null;
      const data: RestoreData = { snapshot: id, root, stateRoot, path, undo: undo?.id ?? null, fill: false };
      const { intents, operations } = this.#options;
      // The first request with this `opId` may have had the locks while this one waited.
      const ended = operations.findResult(opId, RESTORE);
      if (ended !== null) return AnswerSchema.parse(ended.result);
      const hydratedFrom = intents.pendingHydration(row.id);
      const operation = intents.begin(row.id, data, opId);
      try {
        await failpoint('restore.after-intent');
        return await this.#apply(row, { operation, data }, request, undo?.root ?? null);
      } catch (error) {
        throw this.#recordFailure(row, { operation, data }, error, hydratedFrom);
      }
    });
  }

  /**
   * Snapshots the workspace, then runs `act` while nothing else runs in it and the session's mutex is held. `undo` is
   * that snapshot; null only if it failed and `force` was given.
   */
  async changeWorkspace<T>(
    session: SessionRow,
    reason: SnapshotReason,
    what: string,
    request: ChangeRequest,
    act: (row: SessionRow, undo: SnapshotRow | null) => Promise<T>,
  ): Promise<T> {
    const { snapshotCreation, sessionMutex, lifecycle, records, seeding, writeLock } = this.#options;
    const { drain, requireIdle, finishCleans } = this.#options;
    if (request.cancel) await drain(session.id, 'the workspace of its session was restored from a snapshot');
    requireIdle(session, what);
    const release = this.#options.access.acquireLease(session.id);
    try {
      const runLocked = async (): Promise<T> => {
        requireIdle(session, what);
        await finishCleans(session.id);
        // A restore of one path keeps the rest of the workspace, so all of it must be there.
        if (typeof request.path === 'string') await this.finishPendingLocked(session.id);
        const row = await retryIfSandboxLost(() =>
          lifecycle.ensureSidecarAloneLocked(records.get(session.id), `its workspace is ${what}`),
        );
        await seeding.finishPending(row);
        return await act(row, await this.#createUndo(row, reason, request));
      };
      return await writeLock.runExclusive(session.id, () =>
        snapshotCreation.withScanLock(session.id, () => sessionMutex.run(session.id, runLocked)),
      );
    } finally {
      release();
    }
  }

  /**
   * Finishes an interrupted restore or hydration. The caller holds the session's mutex and has not used the workspace
   * yet.
   */
  async finishPendingLocked(sessionId: string): Promise<void> {
    const { intents, records, hydration } = this.#options;
    const intent = intents.get(sessionId);
    if (intent === null) return;
    const row = records.peek(sessionId);
    if (row === null || row.status === 'deleted') {
      intents.drop(sessionId);
      return;
    }
    const { fill, snapshot } = intent.data;
    try {
      if (fill) await hydration.hydrate(sessionId, (options) => this.#finish(row, intent, options));
      else await this.#finish(row, intent, {});
    } catch (error) {
      const failure = HoldfastError.from(error);
      if (STOPPED.has(failure.code)) throw failure;
      const work = fill ? `copying the files of snapshot ${snapshot}` : 'an earlier restore';
      throw new HoldfastError(failure.code, `The files of ${row.name} are incomplete`, {
        why: `${work} could not be finished: ${failure.sentence}`,
        next:
          `try again, or replace the files with \`holdfast session reset ${row.id}\` or ` +
          '`holdfast snapshot restore`',
        details: failure.details,
        cause: error,
      });
    }
  }

  async #finish(row: SessionRow, intent: RestoreIntent, options: SnapshotCallOptions): Promise<void> {
    const { lifecycle } = this.#options;
    // The agent may still run if the machine went down before its end was recorded.
    const stopped =
      row.generation === 0 ? row : await lifecycle.endAgentLocked(row, 'its workspace is restored');
    await lifecycle.ensureSidecarLocked(stopped);
    await this.#apply(stopped, intent, options, null);
  }

  /**
   * The undo snapshot. For a workspace that is not hydrated yet, the snapshot it begins with: it never held anything
   * else.
   */
  async #createUndo(
    row: SessionRow,
    reason: SnapshotReason,
    request: ChangeRequest,
  ): Promise<SnapshotRow | null> {
    const { intents, snapshotCreation, service, lifecycle } = this.#options;
    const { signal, onProgress } = request;
    const hydrationSource = intents.pendingHydration(row.id);
    if (hydrationSource !== null) return service.find(hydrationSource);
    const createUndo = (): Promise<CreatedSnapshot | null> =>
      retryIfSandboxLost(async (isRetry) => {
        if (isRetry) await lifecycle.ensureSidecarLocked(row);
        return await snapshotCreation.createLocked(row, { reason, signal, onProgress });
      });
    if (request.force) return await service.tryCreate(row, reason, createUndo);
    try {
      const undo = (await createUndo())?.row ?? null;
      if (undo !== null && undo.missing > 0) throw incomplete(undo);
      return undo;
    } catch (error) {
      const failure = HoldfastError.from(error);
      throw new HoldfastError(
        failure.code,
        'Nothing was changed: no snapshot to return to could be created',
        {
          why: failure.sentence,
          next: 'fix the cause, or repeat the command with --force to continue without a way back',
          details: failure.details,
          cause: error,
        },
      );
    }
  }

  /** `scannedRoot`: the tree that a scan has just found in the workspace. */
  async #apply(
    row: SessionRow,
    { operation, data }: RestoreIntent,
    options: SnapshotCallOptions,
    scannedRoot: string | null,
  ): Promise<RestoreAnswer> {
    const { database, operations, intents, events, onResized } = this.#options;
    const { snapshot, path, undo, stateRoot } = data;
    const restored = await this.#runRestore(row, data, options, scannedRoot);
    await failpoint('restore.after-files');
    const { created, replaced, removed, touched, bytes } = restored;
    const counts: RestoreCounts = { created, replaced, removed, touched, bytes };
    const answer: RestoreAnswer = { ...counts, snapshot, undo, stateRoot };
    database.transaction(() => {
      events.append(row.id, [
        {
          type: 'workspace.restored',
          data: {
            snapshotId: snapshot,
            path,
            undo,
            ...counts,
            ...(stateRoot === null ? {} : { stateRoot }),
          },
        },
      ]);
      operations.finish(operation, answer);
    });
    intents.markEnded(row.id);
    onResized(row.id);
    await failpoint('restore.after-end');
    return answer;
  }

  async #runRestore(
    row: SessionRow,
    { root, stateRoot, path }: RestoreData,
    options: SnapshotCallOptions,
    scannedRoot: string | null,
  ): Promise<RestoreResult> {
    const { stores, snapshotCreation, lifecycle, stateOf } = this.#options;
    const scope = stateOf(row);
    return await stores.use(row.lineage, async (store) => {
      const done = { workspace: false };
      for (let attempt = 1; ; attempt += 1) {
        try {
          if (attempt > 1) await lifecycle.ensureSidecarLocked(row);
          const params = { root, path, dryRun: false, scannedRoot, state: null };
          return await snapshotCreation.withConnection(row.id, async (connection) => {
            const restored = await connection.restore(params, store, options);
            done.workspace = true;
            // A profile that names no state any more has no place for it.
            if (stateRoot !== null && scope !== null) {
              const state = { root: stateRoot, path: null, dryRun: false, scannedRoot: null, state: scope };
              await connection.restore(state, store, options);
            }
            return restored;
          });
        } catch (error) {
          if (attempt === MAX_ATTEMPTS || !isSidecarLost(error))
            throw attempt === 1 && !done.workspace ? error : afterEarlierWork(error);
          // The engine may take a moment to notice that the sidecar has exited.
          await sleep(attempt * RETRY_DELAY_MS);
        }
      }
    });
  }

  /**
   * The error for the caller, who decides what happens next. `hydratedFrom`: the snapshot that the session was still to
   * be hydrated from.
   */
  #recordFailure(
    row: SessionRow,
    { operation, data: { undo } }: RestoreIntent,
    error: unknown,
    hydratedFrom: string | null,
  ): HoldfastError {
    const { database, operations, intents, service } = this.#options;
    const failure = HoldfastError.from(error, 'The restore failed');
    const reported = new HoldfastError(failure.code, failure.message, {
      why: failure.why,
      next: [
        failure.next,
        failure.details?.['untouched'] === true
          ? 'nothing was changed'
          : undo === null
            ? undefined
            : `\`holdfast snapshot restore ${row.id} ${undo}\` returns the workspace to its earlier state`,
      ]
        .filter((part) => part !== undefined)
        .join('; '),
      details: { ...failure.details, undo },
      cause: error,
    });
    intents.markEnded(row.id);
    try {
      database.transaction(() => {
        operations.fail(operation, reported);
        if (hydratedFrom !== null) intents.recordHydration(row.id, service.find(hydratedFrom));
      });
    } catch (unwritten) {
      // The caller still gets the error, so the operation must not be resumed.
      operations.abandon(operation, reported);
      if (hydratedFrom !== null) throw unwritten;
    }
    return reported;
  }
}

/** Errors: `not_supported` for an ephemeral session. `what`: what its workspace is not, such as `restored`. */
export function requirePersistent(session: SessionRow, what: string): void {
  if (session.persistent) return;
  throw new HoldfastError('not_supported', `The workspace of ${session.name} is not ${what}`, {
    why: 'the session is ephemeral: its files are deleted with its sandbox',
    next: 'start another session with `holdfast snapshot fork SNAPSHOT`',
  });
}

/** An error of a later attempt, or of the state after the workspace: files were touched, whatever it says of itself. */
function afterEarlierWork(error: unknown): HoldfastError {
  const { code, message, why, next, details } = HoldfastError.from(error);
  return new HoldfastError(code, message, {
    why,
    next,
    details: { ...details, untouched: false },
    cause: error,
  });
}

/** Files that the snapshot lacks could not be restored. */
function incomplete({ id, missing, missingPaths }: SnapshotRow): HoldfastError {
  return new HoldfastError('file_unavailable', `Snapshot ${id} is incomplete`, {
    why: `${missing} files could not be read, such as ${missingPaths[0] ?? ''}`,
  });
}

/** Errors: `invalid_params` for a part of the workspace, `not_found` if there is no state to restore. */
function requireState({ id, stateRoot }: SnapshotRow, path: string | null, scope: StateScope | null): void {
  const refused = 'Nothing was restored';
  if (path !== null) {
    throw new HoldfastError('invalid_params', refused, {
      why: "the agent's state belongs to the whole workspace, not to a path",
      next: 'omit the path, or restore without the state',
    });
  }
  if (scope === null) {
    throw new HoldfastError('invalid_state', refused, {
      why: "the profile names no state of the agent's",
      next: 'name it in `agent.state` and deploy, or restore without the state',
    });
  }
  if (stateRoot !== null) return;
  throw new HoldfastError('not_found', refused, {
    why: `snapshot ${id} has no state of the agent's`,
    next: 'restore without the state, or choose another snapshot',
    details: { snapshot: id },
  });
}

function isSidecarLost(error: unknown): boolean {
  return (
    error instanceof HoldfastError && (error.code === 'connection_closed' || error.code === 'sandbox_lost')
  );
}
