import { z } from 'zod';
import { count, parseRow } from '../store/columns.ts';
import type { Database } from '../store/database.ts';

const INDEX = 'conversation_words';
const PREFIX = 'ses-';
/** Words of one search. */
const MAX_WORDS = 12;
/** A shorter beginning of a word would stand for too many words. */
const MIN_PREFIX = 3;
/** Rows of the index that one search looks at. The next one continues behind them. */
const WINDOW = 250_000;

const RowSchema = z.object({ id: count, session: z.string(), item: count, text: z.string() });
const IdSchema = z.object({ id: count });

/** A text with all the words, and the item that it belongs to. */
export interface FoundText {
  readonly id: number;
  readonly sessionId: string;
  readonly item: number;
  readonly text: string;
}

export interface WordQuery {
  readonly text: string;
  readonly sessionId: string | null;
  /** Only rows below. */
  readonly below: number | null;
  readonly limit: number;
}

/**
 * The words of conversations, by FTS5 of SQLite. A row is a text of an item. The table has its own copy of the texts,
 * because only then can FTS5 remove every trace of a row from the database file at once.
 */
export class WordIndex {
  readonly #database: Database;

  private constructor(database: Database) {
    this.#database = database;
  }

  /** Null where SQLite has no FTS5. `onCreated` is called for an index that is new and therefore empty. */
  static open(database: Database, onCreated: () => void): WordIndex | null {
    const existing = database.get("SELECT 1 FROM sqlite_schema WHERE name = ? AND type = 'table'", INDEX);
    try {
      if (existing === undefined) {
        database.transaction(() => {
          database.run(
            `CREATE VIRTUAL TABLE ${INDEX} USING fts5 (session, text, item UNINDEXED,
               tokenize = 'unicode61 remove_diacritics 2')`,
          );
          database.run(`INSERT INTO ${INDEX} (${INDEX}, rank) VALUES ('secure-delete', 1)`);
          onCreated();
        });
      }
      database.get(`SELECT rowid FROM ${INDEX} LIMIT 1`);
      return new WordIndex(database);
    } catch {
      return null;
    }
  }

  /** Call it in the transaction that stores the item. */
  add(sessionId: string, item: number, text: string): void {
    this.#database.run(
      `INSERT INTO ${INDEX} (session, text, item) VALUES (?, ?, ?)`,
      sessionToken(sessionId),
      text,
      item,
    );
  }

  /**
   * Rows with all words of the text, newest first. `next`: where to continue; null when nothing is left. The work is
   * bounded, so there may be fewer rows than `limit`, or none, and a `next`.
   */
  find(query: WordQuery): { readonly found: FoundText[]; readonly next: number | null } {
    const match = matchExpression(query.text, query.sessionId);
    if (match === null) return { found: [], next: null };
    const newest = this.#database.get(`SELECT rowid AS id FROM ${INDEX} ORDER BY rowid DESC LIMIT 1`);
    const end = newest === undefined ? 0 : parseRow(IdSchema, INDEX, newest).id + 1;
    const below = Math.min(query.below ?? end, end);
    const from = Math.max(0, below - WINDOW);
    const found = this.#database
      .all(
        `SELECT rowid AS id, session, item, text FROM ${INDEX}
         WHERE ${INDEX} MATCH ? AND rowid < ? AND rowid >= ? ORDER BY rowid DESC LIMIT ?`,
        match,
        below,
        from,
        query.limit,
      )
      .map((row) => toFound(row));
    const last = found.at(-1);
    const next = found.length === query.limit && last !== undefined ? last.id : from;
    return { found, next: next > 0 ? next : null };
  }

  /** Removes a text that `add` was given. Call it in a transaction. */
  removeText(sessionId: string, item: number, text: string): void {
    // No search finds a text without words.
    const match = matchExpression(text, sessionId);
    if (match === null) return;
    const rows = this.#database.all(
      `SELECT rowid AS id FROM ${INDEX} WHERE ${INDEX} MATCH ? AND item = ? AND text = ?`,
      match,
      item,
      text,
    );
    for (const row of rows)
      this.#database.run(`DELETE FROM ${INDEX} WHERE rowid = ?`, parseRow(IdSchema, INDEX, row).id);
  }

  /** Removes the texts of items up to one, except `kept`. Call it in a transaction. */
  removeUpTo(sessionId: string, item: number, kept: readonly number[]): void {
    this.#database.run(
      `DELETE FROM ${INDEX} WHERE rowid IN (SELECT rowid FROM ${INDEX} WHERE ${INDEX} MATCH ?
         AND item <= ? AND item NOT IN (SELECT value FROM json_each(?)))`,
      sessionExpression(sessionId),
      item,
      JSON.stringify(kept),
    );
  }

  /** Removes up to `limit` texts of a session; returns how many there were. Call it in a transaction. */
  remove(sessionId: string, limit: number): number {
    const ids = this.#database
      .all(
        `SELECT rowid AS id FROM ${INDEX} WHERE ${INDEX} MATCH ? LIMIT ?`,
        sessionExpression(sessionId),
        limit,
      )
      .map((row) => parseRow(IdSchema, INDEX, row).id);
    for (const id of ids) this.#database.run(`DELETE FROM ${INDEX} WHERE rowid = ?`, id);
    return ids.length;
  }
}

/** The words of a text, as the index splits it. */
export function wordsOf(text: string): string[] {
  return (text.normalize('NFC').match(/[\p{L}\p{N}\p{Co}]+[\p{L}\p{N}\p{Co}\p{M}]*/gu) ?? []).slice(
    0,
    MAX_WORDS,
  );
}

/** Only words in quotes reach the query language of FTS5. */
function matchExpression(text: string, sessionId: string | null): string | null {
  const words = wordsOf(text);
  const last = words.length - 1;
  if (last < 0) return null;
  const terms = words.map((word, at) => {
    const isPrefix = at === last && word.length >= MIN_PREFIX && !/\s$/.test(text);
    return `"${word}"${isPrefix ? ' *' : ''}`;
  });
  const session = sessionId === null ? '' : `${sessionExpression(sessionId)} AND `;
  return `${session}text : (${terms.join(' AND ')})`;
}

function toFound(row: unknown): FoundText {
  const { id, session, item, text } = parseRow(RowSchema, INDEX, row);
  return { id, sessionId: `${PREFIX}${session}`, item, text };
}

function sessionExpression(sessionId: string): string {
  return `session : "${sessionToken(sessionId)}"`;
}

/** One word of the index: `ses-` would be another. */
function sessionToken(sessionId: string): string {
  return sessionId.slice(PREFIX.length);
}
