import { z } from 'zod';
import {
  ReviewActionSchema,
  ReviewBaseSchema,
  ReviewFileIdSchema,
  VerdictSchema,
} from '../../protocol/review.ts';
import { RootHashSchema } from '../../snapshot-format/sidecar-calls.ts';
import { count, json, parseRow, time, toColumn, toJson } from './columns.ts';
import type { Database } from './database.ts';

const ReviewRowSchema = z.object({
  id: z.string(),
  sessionId: z.string(),
  /** The lineage whose store has the trees. */
  lineage: z.string(),
  createdAt: time,
  updatedAt: time,
  endedAt: time.nullable(),
  baseSpec: ReviewBaseSchema,
  /** Null where the base is the accepted tree of an earlier review. */
  baseSnapshot: z.string().nullable(),
  baseRoot: RootHashSchema,
  targetSnapshot: z.string(),
  targetRoot: RootHashSchema,
  /** The tree of the decisions at `revision`; null until it is stored. */
  acceptedRoot: RootHashSchema.nullable(),
  revision: count,
});
export type ReviewRow = z.output<typeof ReviewRowSchema>;
export type ReviewPatch = Partial<
  Pick<ReviewRow, 'updatedAt' | 'endedAt' | 'targetSnapshot' | 'targetRoot' | 'acceptedRoot' | 'revision'>
>;

/** What was decided about one path: all of it, or parts of it, with at most `most` ranges of lines in a list. */
export function decisionStateSchema(most: number) {
  const ranges = z.array(z.tuple([count, count])).max(most);
  const lines = z.object({ removed: ranges, added: ranges });
  const change = z.object({ beforeStart: count, beforeEnd: count, afterStart: count, afterEnd: count });
  return z.object({
    whole: VerdictSchema.nullable(),
    /** Of permission bits and extended attributes, where the content is decided by lines. */
    mode: VerdictSchema.nullable(),
    /** `changes`: the lines of base and target that differ, as they were compared when the first of them was decided. */
    text: z.object({ changes: z.array(change).max(most), accepted: lines, rejected: lines }).nullable(),
    /** It was decided before, and has changed since. */
    again: z.boolean(),
  });
}

/** Those that are stored were bounded by the files that they are about. */
const DecisionStateSchema = decisionStateSchema(Number.MAX_SAFE_INTEGER);
export type DecisionState = z.output<typeof DecisionStateSchema>;

const DecisionRowSchema = z.object({
  path: z.string(),
  fileId: ReviewFileIdSchema,
  state: json(DecisionStateSchema),
});
export type DecisionRow = z.output<typeof DecisionRowSchema>;

/** A decision as it was before a step; `state` null: there was none. */
export const EarlierDecisionSchema = z.object({
  path: z.string(),
  fileId: ReviewFileIdSchema,
  state: DecisionStateSchema.nullable(),
});
export type EarlierDecision = z.output<typeof EarlierDecisionSchema>;

const StepRowSchema = z.object({
  seq: count,
  verdict: ReviewActionSchema,
  before: json(z.array(EarlierDecisionSchema)),
});
export type ReviewStep = z.output<typeof StepRowSchema>;

const DecidedSchema = z.object({ accepted: count, rejected: count, partly: count });

/** How many steps of a review can be undone. */
const MAX_STEPS = 1000;

const COLUMNS = Object.keys(ReviewRowSchema.shape) as (keyof ReviewRow)[];
const INSERT = `INSERT INTO reviews (${COLUMNS.join(', ')}) VALUES (${COLUMNS.map(() => '?').join(', ')})`;

/** The rows of reviews. Their trees are in the store of the lineage, where collection keeps them: see `roots`. */
export class ReviewRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** All objects that the roots refer to must be durable in the store. */
  insert(row: ReviewRow): void {
    this.#database.run(INSERT, ...COLUMNS.map((column) => toColumn(row[column])));
  }

  /** The open review of a session. */
  findOpen(sessionId: string): ReviewRow | null {
    return this.#one('SELECT * FROM reviews WHERE sessionId = ? AND endedAt IS NULL', sessionId);
  }

  get(id: string): ReviewRow | null {
    return this.#one('SELECT * FROM reviews WHERE id = ?', id);
  }

  /** The newest review of a session that has ended. */
  newestEnded(sessionId: string): ReviewRow | null {
    return this.#one(
      'SELECT * FROM reviews WHERE sessionId = ? AND endedAt IS NOT NULL ORDER BY ordinal DESC LIMIT 1',
      sessionId,
    );
  }

  update(id: string, patch: ReviewPatch): void {
    const names = Object.keys(patch) as (keyof ReviewPatch)[];
    const values = names.map((name) => toColumn(patch[name]));
    this.#database.run(
      `UPDATE reviews SET ${names.map((name) => `${name} = ?`).join(', ')} WHERE id = ?`,
      ...values,
      id,
    );
  }

  /** Ends a review; those of the session that ended earlier are removed. */
  end(row: ReviewRow, endedAt: number): void {
    this.#database.run(
      'DELETE FROM reviews WHERE sessionId = ? AND endedAt IS NOT NULL AND id <> ?',
      row.sessionId,
      row.id,
    );
    this.update(row.id, { endedAt, updatedAt: endedAt });
    this.#database.run('DELETE FROM review_steps WHERE reviewId = ?', row.id);
  }

  removeOfSession(sessionId: string): void {
    this.#database.run('DELETE FROM reviews WHERE sessionId = ?', sessionId);
  }

  /** Opens a review that has ended. The session must have no other open one. */
  reopen(row: ReviewRow, at: number): void {
    this.update(row.id, { endedAt: null, updatedAt: at });
  }

  /** Hashes of all trees of a lineage that reviews need. The newest one that ended may be opened again. */
  roots(lineage: string): string[] {
    return this.#database
      .all('SELECT * FROM reviews WHERE lineage = ?', lineage)
      .map(parse)
      .flatMap(({ baseRoot, targetRoot, acceptedRoot }) => [
        baseRoot,
        targetRoot,
        ...(acceptedRoot === null ? [] : [acceptedRoot]),
      ]);
  }

  /** How many paths are decided as a whole, and how many by lines or in part. */
  countDecided(reviewId: string): {
    readonly accepted: number;
    readonly rejected: number;
    readonly partly: number;
  } {
    const row = this.#database.get(
      `SELECT count(*) FILTER (WHERE json_extract(state, '$.whole') = 'accept') AS accepted,
         count(*) FILTER (WHERE json_extract(state, '$.whole') = 'reject') AS rejected,
         count(*) FILTER (WHERE json_extract(state, '$.whole') IS NULL) AS partly
       FROM review_decisions WHERE reviewId = ?`,
      reviewId,
    );
    return parseRow(DecidedSchema, 'review_decisions', row);
  }

  decisions(reviewId: string): DecisionRow[] {
    return this.#database
      .all('SELECT path, fileId, state FROM review_decisions WHERE reviewId = ? ORDER BY path', reviewId)
      .map((row) => parseRow(DecisionRowSchema, 'review_decisions', row));
  }

  /** `state` null: the path is not decided any more. */
  decide(reviewId: string, path: string, fileId: string, state: DecisionState | null): void {
    if (state === null) {
      this.#database.run('DELETE FROM review_decisions WHERE reviewId = ? AND path = ?', reviewId, path);
      return;
    }
    this.#database.run(
      'INSERT OR REPLACE INTO review_decisions (reviewId, path, fileId, state) VALUES (?, ?, ?, ?)',
      reviewId,
      path,
      fileId,
      toJson(state),
    );
  }

  clearDecisions(reviewId: string): void {
    this.#database.run('DELETE FROM review_decisions WHERE reviewId = ?', reviewId);
  }

  addStep(reviewId: string, verdict: ReviewStep['verdict'], before: readonly EarlierDecision[]): void {
    const last = this.lastStep(reviewId)?.seq ?? 0;
    this.#database.run(
      'INSERT INTO review_steps (reviewId, seq, verdict, before) VALUES (?, ?, ?, ?)',
      reviewId,
      last + 1,
      verdict,
      toJson(before),
    );
    this.#database.run(
      'DELETE FROM review_steps WHERE reviewId = ? AND seq <= ?',
      reviewId,
      last + 1 - MAX_STEPS,
    );
  }

  lastStep(reviewId: string): ReviewStep | null {
    const row = this.#database.get(
      'SELECT seq, verdict, before FROM review_steps WHERE reviewId = ? ORDER BY seq DESC LIMIT 1',
      reviewId,
    );
    return row === undefined ? null : parseRow(StepRowSchema, 'review_steps', row);
  }

  removeStep(reviewId: string, seq: number): void {
    this.#database.run('DELETE FROM review_steps WHERE reviewId = ? AND seq = ?', reviewId, seq);
  }

  #one(sql: string, value: string): ReviewRow | null {
    const row = this.#database.get(sql, value);
    return row === undefined ? null : parse(row);
  }
}

function parse(row: unknown): ReviewRow {
  return parseRow(ReviewRowSchema, 'reviews', row);
}
