import { z } from 'zod';
import { count, parseRow } from './columns.ts';
import type { Database } from './database.ts';

const RowSchema = z.object({ sessionId: z.string(), sha256: z.string() });

/** Contents that a client has uploaded and no event names yet. Callers bring the transactions. */
export class AttachmentUploads {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  has(sessionId: string, sha256: string): boolean {
    const sql = 'SELECT 1 FROM attachment_uploads WHERE sessionId = ? AND sha256 = ?';
    return this.#database.get(sql, sessionId, sha256) !== undefined;
  }

  put(sessionId: string, sha256: string, bytes: number, now: number): void {
    this.#database.run(
      'INSERT OR REPLACE INTO attachment_uploads (sessionId, sha256, bytes, uploadedAt) VALUES (?, ?, ?, ?)',
      ...[sessionId, sha256, bytes, now],
    );
  }

  remove(sessionId: string, sha256: string): void {
    markNamed(this.#database, sessionId, sha256);
  }

  /** What waits in a session. */
  waiting(sessionId: string): { readonly files: number; readonly bytes: number } {
    const row = this.#database.get(
      'SELECT count(*) AS files, coalesce(sum(bytes), 0) AS bytes FROM attachment_uploads WHERE sessionId = ?',
      sessionId,
    );
    return parseRow(z.object({ files: count, bytes: count }), 'attachment_uploads', row);
  }

  /** Those of before `time` (ms since 1970). */
  olderThan(time: number): z.output<typeof RowSchema>[] {
    return this.#database
      .all('SELECT sessionId, sha256 FROM attachment_uploads WHERE uploadedAt < ?', time)
      .map((row) => parseRow(RowSchema, 'attachment_uploads', row));
  }
}

/** An event names the content: it stays as long as its session. Call it in the transaction of the event. */
export function markNamed(database: Database, sessionId: string, sha256: string): void {
  database.run('DELETE FROM attachment_uploads WHERE sessionId = ? AND sha256 = ?', sessionId, sha256);
}
