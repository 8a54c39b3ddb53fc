import { hash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import type { SessionEvent } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type EventType, GENESIS_HASH, storedTypes } from '../../protocol/events.ts';
import type { EventEntry } from '../../protocol/events.ts';
import { Emitter } from '../base/emitter.ts';
import { JsonSchema, count, json, parseRow, time } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import { canonicalJson } from './canonical-json.ts';

/** Size limit of an event, so that one message can carry it to a client. */
const MAX_EVENT_BYTES = 512 * 1024;
/** The most JSON that `read` returns, unless a single event is larger. */
const MAX_PAGE_BYTES = 640 * 1024;
/** Approximate JSON size of an event besides its data. */
const ENVELOPE_BYTES = 360;
const VERIFY_BATCH = 500;

const INSERT =
  'INSERT INTO events (sessionId, seq, at, type, data, prevHash, hash) VALUES (?, ?, ?, ?, ?, ?, ?)';

const EventRowSchema = z.object({
  sessionId: z.string(),
  seq: z.int().positive(),
  at: time,
  type: z.string(),
  data: json(z.record(z.string(), JsonSchema)),
  prevHash: z.string(),
  hash: z.string(),
});
/** A row with `data` as stored, because that exact text was hashed. */
const RawRowSchema = EventRowSchema.extend({ data: z.string() });
const GENESIS = { seq: 0, hash: GENESIS_HASH };
const HeadSchema = z.object({ seq: count, hash: z.string() });

/** The last event of a session: `seq` 0 and the genesis hash before the first. */
export type Head = z.output<typeof HeadSchema>;

export interface Verification {
  readonly ok: boolean;
  /** The number of events. */
  readonly events: number;
  readonly head: string;
  /** The first seq at which the hash chain is broken. */
  readonly firstInvalid: number | null;
}

export interface ReadOptions {
  /** Only events with a greater seq. Default 0. */
  readonly after?: number | undefined;
  /** Default 1,000. */
  readonly limit?: number | undefined;
  /** Only events of this type or these. Finds those that earlier versions stored under another type, too. */
  readonly type?: string | readonly string[] | undefined;
  /** Only events up to this seq. */
  readonly upTo?: number | undefined;
}

/** Events of one session, in order. */
export interface Appended {
  readonly sessionId: string;
  readonly events: readonly SessionEvent[];
}

/** Events up to `seq` were removed, except `kept`. */
export interface Cut {
  readonly sessionId: string;
  readonly seq: number;
  readonly kept: readonly number[];
}

export type EventListener = (event: SessionEvent) => void;

/**
 * The append-only history of every session. `seq` has no gaps, and a hash chains each event to the previous one. Never
 * put a secret into an event.
 */
export class EventLog {
  /** Events were appended. Emitted in their transaction, for rows that are derived from them. */
  readonly appended = new Emitter<Appended>();
  /** Events were removed. Emitted in that transaction, for the same rows. */
  readonly wasCut = new Emitter<Cut>();
  readonly #database: Database;
  readonly #onListenerError: (error: unknown) => void;
  readonly #heads = new Map<string, Head>();
  readonly #listeners = new Map<string, Set<EventListener>>();
  readonly #allListeners: EventListener[] = [];

  constructor(database: Database, onListenerError: (error: unknown) => void = rethrowLater) {
    this.#database = database;
    this.#onListenerError = onListenerError;
  }

  /**
   * Appends events and returns them as written. They are durable on return, or, inside a transaction, with its commit.
   * Listeners are called after the commit.
   */
  append(sessionId: string, entries: readonly EventEntry[]): SessionEvent[] {
    if (entries.length === 0) return [];
    return this.#database.transaction(() => {
      // After a rollback the cached head is wrong and has to be read from the table again.
      this.#database.afterRollback(() => this.#heads.delete(sessionId));
      let head = this.head(sessionId);
      const written: SessionEvent[] = [];
      for (const entry of entries) {
        const event = chain(sessionId, head, entry);
        this.#database.run(
          INSERT,
          sessionId,
          event.seq,
          event.atMs,
          event.type,
          event.text,
          head.hash,
          event.hash,
        );
        head = event;
        written.push({
          sessionId,
          seq: event.seq,
          at: event.at,
          type: event.type,
          data: entry.data as SessionEvent['data'],
          prevHash: event.prevHash,
          hash: event.hash,
        });
      }
      this.#heads.set(sessionId, { seq: head.seq, hash: head.hash });
      this.appended.emit({ sessionId, events: written });
      this.#database.afterCommit(() => this.#emit(sessionId, written));
      return written;
    });
  }

  /**
   * Events in order. May return fewer than `limit` to fit into a message: continue after the last seq until the page is
   * empty.
   */
  read(sessionId: string, options: ReadOptions = {}): SessionEvent[] {
    const { after = 0, limit = 1000, type, upTo = Number.MAX_SAFE_INTEGER } = options;
    const rows = this.#database.iterate(
      `SELECT * FROM events WHERE sessionId = ? AND seq > ? AND seq <= ?5
       AND (?3 IS NULL OR type IN (SELECT value FROM json_each(?3))) ORDER BY seq LIMIT ?4`,
      sessionId,
      after,
      type === undefined ? null : JSON.stringify([type].flat().flatMap(storedTypes)),
      limit,
      upTo,
    );
    const events: SessionEvent[] = [];
    let bytes = 0;
    for (const row of rows) {
      const raw = parseRow(RawRowSchema, 'events', row);
      bytes += Buffer.byteLength(raw.data) + ENVELOPE_BYTES;
      if (events.length > 0 && bytes > MAX_PAGE_BYTES) break;
      events.push(toEvent(row));
    }
    return events;
  }

  /** The newest events of a type, at most `limit`, the oldest of them first. `upTo`: the last one that is looked at. */
  newest(
    sessionId: string,
    type: EventType,
    limit: number,
    upTo: number = Number.MAX_SAFE_INTEGER,
  ): SessionEvent[] {
    const rows = this.#database.all(
      `SELECT * FROM events WHERE sessionId = ? AND seq <= ? AND type IN (SELECT value FROM json_each(?))
       ORDER BY seq DESC LIMIT ?`,
      sessionId,
      upTo,
      JSON.stringify(storedTypes(type)),
      limit,
    );
    return rows.map(toEvent).reverse();
  }

  get(sessionId: string, seq: number): SessionEvent | null {
    const row = this.#database.get('SELECT * FROM events WHERE sessionId = ? AND seq = ?', sessionId, seq);
    return row === undefined ? null : toEvent(row);
  }

  head(sessionId: string): Head {
    let head = this.#heads.get(sessionId);
    if (head === undefined) {
      const row = this.#database.get(
        'SELECT seq, hash FROM events WHERE sessionId = ? ORDER BY seq DESC LIMIT 1',
        sessionId,
      );
      head = row === undefined ? GENESIS : parseRow(HeadSchema, 'events', row);
      this.#heads.set(sessionId, head);
    }
    return head;
  }

  /**
   * Recomputes the hash chain of all events that exist at the start, from where the history was cut. Yields to other work
   * in between.
   */
  async verify(sessionId: string): Promise<Verification> {
    const { seq: end } = this.head(sessionId);
    let head: Head = this.start(sessionId);
    let events = 0;
    let firstInvalid: number | null = null;
    while (head.seq < end) {
      const rows = this.#database.all(
        'SELECT * FROM events WHERE sessionId = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?',
        sessionId,
        head.seq,
        end,
        VERIFY_BATCH,
      );
      if (rows.length === 0) break;
      for (const row of rows) {
        const raw = parseRow(RawRowSchema, 'events', row);
        const isValid =
          raw.seq === head.seq + 1 &&
          raw.prevHash === head.hash &&
          raw.hash === eventHash(sessionId, raw.seq, isoTime(raw.at), raw.type, raw.data, head.hash);
        if (!isValid) firstInvalid ??= head.seq + 1;
        head = raw;
        events += 1;
      }
      await setImmediate();
    }
    if (head.seq < end) firstInvalid ??= head.seq + 1;
    return { ok: firstInvalid === null, events, head: head.hash, firstInvalid };
  }

  /** The event up to which the history was cut: `seq` 0 and the genesis hash for a whole one. */
  start(sessionId: string): Head {
    const row = this.#database.get(
      'SELECT seq, hash FROM history_checkpoints WHERE sessionId = ?',
      sessionId,
    );
    return row === undefined ? GENESIS : parseRow(HeadSchema, 'history_checkpoints', row);
  }

  /** The events up to `seq` that a cut has left, and whether each is what its hash covers. */
  *keptUpTo(sessionId: string, seq: number): Generator<Head & { readonly isIntact: boolean }> {
    const rows = this.#database.iterate(
      'SELECT * FROM events WHERE sessionId = ? AND seq <= ? ORDER BY seq',
      sessionId,
      seq,
    );
    for (const row of rows) {
      const raw = parseRow(RawRowSchema, 'events', row);
      const wanted = eventHash(sessionId, raw.seq, isoTime(raw.at), raw.type, raw.data, raw.prevHash);
      yield { seq: raw.seq, hash: raw.hash, isIntact: raw.hash === wanted };
    }
  }

  /**
   * Removes the events up to `seq` except `kept`; returns how many. Call it in the transaction that stores the checkpoint:
   * without one, `verify` finds that events are missing.
   */
  cut(sessionId: string, seq: number, kept: readonly number[]): number {
    const removed = this.#database.run(
      `DELETE FROM events WHERE sessionId = ? AND seq <= ? AND seq NOT IN (SELECT value FROM json_each(?))`,
      sessionId,
      seq,
      JSON.stringify(kept),
    );
    this.wasCut.emit({ sessionId, seq, kept });
    return removed;
  }

  /** Calls `listener` for every event committed from now on, in order, until the returned function is called. */
  subscribe(sessionId: string, listener: EventListener): () => void {
    const own: EventListener = (event) => listener(event);
    const listeners = this.#listeners.get(sessionId) ?? new Set();
    this.#listeners.set(sessionId, listeners);
    listeners.add(own);
    return () => {
      listeners.delete(own);
      if (listeners.size === 0 && this.#listeners.get(sessionId) === listeners)
        this.#listeners.delete(sessionId);
    };
  }

  /** Calls `listener` for every event of every session committed from now on, in order. */
  subscribeAll(listener: EventListener): void {
    this.#allListeners.push(listener);
  }

  /** Deletes a whole history, for a session that is removed for good. */
  remove(sessionId: string): void {
    this.#database.transaction(() => {
      this.#database.afterRollback(() => this.#heads.delete(sessionId));
      this.#database.run('DELETE FROM events WHERE sessionId = ?', sessionId);
      this.#database.run('DELETE FROM history_checkpoints WHERE sessionId = ?', sessionId);
      this.#heads.delete(sessionId);
    });
  }

  #emit(sessionId: string, events: readonly SessionEvent[]): void {
    for (const event of events) {
      for (const listener of [...(this.#listeners.get(sessionId) ?? []), ...this.#allListeners]) {
        try {
          listener(event);
        } catch (error) {
          this.#onListenerError(error);
        }
      }
    }
  }
}

interface Chained extends Head {
  readonly at: string;
  readonly atMs: number;
  readonly type: string;
  readonly text: string;
  readonly prevHash: string;
}

function chain(sessionId: string, head: Head, entry: EventEntry): Chained {
  const { type } = entry;
  const text = canonicalJson(entry.data);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_EVENT_BYTES) {
    throw new HoldfastError('internal', `An event of type ${type} is too large for the history`, {
      why: `it has ${bytes} bytes, and the limit is ${MAX_EVENT_BYTES}`,
    });
  }
  const atMs = Math.trunc(entry.at ?? Date.now());
  const at = isoTime(atMs);
  const seq = head.seq + 1;
  return {
    seq,
    at,
    atMs,
    type,
    text,
    prevHash: head.hash,
    hash: eventHash(sessionId, seq, at, type, text, head.hash),
  };
}

/** sha256 of the canonical JSON `[sessionId, seq, at, type, data, prevHash]`; `data` is already canonical. */
function eventHash(
  sessionId: string,
  seq: number,
  at: string,
  type: string,
  data: string,
  prevHash: string,
): string {
  return hash('sha256', `["${sessionId}",${seq},"${at}","${type}",${data},"${prevHash}"]`);
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

function toEvent(row: unknown): SessionEvent {
  const { at, ...rest } = parseRow(EventRowSchema, 'events', row);
  return { ...rest, at: isoTime(at) };
}

function rethrowLater(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
