import { z } from 'zod';
import { ErrorDataSchema, errorFromWire } from '../../protocol/error-data.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { JsonSchema, json, parseRow, time, toJson } from './columns.ts';
import type { Json } from './columns.ts';
import type { Database } from './database.ts';

const DataSchema = z.record(z.string(), JsonSchema);
const FailureSchema = z.object({ message: z.string(), data: ErrorDataSchema });

const OperationRowSchema = z.object({
  id: z.int(),
  /** Idempotency key that the client chooses; null for operations without one. */
  opId: z.string().nullable(),
  kind: z.string(),
  sessionId: z.string().nullable(),
  state: z.enum(['pending', 'done', 'failed']),
  /** The last completed step; `begun` before the first. */
  step: z.string(),
  data: json(DataSchema),
  result: json(JsonSchema).nullable(),
  error: json(FailureSchema).nullable(),
  createdAt: time,
  updatedAt: time,
});
type OperationRow = z.output<typeof OperationRowSchema>;
/** A durable intent: the operation, its progress, and the data to finish it or roll it back. */
export type Operation = Omit<OperationRow, 'result' | 'error'>;
export type OperationData = z.output<typeof DataSchema>;

/** The first result of an `opId` that was used before. */
export type Replay = { readonly result: Json } | { readonly error: HoldfastError };
export type BeginResult = { readonly operation: Operation } | { readonly replay: Replay };

export interface Intent {
  readonly opId?: string | undefined;
  readonly kind: string;
  readonly sessionId: string | null;
  readonly data: OperationData;
}

const KEPT_MS = 7 * 86_400_000;

/**
 * Durable intents. A step is on disk when its call returns. An intent refers to its object by an identity that is
 * never reused (a session's id, a profile's incarnation): by the time it is resumed, a name can refer to something
 * else.
 */
export class Operations {
  readonly #database: Database;
  /** Operations whose failure was reported to the client but could not be written yet. */
  readonly #abandoned = new Map<number, string>();

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * Writes an intent, or returns the first result if the `opId` was used before. Errors: `conflict` while the first
   * operation is running, `invalid_params` if the `opId` was used for something else.
   */
  begin(intent: Intent): BeginResult {
    this.#writeAbandoned();
    return this.#database.transaction((): BeginResult => {
      const earlier = intent.opId === undefined ? null : this.#byOpId(intent.opId);
      if (earlier !== null) return { replay: replayOf(earlier, intent.kind) };
      const now = Date.now();
      const row = this.#database.get(
        `INSERT INTO operations (opId, kind, sessionId, state, step, data, createdAt, updatedAt)
         VALUES (?, ?, ?, 'pending', 'begun', ?, ?, ?) RETURNING *`,
        intent.opId ?? null,
        intent.kind,
        intent.sessionId,
        toJson(intent.data),
        now,
        now,
      );
      return { operation: parseRow(OperationRowSchema, 'operations', row) };
    });
  }

  /** The first result of an `opId`, if it was used before. Errors: as `begin`. */
  findReplay(opId: string, kind: string): Replay | null {
    const earlier = this.#byOpId(opId);
    return earlier === null ? null : replayOf(earlier, kind);
  }

  /** Like `findReplay`, but throws a first error. Null also without an `opId`. */
  findResult(opId: string | undefined, kind: string): { readonly result: Json } | null {
    const earlier = opId === undefined ? null : this.findReplay(opId, kind);
    return earlier === null ? null : { result: replayResult(earlier) };
  }

  /**
   * Runs `act` and stores its result under the `opId`, in one transaction: after a crash both exist or neither. If
   * the `opId` was used before, returns the first result and does nothing. Errors: as `begin`, and those of `act`.
   */
  runOnce<T extends Record<string, string>>(
    opId: string | undefined,
    kind: string,
    act: () => T,
  ): { readonly result: T; readonly replayed: boolean } {
    if (opId === undefined) return { result: this.#database.transaction(act), replayed: false };
    return this.#database.transaction(() => {
      const begun = this.begin({ opId, kind, sessionId: null, data: {} });
      if ('replay' in begun) {
        return { result: replayResult(begun.replay) as T, replayed: true };
      }
      const result = act();
      this.finish(begun.operation, result);
      return { result, replayed: false };
    });
  }

  /** Records that `step` is complete, and merges `data` into the operation's data. Returns the updated operation. */
  recordStep(operation: Operation, step: string, data: OperationData = {}): Operation {
    const row = this.#database.get(
      "UPDATE operations SET step = ?, data = ?, updatedAt = ? WHERE id = ? AND state = 'pending' RETURNING *",
      step,
      toJson({ ...operation.data, ...data }),
      Date.now(),
      operation.id,
    );
    if (row === undefined)
      throw new HoldfastError('internal', `The operation ${operation.kind} has ended already`);
    return parseRow(OperationRowSchema, 'operations', row);
  }

  finish(operation: Operation, result: Json): void {
    this.#end(operation, 'done', toJson(result), null);
  }

  fail(operation: Operation, error: unknown): void {
    const failure = HoldfastError.from(error);
    this.#end(operation, 'failed', null, toJson({ message: failure.message, data: failure.toData() }));
  }

  /**
   * Ends an operation whose failure the caller is about to get, so that nobody resumes it. Never throws. A failure
   * that cannot be written now (full disk) is written before the next read of pending operations.
   */
  abandon(operation: Operation, error: unknown): void {
    const failure = HoldfastError.from(error);
    this.#abandoned.set(operation.id, toJson({ message: failure.message, data: failure.toData() }));
    this.#writeAbandoned();
  }

  /** Whether the operation is still pending. */
  isPending({ id }: Operation): boolean {
    return (
      !this.#abandoned.has(id) &&
      this.#database.get("SELECT 1 FROM operations WHERE id = ? AND state = 'pending'", id) !== undefined
    );
  }

  /** Deletes an operation that was rolled back without a trace: a retry with the same `opId` starts again. */
  forget(operation: Operation): void {
    this.#database.run("DELETE FROM operations WHERE id = ? AND state = 'pending'", operation.id);
  }

  /** Deletes an operation that has ended: a retry with the same `opId` starts again. */
  forgetByOpId(opId: string, kind: string): void {
    this.#database.run('DELETE FROM operations WHERE opId = ? AND kind = ?', opId, kind);
  }

  /** Pending operations, the oldest first: after a start, those that a crash interrupted. */
  pending(): Operation[] {
    this.#writeAbandoned();
    return this.#database
      .all("SELECT * FROM operations WHERE state = 'pending' ORDER BY id")
      .map((row) => parseRow(OperationRowSchema, 'operations', row))
      .filter(({ id }) => !this.#abandoned.has(id));
  }

  /** Deletes results older than 7 days. Returns their number. */
  prune(now = Date.now()): number {
    return this.#database.run(
      "DELETE FROM operations WHERE state <> 'pending' AND updatedAt < ?",
      now - KEPT_MS,
    );
  }

  #end(operation: Operation, state: 'done' | 'failed', result: string | null, error: string | null): void {
    const changed = this.#database.run(
      "UPDATE operations SET state = ?, result = ?, error = ?, updatedAt = ? WHERE id = ? AND state = 'pending'",
      state,
      result,
      error,
      Date.now(),
      operation.id,
    );
    if (changed === 0)
      throw new HoldfastError('internal', `The operation ${operation.kind} has ended already`);
  }

  #writeAbandoned(): void {
    // An enclosing transaction may be rolled back, and the failure with it.
    if (this.#abandoned.size === 0 || this.#database.inTransaction) return;
    for (const [id, error] of this.#abandoned) {
      try {
        this.#database.run(
          "UPDATE operations SET state = 'failed', error = ?, updatedAt = ? WHERE id = ? AND state = 'pending'",
          error,
          Date.now(),
          id,
        );
        this.#abandoned.delete(id);
      } catch {
        // It stays abandoned, so nothing resumes it, and is written by a later call.
        return;
      }
    }
  }

  #byOpId(opId: string): OperationRow | null {
    const row = this.#database.get('SELECT * FROM operations WHERE opId = ?', opId);
    return row === undefined ? null : parseRow(OperationRowSchema, 'operations', row);
  }
}

function replayOf(earlier: OperationRow, kind: string): Replay {
  if (earlier.kind !== kind) {
    throw new HoldfastError(
      'invalid_params',
      `The opId ${earlier.opId ?? ''} was already used for ${earlier.kind}`,
      {
        next: 'choose a new opId for each request',
      },
    );
  }
  switch (earlier.state) {
    case 'pending':
      throw new HoldfastError('conflict', `The request with opId ${earlier.opId ?? ''} is still running`, {
        next: 'try again in a moment with the same opId',
      });
    case 'done':
      return { result: earlier.result };
    case 'failed':
      return {
        error: errorFromWire(earlier.error?.message ?? 'The request failed', earlier.error?.data),
      };
  }
}

/** The result of a repeated request; a failed one fails again. */
export function replayResult(replay: Replay): Json {
  if ('error' in replay) throw replay.error;
  return replay.result;
}
