import { z } from 'zod';
import { parseRow } from './columns.ts';
import type { Database } from './database.ts';

/**
 * Agents that are paused for a snapshot. A row is written before the engine pauses an agent and removed after the
 * unpause.
 */
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
