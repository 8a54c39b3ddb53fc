import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import { Emitter } from '../base/emitter.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Contents } from '../history/contents.ts';
import type { Database } from '../store/database.ts';
import {
  type BeginResult,
  type Intent,
  type Operation,
  type Operations,
  replayResult,
} from '../store/operations.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { RestoreIntents } from '../snapshots/restore-intents.ts';
import type { SnapshotCreation } from '../snapshots/snapshot-creation.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import { STOP_GRACE_MS } from '../sandboxes/sandbox-spec.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { SidecarConnections } from '../sandboxes/sidecar-connections.ts';
import { workspaceSpec } from '../sandboxes/sandbox-spec.ts';

export const CLEAN = 'workspace.clean';
const SNAPSHOTTED = 'snapshotted';

/** What a clean removed, and the snapshot before it, if one was created. */
export const CleanedSchema = z.object({
  removedFiles: z.int(),
  removedBytes: z.int(),
  undo: z.string().nullable().default(null),
});

/** With which memory the conversation starts over when a workspace is emptied; absent: it goes on. */
const StartedOverSchema = z.object({ memory: z.int().nullable() }).optional();
export type StartedOver = z.infer<typeof StartedOverSchema>;

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
  readonly contents: Pick<Contents, 'removeFiles' | 'recordFilesRemoved'>;
  readonly lifecycle: Lifecycle;
  readonly sidecars: SidecarConnections;
  readonly sessionMutex: KeyedMutex;
  /** Deleting frees space, so its records must be writable on a full disk. */
  readonly reserve: DiskReserve;
  /** Ends every turn, exec and terminal of a session. */
  readonly drain: (sessionId: string, why: string) => Promise<void>;
  readonly hydration: Pick<Hydration, 'suspend'>;
  readonly restoreIntents: Pick<RestoreIntents, 'pendingHydration'>;
  readonly snapshotCreation: Pick<SnapshotCreation, 'interrupt' | 'withScanLock'>;
  readonly snapshotService: Pick<SnapshotService, 'createBeforeDelete' | 'waitForRestoreStop'>;
  readonly log: Log;
  readonly now: () => number;
}

/** Deletes sessions and empties workspaces: durable operations, which the next supervisor completes after a crash. */
export class Removal {
  /** A workspace was emptied. Emitted in the transaction that records it. */
  readonly workspaceCleared = new Emitter<SessionRow>();
  /** A session is deleted, and its workspace with it. Emitted in the transaction that records it. */
  readonly sessionDeleted = new Emitter<SessionRow>();
  readonly #options: RemovalOptions;
  /** Operations that this process runs: `recover` skips them. */
  readonly #active = new Set<number>();
  /** Number of deletions under way, by session. */
  readonly #deleting = new Map<string, number>();
  #interruptedCleans: Map<string, Operation> | null = null;

  constructor(options: RemovalOptions) {
    this.#options = options;
  }

  async deleteSession(sessionId: string, why: string, opId?: string): Promise<void> {
    const begun = this.#begin({ opId, kind: 'session.delete', sessionId, data: { why } });
    if ('replay' in begun) {
      replayResult(begun.replay);
      return;
    }
    await this.#run(begun.operation, () => this.#delete(begun.operation, sessionId, why));
  }

  /** True while the session is being deleted: nothing new may start in it. */
  isDeleting(sessionId: string): boolean {
    return this.#deleting.has(sessionId);
  }

  /** `requireIdle` throws when the session has active work. */
  async clean(sessionId: string, requireIdle: () => void, opId?: string): Promise<Removed> {
    // Read before this clean begins, so that it does not count as one of an earlier supervisor.
    this.#pendingCleans();
    const begun = this.#begin({ opId, kind: CLEAN, sessionId, data: {} });
    if ('replay' in begun) {
      const { removedFiles, removedBytes } = CleanedSchema.parse(replayResult(begun.replay));
      return { removedFiles, removedBytes };
    }
    return this.#run(begun.operation, () =>
      this.#options.sessionMutex.run(sessionId, () => {
        requireIdle();
        return this.#cleanLocked(begun.operation, sessionId);
      }),
    );
  }

  /**
   * Empties the workspace and HOME; `undo` is the snapshot before. With `startedOver` the next turn begins a new conversation.
   * Callers hold the scan lock and the session's mutex.
   */
  async resetLocked(
    sessionId: string,
    undo: string | null,
    { opId, startedOver }: { readonly opId?: string | undefined; readonly startedOver?: StartedOver },
  ): Promise<void> {
    this.#pendingCleans();
    const data = { undo, home: 'clear', ...(startedOver === undefined ? {} : { startedOver }) };
    const begun = this.#begin({ opId, kind: CLEAN, sessionId, data });
    if ('replay' in begun) return;
    await this.#run(begun.operation, () => this.#cleanLocked(begun.operation, sessionId));
  }

  /**
   * Completes a clean that an earlier supervisor began. Called with the session's mutex held before anything new happens in the
   * workspace: files that are written from now on must not fall victim to an earlier request.
   */
  async finishPendingCleanLocked(sessionId: string): Promise<void> {
    const operation = this.#pendingCleans().get(sessionId);
    if (operation === undefined) return;
    const row = this.#options.records.peek(sessionId);
    if (row === null || row.status === 'deleted') this.#options.operations.finish(operation, {});
    else await this.#cleanLocked(operation, sessionId);
    this.#pendingCleans().delete(sessionId);
  }

  /** Read once: operations that begin later belong to this process. */
  #pendingCleans(): Map<string, Operation> {
    this.#interruptedCleans ??= new Map(
      this.#options.operations
        .pending()
        .flatMap((one) =>
          one.kind === CLEAN && one.sessionId !== null ? [[one.sessionId, one] as const] : [],
        ),
    );
    return this.#interruptedCleans;
  }

  /**
   * Completes the operations of an earlier supervisor. An operation that fails because the engine is unreachable stays for the next
   * call. A deletion that fails otherwise ends: people go on using the session, and no later supervisor may delete it.
   */
  async recover(): Promise<void> {
    const { operations, sessionMutex, log } = this.#options;
    for (const operation of operations.pending()) {
      const { sessionId } = operation;
      if (sessionId === null || this.#active.has(operation.id)) continue;
      this.#active.add(operation.id);
      try {
        if (operation.kind === CLEAN) {
          await sessionMutex.run(sessionId, () => this.finishPendingCleanLocked(sessionId));
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
    if (operation.kind !== 'session.delete' || canResumeDeletion(HoldfastError.from(error))) return;
    this.#fail(operation, error);
  }

  /** Nobody resumes a failed operation, even if the failure cannot be stored now. */
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

  /** An error that is reported to the caller ends the operation: the caller can repeat the request. */
  async #run<T>(operation: Operation, act: () => Promise<T>): Promise<T> {
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
    const { drain, hydration, snapshotCreation } = this.#options;
    this.#deleting.set(sessionId, (this.#deleting.get(sessionId) ?? 0) + 1);
    const release = hydration.suspend(sessionId, beingDeleted(sessionId));
    try {
      await failpoint('delete.after-intent');
      await drain(sessionId, 'its session was deleted');
      snapshotCreation.interrupt(sessionId, beingDeleted(sessionId));
      await this.#deleteLocked(operation, sessionId, why);
    } finally {
      const left = (this.#deleting.get(sessionId) ?? 1) - 1;
      if (left > 0) this.#deleting.set(sessionId, left);
      else this.#deleting.delete(sessionId);
      release();
    }
  }

  async #deleteLocked(operation: Operation, sessionId: string, why: string): Promise<void> {
    const {
      engine,
      database,
      operations,
      records,
      lifecycle,
      sidecars,
      sessionMutex,
      contents,
      reserve,
      now,
    } = this.#options;
    const deleteLocked = async (): Promise<void> => {
      const row = records.peek(sessionId);
      // Somebody else deleted it first: a single-turn session is deleted when its turn has ended.
      if (row === null || row.status === 'deleted') {
        reserve.retryOnFullDisk(() => operations.finish(operation, {}));
        return;
      }
      await engine.stopAgent(sessionId, STOP_GRACE_MS);
      await failpoint('delete.after-sandbox');
      // Only the sidecar may open what the agent wrote.
      const sidecar = await lifecycle.ensureSidecarLocked(row);
      // Only once: after a crash a part of the workspace may be removed already.
      if (operation.step !== SNAPSHOTTED) {
        await this.#snapshotBeforeDelete(row);
        reserve.retryOnFullDisk(() => operations.recordStep(operation, SNAPSHOTTED));
      }
      await failpoint('delete.after-snapshot');
      await sidecar.clearWorkspace();
      await sidecar.clearHome();
      await failpoint('delete.after-clear');
      await sidecars.disconnect(sessionId);
      await engine.removeSandbox(sessionId, STOP_GRACE_MS);
      await engine.deleteWorkspace(workspaceSpec(row));
      await failpoint('delete.after-workspace');
      // The caller of a single-turn session may still be reading the output of its turn: `gc` removes it later.
      if (!row.throwaway) contents.removeFiles(sessionId);
      await failpoint('delete.before-row');
      reserve.retryOnFullDisk(() =>
        database.transaction(() => {
          if (!row.throwaway) contents.recordFilesRemoved(sessionId, now());
          records.change(sessionId, { status: 'deleted', deletedAt: now() }, why, [
            { type: 'session.deleted', data: { why } },
          ]);
          this.sessionDeleted.emit(row);
          operations.finish(operation, {});
        }),
      );
      reserve.ensure();
    };
    await this.#options.snapshotCreation.withScanLock(sessionId, () =>
      sessionMutex.run(sessionId, deleteLocked),
    );
  }

  /** Never rejects. With the session's mutex held and its sidecar running. */
  async #snapshotBeforeDelete(row: SessionRow): Promise<void> {
    const { restoreIntents, snapshotService } = this.#options;
    // While a workspace is being hydrated, the snapshot it begins with has all of its files.
    if (restoreIntents.pendingHydration(row.id) !== null) await snapshotService.waitForRestoreStop(row);
    else if (!row.throwaway) await snapshotService.createBeforeDelete(row);
  }

  async #cleanLocked(operation: Operation, sessionId: string): Promise<Removed> {
    const { database, operations, records, events, lifecycle, reserve } = this.#options;
    await failpoint('clean.after-intent');
    const client = await lifecycle.ensureSidecarLocked(records.get(sessionId));
    const removed = await client.clearWorkspace();
    if (operation.data['home'] === 'clear') await client.clearHome();
    await failpoint('clean.after-clear');
    const result = { removedFiles: removed.files, removedBytes: removed.bytes };
    const { undo = null } = operation.data;
    const startedOver = StartedOverSchema.parse(operation.data['startedOver']);
    reserve.retryOnFullDisk(() =>
      database.transaction(() => {
        this.workspaceCleared.emit(records.change(sessionId, { workspaceBytes: 0 }, 'cleaned'));
        events.append(sessionId, [
          {
            type: 'workspace.cleaned',
            data: { files: removed.files, bytes: removed.bytes, why: 'asked for' },
          },
          ...(startedOver === undefined
            ? []
            : [{ type: 'conversation.started-over' as const, data: startedOver }]),
        ]);
        operations.finish(operation, { ...result, undo });
      }),
    );
    reserve.ensure();
    return result;
  }
}

/** The deletion can be completed when the engine is back, or by the next supervisor. */
function canResumeDeletion({ code }: HoldfastError): boolean {
  return ['engine_unavailable', 'shutting_down', 'connection_closed', 'sandbox_lost', 'timeout'].includes(
    code,
  );
}

function beingDeleted(sessionId: string): HoldfastError {
  return new HoldfastError('not_found', `Session ${sessionId} is being deleted`, {
    next: 'see `holdfast session list`',
  });
}
