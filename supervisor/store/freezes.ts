import { z } from 'zod';
import { parseRow } from './columns.ts';
import type { Database } from './database.ts';

/** Which agents are frozen for a snapshot. Written before the engine is asked to freeze, removed when it has thawed them. */
export class Freezes {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  add(sessionId: string): void {
    this.#database.run('INSERT OR REPLACE INTO freezes (sessionId, at) VALUES (?, ?)', sessionId, Date.now());
  }

  remove(sessionId: string): void {
    this.#database.run('DELETE FROM freezes WHERE sessionId = ?', sessionId);
  }

  list(): string[] {
    return this.#database
      .all('SELECT sessionId FROM freezes')
      .map((row) => parseRow(z.object({ sessionId: z.string() }), 'freezes', row).sessionId);
  }
}
