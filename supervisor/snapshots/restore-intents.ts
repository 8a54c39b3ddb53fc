import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { Emitter } from '../base/emitter.ts';
import type { Database } from '../store/database.ts';
import type { Operation, Operations } from '../store/operations.ts';
import type { SnapshotRow } from '../store/snapshots.ts';

/** Kind of the operation; also what an `opId` of a restore is answered under. */
export const RESTORE = 'snapshot.restore';

const DataSchema = z.object({
  snapshot: z.string(),
  root: z.string(),
  /** The tree of the agent's state that is restored too; null: the state stays as it is. */
  stateRoot: z.string().nullable().default(null),
  /** Null: the whole workspace. */
  path: z.string().nullable(),
  /** The snapshot of the workspace before the restore. */
  undo: z.string().nullable(),
  /** The session begins with the snapshot: its workspace is being hydrated. */
  fill: z.boolean().default(false),
});
export type RestoreData = z.infer<typeof DataSchema>;

export interface RestoreIntent {
  readonly operation: Operation;
  readonly data: RestoreData;
}

/**
 * Restores and hydrations that were begun and have not ended, at most one per session. Each is an operation on disk, so that a
 * supervisor that is killed is followed by one that finishes it.
 */
export class RestoreIntents {
  /** The id of a session that has no intent any more: it was finished, dropped or replaced. */
  readonly ended = new Emitter<string>();
  readonly #database: Database;
  readonly #operations: Operations;
  readonly #pending = new Map<string, Operation>();

  constructor(database: Database, operations: Operations) {
    this.#database = database;
    this.#operations = operations;
    for (const operation of operations.pending()) {
      if (operation.kind === RESTORE && operation.sessionId !== null)
        this.#pending.set(operation.sessionId, operation);
    }
  }

  get(sessionId: string): RestoreIntent | null {
    const operation = this.#pending.get(sessionId);
    return operation === undefined ? null : { operation, data: DataSchema.parse(operation.data) };
  }

  /** Sessions with an intent. */
  sessionIds(): string[] {
    return [...this.#pending.keys()];
  }

  /** The snapshot that a session begins with, while its files are not all there; else null. */
  pendingHydration(sessionId: string): string | null {
    const intent = this.get(sessionId);
    return intent?.data.fill === true ? intent.data.snapshot : null;
  }

  /** Replaces the session's earlier intent: the last one decides what the workspace is. */
  begin(sessionId: string, data: RestoreData, opId: string | undefined): Operation {
    return this.#database.transaction(() => {
      const before = this.#pending.get(sessionId);
      const begun = this.#operations.begin({ opId, kind: RESTORE, sessionId, data });
      if ('replay' in begun) {
        throw new HoldfastError('conflict', 'This restore has already been requested and answered');
      }
      if (before !== undefined) this.drop(sessionId);
      this.#pending.set(sessionId, begun.operation);
      this.#database.afterRollback(() => {
        if (before === undefined) this.#pending.delete(sessionId);
        else this.#pending.set(sessionId, before);
      });
      return begun.operation;
    });
  }

  /** Part of the transaction that creates a session from a snapshot: the files come before its first use. */
  recordHydration(sessionId: string, { id, root, stateRoot }: SnapshotRow): void {
    this.begin(sessionId, { snapshot: id, root, stateRoot, path: null, undo: null, fill: true }, undefined);
  }

  /** Not to be finished: the workspace is deleted, or gets other files. Part of the caller's transaction. */
  drop(sessionId: string): void {
    const operation = this.#pending.get(sessionId);
    if (operation === undefined) return;
    this.#operations.fail(
      operation,
      new HoldfastError('interrupted', 'The restore was not finished', {
        why: 'another operation replaced it',
      }),
    );
    this.markEnded(sessionId);
  }

  /** The operation is over, and this is stored. */
  markEnded(sessionId: string): void {
    this.#pending.delete(sessionId);
    this.ended.emit(sessionId);
  }
}
