import { z } from 'zod';
import { blob, count, parseRow, time } from './columns.ts';
import type { Database } from './database.ts';

const CommentRowSchema = z.object({
  id: z.string(),
  sessionId: z.string(),
  path: z.string(),
  side: z.enum(['base', 'target']),
  /** Lines from 0; `end` is exclusive. */
  start: count,
  end: count,
  /** The lines with their line feeds. */
  quote: blob,
  text: z.string(),
  createdAt: time,
  /** The `opId` of the prompt that takes it along; null: not sent. */
  batch: z.string().nullable(),
  /** Null until that turn exists. */
  turnId: z.string().nullable(),
  sentAt: time.nullable(),
});
export type CommentRow = z.output<typeof CommentRowSchema>;

const COLUMNS = 'id, sessionId, path, side, start, "end", quote, text, createdAt, batch, turnId, sentAt';

/** The rows of comments about reviewed files. */
export class ReviewCommentRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  insert(row: CommentRow): void {
    const { id, sessionId, path, side, start, end, quote, text, createdAt, batch, turnId, sentAt } = row;
    this.#database.run(
      `INSERT INTO review_comments (${COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[id, sessionId, path, side, start, end, quote, text, createdAt, batch, turnId, sentAt],
    );
  }

  /** By path and line. */
  list(sessionId: string): CommentRow[] {
    return this.#database
      .all(
        `SELECT ${COLUMNS} FROM review_comments WHERE sessionId = ? ORDER BY path, start, ordinal`,
        sessionId,
      )
      .map((row) => parseRow(CommentRowSchema, 'review_comments', row));
  }

  /** Whether there was one. */
  remove(sessionId: string, id: string): boolean {
    const found = this.list(sessionId).some((row) => row.id === id);
    this.#database.run('DELETE FROM review_comments WHERE sessionId = ? AND id = ?', sessionId, id);
    return found;
  }

  removeOfSession(sessionId: string): void {
    this.#database.run('DELETE FROM review_comments WHERE sessionId = ?', sessionId);
  }

  /** These comments go with the prompt of this `opId`. */
  beginBatch(ids: readonly string[], batch: string): void {
    for (const id of ids) this.#database.run('UPDATE review_comments SET batch = ? WHERE id = ?', batch, id);
  }

  endBatch(batch: string, turnId: string, sentAt: number): void {
    this.#database.run(
      'UPDATE review_comments SET turnId = ?, sentAt = ? WHERE batch = ?',
      turnId,
      sentAt,
      batch,
    );
  }
}
