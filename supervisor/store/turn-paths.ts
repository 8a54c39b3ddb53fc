import { z } from 'zod';
import { type TurnPath, TurnPathSchema } from '../../protocol/changes.ts';
import { count, json, parseRow } from './columns.ts';
import type { Database } from './database.ts';

const TurnPathsRowSchema = z.object({
  paths: json(z.array(TurnPathSchema)),
  /** How many changed paths are not among them. */
  omitted: count,
});
export type TurnPathsRow = z.output<typeof TurnPathsRowSchema>;

/** The paths that turns changed. */
export class TurnPaths {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Replaces those of the turn. */
  put(turnId: string, paths: readonly TurnPath[], omitted: number): void {
    this.#database.run(
      `INSERT INTO turn_paths (turnId, paths, omitted) VALUES (?, ?, ?)
       ON CONFLICT (turnId) DO UPDATE SET paths = excluded.paths, omitted = excluded.omitted`,
      turnId,
      JSON.stringify(paths),
      omitted,
    );
  }

  get(turnId: string): TurnPathsRow {
    const row = this.#database.get('SELECT paths, omitted FROM turn_paths WHERE turnId = ?', turnId);
    return row === undefined ? { paths: [], omitted: 0 } : parseRow(TurnPathsRowSchema, 'turn_paths', row);
  }

  copy(from: string, to: string): void {
    this.#database.run(
      'INSERT INTO turn_paths (turnId, paths, omitted) SELECT ?2, paths, omitted FROM turn_paths WHERE turnId = ?1',
      from,
      to,
    );
  }
}
