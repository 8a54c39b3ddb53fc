import { z } from 'zod';
import { type ProjectedItem, ProjectedItemSchema } from '../../protocol/conversation.ts';
import type { ItemChange } from '../../protocol/conversation-projection.ts';
import { count, json, parseRow } from '../store/columns.ts';
import type { Database } from '../store/database.ts';

const TABLE = 'conversation_items';
const RowSchema = z.object({ data: json(ProjectedItemSchema) });
const HeadSchema = z.object({ seq: count, items: count });
const ListedSchema = z.object({ id: z.string() });

/** How far the items of a session follow its events, and how many there are. */
export type ConversationHead = z.output<typeof HeadSchema>;

/** A place between items: behind the item `id` that stands at the event `at`. */
export interface Place {
  readonly at: number;
  readonly id: number;
}

/*
 * The indexes are named: without statistics SQLite takes the primary key for both, which is a scan of the whole conversation for each
 * event.
 */
export const ITEM_OF_KEY = `SELECT data FROM ${TABLE} INDEXED BY conversation_items_by_key
  WHERE sessionId = ? AND key = ? ORDER BY id DESC LIMIT 1`;
export const ITEMS_IN_QUEUE = `SELECT data FROM ${TABLE} INDEXED BY conversation_items_in_order
  WHERE sessionId = ? AND at = 0 ORDER BY id LIMIT ?`;

/** The rows of conversations. Callers bring the transactions. */
export class ItemRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  head(sessionId: string): ConversationHead {
    const row = this.#database.get(
      'SELECT seq, items FROM conversation_heads WHERE sessionId = ?',
      sessionId,
    );
    return row === undefined ? { seq: 0, items: 0 } : parseRow(HeadSchema, 'conversation_heads', row);
  }

  setHead(sessionId: string, { seq, items }: ConversationHead): void {
    this.#database.run(
      `INSERT INTO conversation_heads (sessionId, seq, items) VALUES (?, ?, ?)
       ON CONFLICT (sessionId) DO UPDATE SET seq = excluded.seq, items = excluded.items`,
      sessionId,
      seq,
      items,
    );
  }

  find(sessionId: string, key: string): ProjectedItem | undefined {
    const row = this.#database.get(ITEM_OF_KEY, sessionId, key);
    return row === undefined ? undefined : toItem(row);
  }

  get(sessionId: string, id: number): ProjectedItem | undefined {
    const row = this.#database.get(`SELECT data FROM ${TABLE} WHERE sessionId = ? AND id = ?`, sessionId, id);
    return row === undefined ? undefined : toItem(row);
  }

  save(sessionId: string, { key, item }: ItemChange): void {
    this.#database.run(
      `INSERT INTO ${TABLE} (sessionId, id, at, seq, key, data) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (sessionId, id) DO UPDATE SET at = excluded.at, seq = excluded.seq, data = excluded.data`,
      sessionId,
      item.id,
      item.at,
      item.seq,
      key,
      JSON.stringify(item),
    );
  }

  /** Backwards from `before`, or from the end; without those that wait in the queue. */
  *before(sessionId: string, before: Place | null, limit: number): Generator<ProjectedItem> {
    const { at, id } = before ?? { at: Number.MAX_SAFE_INTEGER, id: 0 };
    const rows = this.#database.all(
      `SELECT data FROM ${TABLE} WHERE sessionId = ? AND at > 0 AND (at, id) < (?, ?)
       ORDER BY at DESC, id DESC LIMIT ?`,
      sessionId,
      at,
      id,
      limit,
    );
    for (const row of rows) yield toItem(row);
  }

  /** Forwards from behind `after`. */
  *after(sessionId: string, { at, id }: Place, limit: number): Generator<ProjectedItem> {
    const rows = this.#database.all(
      `SELECT data FROM ${TABLE} WHERE sessionId = ? AND at > 0 AND (at, id) > (?, ?) ORDER BY at, id LIMIT ?`,
      sessionId,
      at,
      id,
      limit,
    );
    for (const row of rows) yield toItem(row);
  }

  /** Items that changed after an event, in the order of their changes. */
  *changedAfter(sessionId: string, seq: number, limit: number): Generator<ProjectedItem> {
    const rows = this.#database.all(
      `SELECT data FROM ${TABLE} WHERE sessionId = ? AND seq > ? ORDER BY seq, id LIMIT ?`,
      sessionId,
      seq,
      limit,
    );
    for (const row of rows) yield toItem(row);
  }

  queued(sessionId: string, limit: number): ProjectedItem[] {
    return this.#database.all(ITEMS_IN_QUEUE, sessionId, limit).map(toItem);
  }

  /** Sessions whose items do not follow all of their events. */
  behind(): string[] {
    return this.#database
      .all(
        `SELECT id FROM sessions LEFT JOIN conversation_heads AS head ON head.sessionId = sessions.id
         WHERE status <> 'deleted' AND coalesce(head.seq, 0) <
           coalesce((SELECT max(seq) FROM events WHERE events.sessionId = sessions.id), 0)`,
      )
      .map((row) => parseRow(ListedSchema, 'sessions', row).id);
  }

  /** Deleted sessions that still have items. */
  ofDeletedSessions(): string[] {
    return this.#database
      .all(
        `SELECT id FROM sessions WHERE status = 'deleted'
           AND EXISTS (SELECT 1 FROM ${TABLE} WHERE sessionId = sessions.id)`,
      )
      .map((row) => parseRow(ListedSchema, 'sessions', row).id);
  }

  /** Removes the items up to one, except `kept`; returns how many there were. */
  removeUpTo(sessionId: string, id: number, kept: readonly number[]): number {
    return this.#database.run(
      `DELETE FROM ${TABLE} WHERE sessionId = ? AND id <= ? AND id NOT IN (SELECT value FROM json_each(?))`,
      sessionId,
      id,
      JSON.stringify(kept),
    );
  }

  /** Removes up to `limit` items of a session; returns how many there were. */
  remove(sessionId: string, limit: number): number {
    return this.#database.run(
      `DELETE FROM ${TABLE} WHERE sessionId = ?1 AND id IN
         (SELECT id FROM ${TABLE} WHERE sessionId = ?1 LIMIT ?2)`,
      sessionId,
      limit,
    );
  }

  /** Every conversation is projected again, from the first event on. */
  forgetAll(): void {
    this.#database.run(`DELETE FROM ${TABLE}`);
    this.#database.run('DELETE FROM conversation_heads');
  }
}

function toItem(row: unknown): ProjectedItem {
  return parseRow(RowSchema, TABLE, row).data;
}
