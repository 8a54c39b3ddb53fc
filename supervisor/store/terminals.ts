import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { count, json, parseRow, time, toColumn } from './columns.ts';
import type { Database } from './database.ts';

const TerminalRowSchema = z.object({
  id: z.string(),
  sessionId: z.string(),
  /** The generation of its sandbox. */
  generation: count,
  /** Empty for the image's shell. */
  command: json(z.array(z.string())),
  cwd: z.string(),
  createdAt: time,
  /** Null while the terminal is open. */
  endedAt: time.nullable(),
  exitCode: z.int().nullable(),
  why: z.string().nullable(),
});
export type TerminalRow = z.output<typeof TerminalRowSchema>;

const COLUMNS = Object.keys(TerminalRowSchema.shape) as (keyof TerminalRow)[];

/** Rows of open terminals, and of ended ones whose output may still exist. */
export class TerminalRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  insert(row: TerminalRow): void {
    this.#database.run(
      `INSERT INTO terminals (${COLUMNS.join(', ')}) VALUES (${COLUMNS.map(() => '?').join(', ')})`,
      ...COLUMNS.map((column) => toColumn(row[column])),
    );
  }

  get(id: string): TerminalRow | null {
    const row = this.#database.get('SELECT * FROM terminals WHERE id = ?', id);
    return row === undefined || row === null ? null : parseRow(TerminalRowSchema, 'terminals', row);
  }

  /** Errors: `not_found`. */
  getOrThrow(id: string): TerminalRow {
    const row = this.get(id);
    if (row === null) {
      throw new HoldfastError('not_found', `There is no terminal ${id}`, {
        next: 'see `holdfast terminal list`',
      });
    }
    return row;
  }

  /** Records the end of a terminal. False if it had already ended: the first end counts. */
  markEnded(id: string, end: Pick<TerminalRow, 'endedAt' | 'exitCode' | 'why'>): boolean {
    const { endedAt, exitCode, why } = end;
    const changed = this.#database.run(
      'UPDATE terminals SET endedAt = ?, exitCode = ?, why = ? WHERE id = ? AND endedAt IS NULL',
      endedAt,
      exitCode,
      why,
      id,
    );
    return changed > 0;
  }

  remove(id: string): void {
    this.#database.run('DELETE FROM terminals WHERE id = ?', id);
  }

  /** Terminals of one session or of all, the newest first. */
  list(sessionId: string | null): TerminalRow[] {
    const rows =
      sessionId === null
        ? this.#database.all('SELECT * FROM terminals ORDER BY ordinal DESC')
        : this.#database.all('SELECT * FROM terminals WHERE sessionId = ? ORDER BY ordinal DESC', sessionId);
    return rows.map((row) => parseRow(TerminalRowSchema, 'terminals', row));
  }

  /** Open terminals of one session or of all. */
  listOpen(sessionId: string | null): TerminalRow[] {
    return this.list(sessionId).filter(({ endedAt }) => endedAt === null);
  }
}
