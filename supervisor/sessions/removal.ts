import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { Database } from '../store/database.ts';
import {
  type BeginResult,
  type Intent,
  type Operation,
  type Operations,
  replayResult,
} from '../store/operations.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import { STOP_GRACE_MS, type Lifecycle } from '../sandboxes/lifecycle.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { SidecarConnections } from '../sandboxes/sidecar-connections.ts';
import { workspaceSpec } from '../sandboxes/sandbox-spec.ts';

export const CLEAN = 'workspace.clean';
const SNAPSHOTTED = 'snapshotted';

/** What emptying a workspace removed, and the snapshot of what it was, where one was taken. */
export const CleanedSchema = z.object({
  removedFiles: z.int(),
  removedBytes: z.int(),
  undo: z.string().nullable().default(null),
});

export interface Removed {
  readonly removedFiles: number;
  readonly removedBytes: number;
}

export interface RemovalOptions {
  readonly engine: Engine;
  readonly database: Database;
  readonly operations: Operations;
  readonly records: SessionRecords;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly lifecycle: Lifecycle;
  readonly sidecars: SidecarConnections;
  readonly lanes: KeyedMutex;
  /** What is written here frees space: it must be writable on a full disk. */
  readonly reserve: DiskReserve;
  /** Ends every turn and exec of the session. */
  readonly quiet: (sessionId: string, why: string) => Promise<void>;
  /** The workspace is to be filled again, or never. Called in a transaction. */
  readonly onWorkspaceCleared: (sessionId: string) => void;
  readonly onSessionDeleted: (sessionId: string) => void;
  /** Ends the filling of its workspace, until the returned function is called. */
  readonly suspendHydration: (sessionId: string, why: HoldfastError) => () => void;
  /** Ends what looks at its workspace as a whole: a deletion does not wait for that. */
  readonly cancelScans: (sessionId: string, why: HoldfastError) => void;
  /** Nothing else looks at the workspace as a whole meanwhile. Comes before the session's lane. */
  readonly withScanLock: <T>(sessionId: string, act: () => Promise<T>) => Promise<T>;
  /** Keeps what the workspace of a session is that is being deleted. Never rejects. In its lane, with its sidecar up. */
  readonly snapshotBeforeDelete: (row: SessionRow) => Promise<void>;
  readonly log: Log;
  readonly now: () => number;
}

/** Deleting a session and emptying a workspace: durable operations that a killed supervisor's successor completes. */
export class Removal {
  readonly #options: RemovalOptions;
  /** Operations that this process works on: not for `recover` to take up a second time. */
  readonly #active = new Set<number>();
  /** How many deletions of each session are under way. */
  readonly #deleting = new Map<string, number>();
  #left: Map<string, Operation> | null = null;

  constructor(options: RemovalOptions) {
    this.#options = options;
  }

  async deleteSession(sessionId: string, why: string, opId?: string): Promise<void> {
    const begun = this.#begin({ opId, kind: 'session.delete', sessionId, data: { why } });
    if ('replay' in begun) {
      replayResult(begun.replay);
      return;
    }
    await this.#guarded(begun.operation, () => this.#delete(begun.operation, sessionId, why));
  }

  /** True from the moment its deletion is under way: nothing new may begin in it. */
  isDeleting(sessionId: string): boolean {
    return this.#deleting.has(sessionId);
  }

  /** `refuse` throws when something has come to life that the clean would take files from. */
  async clean(sessionId: string, refuse: () => void, opId?: string): Promise<Removed> {
    // Before this one is begun: it must never be taken for one that an earlier supervisor left.
    this.#begunCleans();
    const begun = this.#begin({ opId, kind: CLEAN, sessionId, data: {} });
    if ('replay' in begun) {
      const { removedFiles, removedBytes } = CleanedSchema.parse(replayResult(begun.replay));
      return { removedFiles, removedBytes };
    }
    return this.#guarded(begun.operation, () =>
      this.#options.lanes.run(sessionId, () => {
        refuse();
        return this.#cleanInLane(begun.operation, sessionId);
      }),
    );
  }

  /** Empties it for a new beginning; `undo`: the snapshot of what it was. For callers that are alone and in the session's lane. */
  async resetLocked(sessionId: string, undo: string | null, opId?: string): Promise<void> {
    this.#begunCleans();
    const begun = this.#begin({ opId, kind: CLEAN, sessionId, data: { undo } });
    if ('replay' in begun) return;
    await this.#guarded(begun.operation, () => this.#cleanInLane(begun.operation, sessionId));
  }

  /**
   * Completes a clean that an earlier supervisor had begun. Called in the session's lane before anything new happens in its
   * workspace: what is written from now on must not fall to a request from before.
   */
  async finishPendingCleanLocked(sessionId: string): Promise<void> {
    const operation = this.#begunCleans().get(sessionId);
    if (operation === undefined) return;
    const row = this.#options.records.peek(sessionId);
    if (row === null || row.status === 'deleted') this.#options.operations.finish(operation, {});
    else await this.#cleanInLane(operation, sessionId);
    this.#begunCleans().delete(sessionId);
  }

  /** Looked up once: what is begun later is this process's own. */
  #begunCleans(): Map<string, Operation> {
    this.#left ??= new Map(
      this.#options.operations
        .pending()
        .flatMap((one) =>
          one.kind === CLEAN && one.sessionId !== null ? [[one.sessionId, one] as const] : [],
        ),
    );
    return this.#left;
  }

  /**
   * Completes what an earlier supervisor had begun. What needs an engine that is away now stays for the next call. A deletion that fails
   * otherwise ends: the session is there, its person goes on with it, and a later supervisor must not delete it after all.
   */
  async recover(): Promise<void> {
    const { operations, lanes, log } = this.#options;
    for (const operation of operations.pending()) {
      const { sessionId } = operation;
      if (sessionId === null || this.#active.has(operation.id)) continue;
      this.#active.add(operation.id);
      try {
        if (operation.kind === CLEAN) {
          await lanes.run(sessionId, () => this.finishPendingCleanLocked(sessionId));
        } else if (operation.kind === 'session.delete') {
          await this.#delete(operation, sessionId, 'deleted');
        }
      } catch (error) {
        this.#recoveryFailed(operation, error);
        log.warn('an operation of an earlier supervisor could not be finished', {
          operation: operation.kind,
          session: sessionId,
          why: HoldfastError.from(error).sentence,
        });
      } finally {
        this.#active.delete(operation.id);
      }
    }
  }

  #recoveryFailed(operation: Operation, error: unknown): void {
    if (operation.kind !== 'session.delete' || isPassing(HoldfastError.from(error))) return;
    this.#fail(operation, error);
  }

  /** Nobody resumes it, not even where this cannot be written now. */
  #fail(operation: Operation, error: unknown): void {
    const { operations, reserve } = this.#options;
    try {
      reserve.retryOnFullDisk(() => operations.fail(operation, error));
    } catch {
      operations.abandon(operation, error);
    }
  }

  #begin(intent: Intent): BeginResult {
    return this.#options.reserve.retryOnFullDisk(() => this.#options.operations.begin(intent));
  }

  /** An error that the caller is told ends the operation: it can be asked for again. */
  async #guarded<T>(operation: Operation, act: () => Promise<T>): Promise<T> {
    this.#active.add(operation.id);
    try {
      return await act();
    } catch (error) {
      this.#fail(operation, error);
      throw error;
    } finally {
      this.#active.delete(operation.id);
    }
  }

  async #delete(operation: Operation, sessionId: string, why: string): Promise<void> {
    const { quiet, suspendHydration, cancelScans } = this.#options;
    this.#deleting.set(sessionId, (this.#deleting.get(sessionId) ?? 0) + 1);
    const release = suspendHydration(sessionId, beingDeleted(sessionId));
    try {
      await failpoint('delete.after-intent');
      await quiet(sessionId, 'its session was deleted');
      cancelScans(sessionId, beingDeleted(sessionId));
      await this.#deleteInLane(operation, sessionId, why);
    } finally {
      const others = (this.#deleting.get(sessionId) ?? 1) - 1;
      if (others > 0) this.#deleting.set(sessionId, others);
      else this.#deleting.delete(sessionId);
      release();
    }
  }

  async #deleteInLane(operation: Operation, sessionId: string, why: string): Promise<void> {
    const { engine, database, operations, records, lifecycle, sidecars, lanes, output, reserve, now } =
      this.#options;
    const { withScanLock, snapshotBeforeDelete } = this.#options;
    const inLane = async (): Promise<void> => {
      const row = records.peek(sessionId);
      // Somebody else deleted it before it was our turn: a throw-away goes by itself when its turn has ended.
      if (row === null || row.status === 'deleted') {
        reserve.retryOnFullDisk(() => operations.finish(operation, {}));
        return;
      }
      await engine.stopAgent(sessionId, STOP_GRACE_MS);
      await failpoint('delete.after-sandbox');
      // Only the sidecar may touch what the agent wrote.
      const sidecar = await lifecycle.ensureSidecarLocked(row);
      // Once: when this is gone on with after a crash, a part of the workspace may be gone already.
      if (operation.step !== SNAPSHOTTED) {
        await snapshotBeforeDelete(row);
        reserve.retryOnFullDisk(() => operations.recordStep(operation, SNAPSHOTTED));
      }
      await failpoint('delete.after-snapshot');
      await sidecar.clearWorkspace();
      await failpoint('delete.after-clear');
      await sidecars.disconnect(sessionId);
      await engine.removeSandbox(sessionId, STOP_GRACE_MS);
      await engine.deleteWorkspace(workspaceSpec(row));
      await failpoint('delete.after-workspace');
      // Of a throw-away its caller may still be reading the output of the turn that has just ended: `gc` removes it later.
      if (!row.throwaway) output.removeFiles(sessionId);
      await failpoint('delete.before-row');
      reserve.retryOnFullDisk(() =>
        database.transaction(() => {
          records.change(sessionId, { status: 'deleted', deletedAt: now() }, why, [
            { type: 'session.deleted', data: { why } },
          ]);
          this.#options.onSessionDeleted(sessionId);
          operations.finish(operation, {});
        }),
      );
      reserve.ensure();
    };
    await withScanLock(sessionId, () => lanes.run(sessionId, inLane));
  }

  async #cleanInLane(operation: Operation, sessionId: string): Promise<Removed> {
    const { database, operations, records, events, lifecycle, reserve } = this.#options;
    await failpoint('clean.after-intent');
    const client = await lifecycle.ensureSidecarLocked(records.get(sessionId));
    const removed = await client.clearWorkspace();
    await failpoint('clean.after-clear');
    const result = { removedFiles: removed.files, removedBytes: removed.bytes };
    const { undo = null } = operation.data;
    reserve.retryOnFullDisk(() =>
      database.transaction(() => {
        records.change(sessionId, { workspaceBytes: 0 }, 'cleaned');
        this.#options.onWorkspaceCleared(sessionId);
        events.append(sessionId, [
          {
            type: 'workspace.cleaned',
            data: { files: removed.files, bytes: removed.bytes, why: 'asked for' },
          },
        ]);
        operations.finish(operation, { ...result, undo });
      }),
    );
    reserve.ensure();
    return result;
  }
}

/** It can be done when the engine is back, or by the next supervisor. */
function isPassing({ code }: HoldfastError): boolean {
  return ['engine_unavailable', 'shutting_down', 'connection_closed', 'sandbox_lost', 'timeout'].includes(
    code,
  );
}

function beingDeleted(sessionId: string): HoldfastError {
  return new HoldfastError('not_found', `Session ${sessionId} is being deleted`, {
    next: 'see `holdfast session list`',
  });
}
