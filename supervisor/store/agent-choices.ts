import { z } from 'zod';
import { count, parseRow } from './columns.ts';
import type { Database } from './database.ts';

const RowSchema = z.object({ option: z.string(), value: z.string(), revision: count });
export type AgentChoiceRow = z.output<typeof RowSchema>;

/** The most that is kept of a session: an agent may offer other settings each time. The oldest go. */
const MAX_CHOICES = 64;

/** What people chose of the settings of agents, as far as it is not the model, which a session has itself. */
export class AgentChoiceRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  listOf(sessionId: string): AgentChoiceRow[] {
    return this.#database
      .all(
        'SELECT option, value, revision FROM agent_choices WHERE sessionId = ? ORDER BY revision',
        sessionId,
      )
      .map((row) => parseRow(RowSchema, 'agent_choices', row));
  }

  put(sessionId: string, { option, value, revision }: AgentChoiceRow): void {
    this.#database.run(
      `INSERT INTO agent_choices (sessionId, option, value, revision) VALUES (?1, ?2, ?3, ?4)
       ON CONFLICT (sessionId, option) DO UPDATE SET value = ?3, revision = ?4`,
      sessionId,
      option,
      value,
      revision,
    );
    this.#database.run(
      `DELETE FROM agent_choices WHERE sessionId = ?1 AND option NOT IN (
         SELECT option FROM agent_choices WHERE sessionId = ?1 ORDER BY revision DESC LIMIT ?2)`,
      sessionId,
      MAX_CHOICES,
    );
  }

  /** The session was deleted. */
  remove(sessionId: string): void {
    this.#database.run('DELETE FROM agent_choices WHERE sessionId = ?', sessionId);
  }
}
