import { z } from 'zod';
import { JsonSchema, blob, count, flag, json, parseRow, toJson } from './columns.ts';
import type { Database } from './database.ts';

const RowSchema = z.object({
  sessionId: z.string(),
  /** The state of the conversation, for `agents/acp/state.ts`. */
  state: json(JsonSchema),
  /** Identifies the agent's program: another one knows nothing of the conversation. */
  command: z.string(),
  processId: z.string().nullable(),
  /** Of the sandbox in which the process runs. */
  generation: count.nullable(),
  stdoutOffset: count,
  /** The offset is inside a message that is too long. */
  isSkipping: flag,
  stderrOffset: count,
  inputOffset: count,
});
type Row = z.output<typeof RowSchema>;
export type AgentConversationRow = Omit<Row, 'state'> & { readonly state: unknown };

const InputSchema = z.object({ start: count, bytes: blob });
/** A message to the process: its offset in the process's input, and its bytes. */
export type AgentInput = z.output<typeof InputSchema>;
const InputSizeSchema = z.object({ messages: count, bytes: count });
export type InputSize = z.output<typeof InputSizeSchema>;

/** Messages that are read at a time. */
const INPUT_PAGE = 64;

/** The conversation of each session with its agent, as far as it is stored, and what is still to be sent. */
export class AgentConversationRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  get(sessionId: string): AgentConversationRow | null {
    const row = this.#database.get('SELECT * FROM agent_conversations WHERE sessionId = ?', sessionId);
    return row === undefined ? null : parseRow(RowSchema, 'agent_conversations', row);
  }

  put(row: AgentConversationRow): void {
    this.#database.run(
      `INSERT INTO agent_conversations
         (sessionId, state, command, processId, generation, stdoutOffset, isSkipping, stderrOffset, inputOffset)
       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
       ON CONFLICT (sessionId) DO UPDATE SET state = ?2, command = ?3, processId = ?4, generation = ?5,
         stdoutOffset = ?6, isSkipping = ?7, stderrOffset = ?8, inputOffset = ?9`,
      row.sessionId,
      toJson(row.state),
      row.command,
      row.processId,
      row.generation,
      row.stdoutOffset,
      row.isSkipping ? 1 : 0,
      row.stderrOffset,
      row.inputOffset,
    );
  }

  /** The session was deleted. */
  remove(sessionId: string): void {
    this.#database.run('DELETE FROM agent_conversations WHERE sessionId = ?', sessionId);
  }

  /** The next messages that the process may not have received, in order: those that end behind `accepted`. */
  input(sessionId: string, accepted: number): AgentInput[] {
    return this.#database
      .all(
        `SELECT start, bytes FROM agent_input WHERE sessionId = ? AND start + length(bytes) > ?
         ORDER BY start LIMIT ?`,
        sessionId,
        accepted,
        INPUT_PAGE,
      )
      .map((row) => parseRow(InputSchema, 'agent_input', row));
  }

  /** How much of the input from an offset on is stored for the process. */
  countInput(sessionId: string, from: number): InputSize {
    const row = this.#database.get(
      `SELECT count(*) AS messages, coalesce(sum(length(bytes)), 0) AS bytes FROM agent_input
       WHERE sessionId = ? AND start >= ?`,
      sessionId,
      from,
    );
    return parseRow(InputSizeSchema, 'agent_input', row);
  }

  addInput(sessionId: string, start: number, bytes: Uint8Array): void {
    this.#database.run(
      'INSERT INTO agent_input (sessionId, start, bytes) VALUES (?, ?, ?)',
      sessionId,
      start,
      bytes,
    );
  }

  /** Removes what the process has received: everything that ends at `accepted` or before. */
  removeInput(sessionId: string, accepted: number): void {
    this.#database.run(
      'DELETE FROM agent_input WHERE sessionId = ? AND start + length(bytes) <= ?',
      sessionId,
      accepted,
    );
  }
}
