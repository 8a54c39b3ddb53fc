import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { type ErrorCode, HoldfastError } from '../../protocol/errors.ts';
import { type RestoreCounts, RestoreCountsSchema, type SnapshotReason } from '../../protocol/snapshots.ts';
import type { RestoreResult } from '../../snapshot-format/sidecar-calls.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Database } from '../store/database.ts';
import type { Operation, OperationData, Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import { retryIfSandboxLost, type SidecarAccess } from '../workspace/sidecar-access.ts';
import type { Seeding } from '../workspace/seeding.ts';
import type { KeyedReadWriteLock } from '../base/keyed-read-write-lock.ts';
import type { SnapshotCallOptions } from './connection.ts';
import type { Hydration } from './hydration.ts';
import type { SnapshotService } from './snapshot-service.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import type { CreatedSnapshot, SnapshotCreation } from './snapshot-creation.ts';

const RESTORE = 'snapshot.restore';
/** A sidecar that ends in the middle is followed by another one that goes on. */
const TRIES = 5;
const AGAIN_MS = 200;
/** How long a sidecar may take to let go of what was ended. */
const QUIET_MS = 10_000;
/** Not failures: it was ended here. */
const PASSING: ReadonlySet<ErrorCode> = new Set(['shutting_down', 'not_found']);

const DataSchema = z.object({
  snapshot: z.string(),
  root: z.string(),
  path: z.string().nullable(),
  undo: z.string().nullable(),
  /** The session begins with it. */
  fill: z.boolean().default(false),
});
type Data = z.infer<typeof DataSchema>;

const AnswerSchema = RestoreCountsSchema.extend({ snapshot: z.string(), undo: z.string().nullable() });
export type RestoreAnswer = z.infer<typeof AnswerSchema>;

export interface RestoresOptions {
  readonly database: Database;
  readonly operations: Operations;
  readonly records: SessionRecords;
  readonly events: EventLog;
  readonly stores: LineageStores;
  readonly snapshotCreation: SnapshotCreation;
  readonly service: SnapshotService;
  readonly lifecycle: Lifecycle;
  readonly lanes: KeyedMutex;
  readonly seeding: Pick<Seeding, 'finishPending'>;
  readonly access: SidecarAccess;
  readonly hydration: Pick<Hydration, 'hydrate' | 'clearFailure'>;
  readonly writes: Pick<KeyedReadWriteLock, 'runExclusive'>;
  /** Throws where something is live in the session. */
  readonly requireIdle: (row: SessionRow, what: string) => void;
  /** Ends every turn and exec of the session. */
  readonly drain: (sessionId: string, why: string) => Promise<void>;
  /** What an earlier supervisor had begun to empty. In the session's lane. */
  readonly finishCleans: (sessionId: string) => Promise<void>;
  /** The workspace has another size now. */
  readonly onResized: (sessionId: string) => void;
}

export interface ChangeRequest extends SnapshotCallOptions {
  /** Only what is there changes; all of it where it is null or left out. */
  readonly path?: string | null;
  /** End what is live instead of refusing. */
  readonly cancel: boolean;
  /** Go on where the snapshot before it cannot be taken. */
  readonly force: boolean;
}

export interface RestoreRequest extends ChangeRequest {
  readonly snapshot: SnapshotRow;
  readonly path: string | null;
  readonly opId?: string | undefined;
}

/**
 * Makes workspaces what snapshots have. The intent is on the disk before the first file changes and ends with the event: a
 * supervisor that is killed in between is followed by one that finishes it before anything else happens in the session.
 */
export class Restores {
  readonly #options: RestoresOptions;
  /** What was begun and has not ended, by session. */
  readonly #begun = new Map<string, Operation>();

  constructor(options: RestoresOptions) {
    this.#options = options;
    for (const operation of options.operations.pending()) {
      if (operation.kind === RESTORE && operation.sessionId !== null)
        this.#begun.set(operation.sessionId, operation);
    }
  }

  /** Errors: `conflict` while something is live, `not_supported` for an ephemeral session, those of taking and of the sidecar. */
  async restore(session: SessionRow, request: RestoreRequest): Promise<RestoreAnswer> {
    const { snapshot, path, opId } = request;
    const earlier = this.#options.operations.findResult(opId, RESTORE);
    if (earlier !== null) return AnswerSchema.parse(earlier.result);
    return await this.changeWorkspace(session, 'before-restore', 'restored', request, async (row, undo) => {
      const { id, root } = snapshot;
      const data: Data = { snapshot: id, root, path, undo: undo?.id ?? null, fill: false };
      const filled = this.pendingHydration(row.id);
      const operation = this.#begin(row.id, data, opId);
      try {
        await failpoint('restore.after-intent');
        return await this.#apply(row, operation, request, undo?.root ?? null);
      } catch (error) {
        throw this.#failed(row, operation, error, data.undo, filled);
      }
    });
  }

  /**
   * Does `act` with a workspace in which nothing runs, after a snapshot of it: `undo`, null only where that failed and was forced.
   * In the session's lane.
   */
  async changeWorkspace<T>(
    session: SessionRow,
    reason: SnapshotReason,
    what: string,
    request: ChangeRequest,
    act: (row: SessionRow, undo: SnapshotRow | null) => Promise<T>,
  ): Promise<T> {
    const { snapshotCreation, lanes, lifecycle, records, seeding, writes, drain, requireIdle, finishCleans } =
      this.#options;
    if (!session.persistent) {
      throw new HoldfastError('not_supported', `The workspace of ${session.name} is not ${what}`, {
        why: 'it is ephemeral: its files go with its sandbox',
        next: 'begin another session with `holdfast snapshot fork SNAPSHOT`',
      });
    }
    if (request.cancel) await drain(session.id, 'the files of its session were brought back to a snapshot');
    requireIdle(session, what);
    const release = this.#options.access.acquireLease(session.id);
    try {
      const inLane = async (): Promise<T> => {
        requireIdle(session, what);
        await finishCleans(session.id);
        // What stays must be there.
        if (typeof request.path === 'string') await this.finishPendingLocked(session.id);
        const row = await retryIfSandboxLost(() =>
          lifecycle.ensureSidecarAloneLocked(records.get(session.id), `its workspace is ${what}`),
        );
        await seeding.finishPending(row);
        return await act(row, await this.#undo(row, reason, request));
      };
      return await writes.runExclusive(session.id, () =>
        snapshotCreation.withScanLock(session.id, () => lanes.run(session.id, inLane)),
      );
    } finally {
      release();
    }
  }

  /** Part of the transaction that makes a session which begins with a snapshot: its files come before its first use. */
  recordHydrationIntent(sessionId: string, snapshot: SnapshotRow): void {
    const { id, root } = snapshot;
    this.#begin(sessionId, { snapshot: id, root, path: null, undo: null, fill: true }, undefined);
  }

  /** Finishes what was begun. In the session's lane, before anything else happens in its workspace. */
  async finishPendingLocked(sessionId: string): Promise<void> {
    const operation = this.#begun.get(sessionId);
    if (operation === undefined) return;
    const { records, hydration } = this.#options;
    const row = records.peek(sessionId);
    if (row === null || row.status === 'deleted') {
      this.dropIntent(sessionId);
      return;
    }
    const { fill, snapshot } = DataSchema.parse(operation.data);
    try {
      if (fill) await hydration.hydrate(sessionId, (options) => this.#finish(row, operation, options));
      else await this.#finish(row, operation, {});
    } catch (error) {
      const failure = HoldfastError.from(error);
      if (PASSING.has(failure.code)) throw failure;
      const begun = fill ? `it begins with snapshot ${snapshot}, which` : 'a restore was begun and';
      throw new HoldfastError(failure.code, `The files of ${row.name} are not all there`, {
        why: `${begun} cannot be ${fill ? 'brought' : 'finished'}: ${failure.sentence}`,
        next: `try again, or give it other files (\`holdfast session reset ${row.id}\`, \`holdfast snapshot restore\`)`,
        details: failure.details,
        cause: error,
      });
    }
  }

  /** The snapshot that a session begins with, where its files are not all there; else null. */
  pendingHydration(sessionId: string): string | null {
    const operation = this.#begun.get(sessionId);
    if (operation === undefined) return null;
    const { fill, snapshot } = DataSchema.parse(operation.data);
    return fill ? snapshot : null;
  }

  /** Settles when the session's sidecar restores nothing any more that was ended here. In its lane. Never rejects. */
  async drain({ id, lineage }: SessionRow): Promise<void> {
    const { stores, snapshotCreation } = this.#options;
    const signal = AbortSignal.timeout(QUIET_MS);
    await stores
      .use(lineage, (store) =>
        snapshotCreation.withConnection(id, (connection) =>
          connection.saveScanCache(true, store, { signal }),
        ),
      )
      .catch(() => false);
  }

  /** Sessions with something left to finish. */
  sessionsWithPending(): string[] {
    return [...this.#begun.keys()];
  }

  /** What was begun is not to be finished: the workspace goes, or gets other files. */
  dropIntent(sessionId: string): void {
    const operation = this.#begun.get(sessionId);
    if (operation === undefined) return;
    this.#options.operations.fail(
      operation,
      new HoldfastError('interrupted', 'The restore was not finished', {
        why: 'something else came over it',
      }),
    );
    this.#begun.delete(sessionId);
    this.#options.hydration.clearFailure(sessionId);
  }

  #begin(sessionId: string, data: Data & OperationData, opId: string | undefined): Operation {
    const { database, operations } = this.#options;
    return database.transaction(() => {
      const before = this.#begun.get(sessionId);
      const begun = operations.begin({ opId, kind: RESTORE, sessionId, data });
      if ('replay' in begun) {
        throw new HoldfastError('conflict', 'The restore was asked for and answered before');
      }
      // The last one decides what the workspace is.
      if (before !== undefined) this.dropIntent(sessionId);
      this.#begun.set(sessionId, begun.operation);
      database.afterRollback(() => {
        if (before === undefined) this.#begun.delete(sessionId);
        else this.#begun.set(sessionId, before);
      });
      return begun.operation;
    });
  }

  async #finish(row: SessionRow, operation: Operation, options: SnapshotCallOptions): Promise<void> {
    const { lifecycle } = this.#options;
    // The agent may still run if the machine went down before its end was written.
    const stopped =
      row.generation === 0 ? row : await lifecycle.endAgentLocked(row, 'its workspace is restored');
    await lifecycle.ensureSidecarLocked(stopped);
    await this.#apply(stopped, operation, options, null);
  }

  /** Of a workspace that is not filled yet it is what it is filled with: nothing else has been in it. */
  async #undo(row: SessionRow, reason: SnapshotReason, request: ChangeRequest): Promise<SnapshotRow | null> {
    const { snapshotCreation, service, lifecycle } = this.#options;
    const { signal, onProgress } = request;
    const beginning = this.pendingHydration(row.id);
    if (beginning !== null) return service.find(beginning);
    const take = (): Promise<CreatedSnapshot | null> =>
      retryIfSandboxLost(async (isAgain) => {
        if (isAgain) await lifecycle.ensureSidecarLocked(row);
        return await snapshotCreation.createLocked(row, { reason, signal, onProgress });
      });
    if (request.force) return await service.tryCreate(row, reason, take);
    try {
      const undo = (await take())?.row ?? null;
      if (undo !== null && undo.missing > 0) throw incomplete(undo);
      return undo;
    } catch (error) {
      const failure = HoldfastError.from(error);
      throw new HoldfastError(
        failure.code,
        'Nothing was changed: the snapshot before it could not be taken',
        {
          why: failure.sentence,
          next: 'put that right, or repeat it with --force to go on without a way back',
          details: failure.details,
          cause: error,
        },
      );
    }
  }

  /** `seen`: the tree that the workspace was found to have a moment ago. */
  async #apply(
    row: SessionRow,
    operation: Operation,
    options: SnapshotCallOptions,
    seen: string | null,
  ): Promise<RestoreAnswer> {
    const { database, operations, events, hydration, onResized } = this.#options;
    const data = DataSchema.parse(operation.data);
    const { snapshot, path, undo } = data;
    const restored = await this.#restored(row, data, options, seen);
    await failpoint('restore.after-files');
    const { created, replaced, removed, touched, bytes } = restored;
    const counts: RestoreCounts = { created, replaced, removed, touched, bytes };
    const answer: RestoreAnswer = { ...counts, snapshot, undo };
    database.transaction(() => {
      events.append(row.id, [
        { type: 'workspace.restored', data: { snapshotId: snapshot, path, undo, ...counts } },
      ]);
      operations.finish(operation, answer);
    });
    this.#begun.delete(row.id);
    hydration.clearFailure(row.id);
    onResized(row.id);
    await failpoint('restore.after-end');
    return answer;
  }

  async #restored(
    row: SessionRow,
    { root, path }: Data,
    options: SnapshotCallOptions,
    seen: string | null,
  ): Promise<RestoreResult> {
    const { stores, snapshotCreation, lifecycle } = this.#options;
    return await stores.use(row.lineage, async (store) => {
      for (let tries = 1; ; tries += 1) {
        try {
          if (tries > 1) await lifecycle.ensureSidecarLocked(row);
          const params = { root, path, dryRun: false, seen };
          return await snapshotCreation.withConnection(row.id, (connection) =>
            connection.restore(params, store, options),
          );
        } catch (error) {
          if (tries === TRIES || !isCutOff(error)) throw tries === 1 ? error : afterOthers(error);
          // The engine may take a moment to see that it is gone.
          await sleep(tries * AGAIN_MS);
        }
      }
    });
  }

  /** Told to whoever asked: it is theirs to decide what comes now. `filled`: the snapshot that the session still waited for. */
  #failed(
    row: SessionRow,
    operation: Operation,
    error: unknown,
    undo: string | null,
    filled: string | null,
  ): HoldfastError {
    const { database, operations, service } = this.#options;
    const failure = HoldfastError.from(error, 'The restore failed');
    const told = new HoldfastError(failure.code, failure.message, {
      why: failure.why,
      next: [
        failure.next,
        failure.details?.['untouched'] === true
          ? 'nothing was changed'
          : undo === null
            ? undefined
            : `\`holdfast snapshot restore ${row.id} ${undo}\` makes the workspace what it was before`,
      ]
        .filter((part) => part !== undefined)
        .join('; '),
      details: { ...failure.details, undo },
      cause: error,
    });
    this.#begun.delete(row.id);
    try {
      database.transaction(() => {
        operations.fail(operation, told);
        if (filled !== null) this.recordHydrationIntent(row.id, service.find(filled));
      });
    } catch (unwritten) {
      // The caller is told of its failure all the same, so nobody may go on with it.
      operations.abandon(operation, told);
      if (filled !== null) throw unwritten;
    }
    return told;
  }
}

/** What one of several tries says is not true of those before it, which may have touched something. */
function afterOthers(error: unknown): HoldfastError {
  const { code, message, why, next, details } = HoldfastError.from(error);
  return new HoldfastError(code, message, {
    why,
    next,
    details: { ...details, untouched: false },
    cause: error,
  });
}

/** What it lacks could not be brought back. */
function incomplete({ id, missing, missingPaths }: SnapshotRow): HoldfastError {
  return new HoldfastError('file_unavailable', `Snapshot ${id} is incomplete`, {
    why: `${missing} files could not be read, such as ${missingPaths[0] ?? ''}`,
  });
}

function isCutOff(error: unknown): boolean {
  return (
    error instanceof HoldfastError && (error.code === 'connection_closed' || error.code === 'sandbox_lost')
  );
}
