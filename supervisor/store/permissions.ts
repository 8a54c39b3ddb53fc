import { z } from 'zod';
import {
  AnsweredBySchema,
  PermissionOptionSchema,
  ToolKindSchema,
  ToolLocationSchema,
} from '../../protocol/agent-events.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { count, json, parseRow, time, toColumn } from './columns.ts';
import type { Database } from './database.ts';

const PermissionRowSchema = z.object({
  ordinal: count,
  id: z.string(),
  sessionId: z.string(),
  turnId: z.string(),
  kind: ToolKindSchema,
  title: z.string(),
  locations: json(z.array(ToolLocationSchema)),
  options: json(z.array(PermissionOptionSchema)),
  /** The agent asks to reach this host, and the answer is a rule; null: it is about a call of its own. */
  host: z.string().nullable(),
  askedAt: time,
  /** Null while it waits. */
  answeredAt: time.nullable(),
  /** Null also where the turn ended first. */
  answer: json(PermissionOptionSchema).nullable(),
  answeredBy: json(AnsweredBySchema).nullable(),
});
export type PermissionRow = z.output<typeof PermissionRowSchema>;
export type NewPermissionRow = Omit<
  PermissionRow,
  'ordinal' | 'answeredAt' | 'answer' | 'answeredBy' | 'host'
> & {
  readonly host?: string;
};

export interface PermissionFilter {
  readonly sessionId: string | null;
  readonly isWaiting: boolean;
  readonly after: number;
  readonly limit: number;
}

/** What agents asked a person, and the answers. */
export class PermissionRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  insert(row: NewPermissionRow): void {
    this.#database.run(
      `INSERT INTO permissions (id, sessionId, turnId, kind, title, locations, options, host, askedAt)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      row.id,
      row.sessionId,
      row.turnId,
      row.kind,
      row.title,
      toColumn(row.locations),
      toColumn(row.options),
      row.host ?? null,
      row.askedAt,
    );
  }

  /** Errors: `not_found`. */
  getOrThrow(id: string): PermissionRow {
    const row = this.#database.get('SELECT * FROM permissions WHERE id = ?', id);
    if (row === undefined) {
      throw new HoldfastError('not_found', `There is no permission ${id}`, {
        next: 'see `holdfast permission list`',
      });
    }
    return parseRow(PermissionRowSchema, 'permissions', row);
  }

  /** Records the answer. False if there was one: the first counts. */
  markAnswered(id: string, end: Pick<PermissionRow, 'answeredAt' | 'answer' | 'answeredBy'>): boolean {
    const { answeredAt, answer, answeredBy } = end;
    const changed = this.#database.run(
      'UPDATE permissions SET answeredAt = ?, answer = ?, answeredBy = ? WHERE id = ? AND answeredAt IS NULL',
      answeredAt,
      toColumn(answer),
      toColumn(answeredBy),
      id,
    );
    return changed > 0;
  }

  /** Oldest first. */
  list({ sessionId, isWaiting, after, limit }: PermissionFilter): PermissionRow[] {
    return this.#database
      .all(
        `SELECT permissions.* FROM permissions JOIN sessions ON sessions.id = permissions.sessionId
         WHERE ordinal > ?1 AND (?2 IS NULL OR sessionId = ?2) AND (?3 = 0 OR answeredAt IS NULL)
           AND sessions.status <> 'deleted'
         ORDER BY ordinal LIMIT ?4`,
        after,
        sessionId,
        isWaiting ? 1 : 0,
        limit,
      )
      .map((row) => parseRow(PermissionRowSchema, 'permissions', row));
  }

  listWaiting(): PermissionRow[] {
    return this.list({ sessionId: null, isWaiting: true, after: 0, limit: -1 });
  }

  /** The hosts that the agent asked for in a turn, oldest first. */
  listHosts(turnId: string): PermissionRow[] {
    return this.#database
      .all('SELECT * FROM permissions WHERE turnId = ? AND host IS NOT NULL ORDER BY ordinal', turnId)
      .map((row) => parseRow(PermissionRowSchema, 'permissions', row));
  }

  listWaitingOf(turnId: string): PermissionRow[] {
    return this.listWaiting().filter((row) => row.turnId === turnId);
  }

  /** The session was deleted: what its agent asked goes with it. */
  removeOfSession(sessionId: string): void {
    this.#database.run('DELETE FROM permissions WHERE sessionId = ?', sessionId);
  }

  /** How many wait, by session; sessions without any are left out. */
  countWaiting(): Map<string, number> {
    const schema = z.object({ sessionId: z.string(), many: count });
    const rows = this.#database.all(
      'SELECT sessionId, count(*) AS many FROM permissions WHERE answeredAt IS NULL GROUP BY sessionId',
    );
    return new Map(
      rows.map((row) => {
        const { sessionId, many } = parseRow(schema, 'permissions', row);
        return [sessionId, many];
      }),
    );
  }

  countWaitingOf(sessionId: string): number {
    const row = this.#database.get(
      'SELECT count(*) AS many FROM permissions WHERE sessionId = ? AND answeredAt IS NULL',
      sessionId,
    );
    return parseRow(z.object({ many: count }), 'permissions', row).many;
  }
}
