import { z } from 'zod';
import { type Attachment, AttachmentsSchema } from '../../protocol/attachments.ts';
import { TurnChangesSchema } from '../../protocol/changes.ts';
import { type Content, JSON_TEXT } from '../../protocol/contents.ts';
import {
  DispatchCaseSchema,
  TurnSnapshotSchema,
  type TurnStatus,
  TurnStatusSchema,
} from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { TurnErrorSchema } from '../../protocol/turn-events.ts';
import { TURN_KINDS, TurnKindSchema } from '../../protocol/turn-kinds.ts';
import { JsonSchema, blob, count, flag, json, parseRow, time, toColumn, toJson } from './columns.ts';
import { insertContent } from './contents.ts';
import type { Database } from './database.ts';

/** Maximum size of a turn's input. */
export const TURN_INPUT_BYTES = 4 * 2 ** 20;

const ms = z.number().nullable();

export const TurnSummarySchema = z.object({
  id: z.string(),
  sessionId: z.string(),
  status: TurnStatusSchema,
  kind: TurnKindSchema,
  createdAt: time,
  startedAt: time.nullable(),
  endedAt: time.nullable(),
  timeoutMs: count,
  dispatchCase: DispatchCaseSchema.nullable(),
  reused: flag.nullable(),
  codeVersion: z.int().nullable(),
  generation: z.int().nullable(),
  inputBytes: count,
  /** The return value of a handler; null both for `null` and for no value. */
  output: json(JsonSchema).nullable(),
  outputArtifact: flag,
  /** The content of the return value. Null without one, and in turns of earlier versions. */
  resultSha256: z.string().nullable(),
  exitCode: z.int().nullable(),
  error: json(TurnErrorSchema).nullable(),
  /** Durable bytes of each stream: where to continue after a crash. Updated by TurnOutput. */
  stdoutBytes: count,
  stderrBytes: count,
  resultBytes: count,
  /** When the sandbox received the turn. */
  launchedAt: time.nullable(),
  dispatchMs: ms,
  queuedMs: ms,
  turnMs: ms,
  workerStartMs: ms,
  workerId: z.string().nullable(),
  workerReused: flag.nullable(),
  cancelRequested: flag,
  snapshot: json(TurnSnapshotSchema).nullable(),
  changes: json(TurnChangesSchema).nullable(),
  attachments: json(AttachmentsSchema),
});
/** A turn without its input, which may have 4 MiB; for lists. */
export type TurnSummary = z.output<typeof TurnSummarySchema>;
export type TurnRow = TurnSummary & { readonly input: Buffer };
export type NewTurn = Omit<TurnRow, 'inputBytes'>;
export type TurnPatch = Partial<Omit<TurnRow, 'id' | 'sessionId' | 'input' | 'inputBytes'>>;

/** Initial values of a turn that has not started. */
export const UNSTARTED_TURN = {
  status: 'queued',
  startedAt: null,
  endedAt: null,
  dispatchCase: null,
  reused: null,
  codeVersion: null,
  generation: null,
  output: null,
  outputArtifact: false,
  resultSha256: null,
  exitCode: null,
  error: null,
  stdoutBytes: 0,
  stderrBytes: 0,
  resultBytes: 0,
  launchedAt: null,
  dispatchMs: null,
  queuedMs: null,
  turnMs: null,
  workerStartMs: null,
  workerId: null,
  workerReused: null,
  cancelRequested: false,
  snapshot: null,
  changes: null,
  attachments: [],
} as const satisfies Partial<NewTurn>;

const TurnRowSchema = TurnSummarySchema.extend({ input: blob });

const COLUMNS = Object.keys(TurnSummarySchema.shape) as (keyof TurnSummary)[];
const PATCHABLE = COLUMNS.filter(
  (column) => column !== 'id' && column !== 'sessionId' && column !== 'inputBytes',
);
const INSERT = `INSERT INTO turns (${COLUMNS.join(', ')}, inputSha256) VALUES (${COLUMNS.map(() => '?').join(', ')}, ?)`;
/** The input is empty after its removal. */
const INPUT = "coalesce(contents.inline, x'')";
const FROM = `FROM turns JOIN contents ON contents.sessionId = turns.sessionId AND contents.sha256 = turns.inputSha256`;
const SELECT = `SELECT turns.*, ${INPUT} AS input ${FROM}`;

export class Turns {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * Appends the turn to its session's queue, and stores its input as a content. Errors: `file_too_large` over 4 MiB of
   * input.
   */
  insert(turn: NewTurn): Content {
    requireInputSize(turn.input);
    const row: TurnSummary = { ...turn, inputBytes: turn.input.length };
    return this.#database.transaction(() => {
      const content = this.#insertInput(turn, turn.input);
      this.#database.run(
        INSERT,
        ...COLUMNS.map((column) => columnValue(column, row[column])),
        content.sha256,
      );
      return content;
    });
  }

  /** Replaces the input of a turn, and stores it as a content. Errors: as `insert`. */
  replaceInput(
    turn: Pick<TurnSummary, 'id' | 'sessionId' | 'kind'>,
    input: Uint8Array,
    attachments: readonly Attachment[],
  ): Content {
    requireInputSize(input);
    return this.#database.transaction(() => {
      const content = this.#insertInput(turn, input);
      this.#database.run(
        'UPDATE turns SET inputSha256 = ?, inputBytes = ?, attachments = ? WHERE id = ?',
        content.sha256,
        content.bytes,
        toJson(attachments),
        turn.id,
      );
      return content;
    });
  }

  get(id: string): TurnRow | null {
    return this.#one(`${SELECT} WHERE turns.id = ?`, id);
  }

  /** The first `bytes` bytes of the input; null if the turn does not exist. */
  readInputStart(id: string, bytes: number): Uint8Array | null {
    const row = this.#database.get(
      `SELECT substr(${INPUT}, 1, ?2) AS input ${FROM} WHERE turns.id = ?1`,
      id,
      bytes,
    );
    return row === undefined ? null : parseRow(z.object({ input: blob }), 'turns', row).input;
  }

  /** Errors: `not_found`. */
  getOrThrow(id: string): TurnRow {
    const row = this.get(id);
    if (row === null)
      throw new HoldfastError('not_found', `There is no turn ${id}`, {
        next: 'see `holdfast turn list SESSION`',
      });
    return row;
  }

  /** Null if the turn does not exist. */
  statusOf(id: string): TurnStatus | null {
    const row = this.#database.get('SELECT status FROM turns WHERE id = ?', id);
    return row === undefined ? null : parseRow(z.object({ status: TurnStatusSchema }), 'turns', row).status;
  }

  /** Applies a patch and returns the updated turn. Errors: `not_found`. */
  update(id: string, patch: TurnPatch): TurnRow {
    const columns = PATCHABLE.filter((column) => Object.hasOwn(patch, column));
    if (columns.length > 0) {
      this.#database.run(
        `UPDATE turns SET ${columns.map((column) => `${column} = ?`).join(', ')} WHERE id = ?`,
        ...columns.map((column) => columnValue(column, patch[column])),
        id,
      );
    }
    return this.getOrThrow(id);
  }

  /** The turn that has been queued longest. */
  nextQueued(sessionId: string): TurnRow | null {
    return this.#one(
      `${SELECT} WHERE turns.sessionId = ? AND status = 'queued' ORDER BY ordinal LIMIT 1`,
      sessionId,
    );
  }

  getRunning(sessionId: string): TurnRow | null {
    return this.#one(
      `${SELECT} WHERE turns.sessionId = ? AND status = 'running' ORDER BY ordinal LIMIT 1`,
      sessionId,
    );
  }

  /** Turns whose snapshot was unfinished when the supervisor ended, the oldest first. */
  listWithUnfinishedSnapshot(): TurnSummary[] {
    return this.#many(
      "SELECT * FROM turns WHERE snapshot IS NOT NULL AND json_extract(snapshot, '$.state') = 'taking' ORDER BY ordinal",
    );
  }

  /** Turns whose changes are still to be computed, the oldest first. */
  listWithPendingChanges(sessionId: string | null = null): TurnSummary[] {
    return this.#many(
      `SELECT * FROM turns WHERE json_extract(changes, '$.state') = 'pending' AND (?1 IS NULL OR sessionId = ?1)
       ORDER BY ordinal`,
      sessionId,
    );
  }

  /** Queued and running turns of all sessions, the oldest first. */
  listUnfinished(): TurnSummary[] {
    return this.#many("SELECT * FROM turns WHERE status IN ('queued', 'running') ORDER BY ordinal");
  }

  /** Newest first. */
  listBySession(sessionId: string, limit = 100): TurnSummary[] {
    return this.#many(
      'SELECT * FROM turns WHERE sessionId = ? ORDER BY ordinal DESC LIMIT ?',
      sessionId,
      limit,
    );
  }

  /** The number of unfinished turns before a queued turn; 0 for all other turns. */
  countAhead(turn: Pick<TurnSummary, 'id' | 'sessionId' | 'status'>): number {
    if (turn.status !== 'queued') return 0;
    const row = this.#database.get(
      `SELECT count(*) AS many FROM turns WHERE sessionId = ? AND status IN ('queued', 'running')
       AND ordinal < (SELECT ordinal FROM turns WHERE id = ?)`,
      turn.sessionId,
      turn.id,
    );
    return parseRow(z.object({ many: count }), 'turns', row).many;
  }

  countQueued(sessionId: string): number {
    const row = this.#database.get(
      "SELECT count(*) AS many FROM turns WHERE sessionId = ? AND status = 'queued'",
      sessionId,
    );
    return parseRow(z.object({ many: count }), 'turns', row).many;
  }

  /** The first bytes of the newest turn's input, in any status; null before the first turn. */
  readLatestInput(sessionId: string, bytes: number): Buffer | null {
    const row = this.#database.get(
      `SELECT substr(${INPUT}, 1, ?) AS head ${FROM}
       WHERE turns.sessionId = ? ORDER BY ordinal DESC LIMIT 1`,
      bytes,
      sessionId,
    );
    if (row === undefined || row === null) return null;
    return Buffer.from(parseRow(z.object({ head: z.instanceof(Uint8Array) }), 'turns', row).head);
  }

  /** Running and queued turns by session, in one query for a list of sessions. */
  liveBySession(): Map<string, { running: string | null; queued: number }> {
    const rows = this.#database.all(
      `SELECT sessionId, max(CASE status WHEN 'running' THEN id END) AS running,
         count(*) FILTER (WHERE status = 'queued') AS queued
       FROM turns WHERE status IN ('queued', 'running') GROUP BY sessionId`,
    );
    const schema = z.object({ sessionId: z.string(), running: z.string().nullable(), queued: count });
    return new Map(
      rows.map((row) => {
        const { sessionId, running, queued } = parseRow(schema, 'turns', row);
        return [sessionId, { running, queued }];
      }),
    );
  }

  countByStatus(): { running: number; queued: number } {
    const row = this.#database.get(
      `SELECT count(*) FILTER (WHERE status = 'running') AS running, count(*) FILTER (WHERE status = 'queued') AS queued
       FROM turns WHERE status IN ('queued', 'running')`,
    );
    return parseRow(z.object({ running: count, queued: count }), 'turns', row);
  }

  #insertInput({ sessionId, kind }: Pick<TurnSummary, 'sessionId' | 'kind'>, input: Uint8Array): Content {
    return insertContent(
      this.#database,
      sessionId,
      input,
      TURN_KINDS[kind].input === 'json' ? JSON_TEXT : undefined,
    );
  }

  #one(sql: string, ...values: (string | number)[]): TurnRow | null {
    const row = this.#database.get(sql, ...values);
    return row === undefined ? null : parseRow(TurnRowSchema, 'turns', row);
  }

  #many(sql: string, ...values: (string | number | null)[]): TurnSummary[] {
    return this.#database.all(sql, ...values).map((row) => parseRow(TurnSummarySchema, 'turns', row));
  }
}

function requireInputSize(input: Uint8Array): void {
  if (input.length <= TURN_INPUT_BYTES) return;
  throw new HoldfastError('file_too_large', 'The input of the turn is too large', {
    why: `it has ${input.length} bytes, and the maximum is ${TURN_INPUT_BYTES}`,
    next: 'write the data to a file in the workspace and name that file in the input',
  });
}

function columnValue(column: keyof TurnSummary, value: unknown) {
  // These two columns hold JSON: a string in them must differ from plain text.
  return (column === 'output' || column === 'error') && value !== null ? toJson(value) : toColumn(value);
}
