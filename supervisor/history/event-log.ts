import { hash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import type { SessionEvent } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { GENESIS_HASH } from '../../protocol/events.ts';
import type { EventEntry } from '../../protocol/events.ts';
import { JsonSchema, count, json, parseRow, time } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import { canonicalJson } from './canonical-json.ts';

/** An event larger than this could not be given to a client in one message. */
const EVENT_BYTES = 512 * 1024;
/** What `read` returns at most, as JSON, unless one event alone has more. */
const PAGE_BYTES = 640 * 1024;
/** About what an event costs in JSON beside its data. */
const ENVELOPE_BYTES = 360;
const VERIFIED_AT_ONCE = 500;

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
/** As it was written, for checking: the text of `data` is what was hashed. */
const RawRowSchema = EventRowSchema.extend({ data: z.string() });
const HeadSchema = z.object({ seq: count, hash: z.string() });

/** The last event of a session: `seq` 0 and the genesis hash before the first. */
export type Head = z.output<typeof HeadSchema>;

export interface Verification {
  readonly ok: boolean;
  /** How many there are. */
  readonly events: number;
  readonly head: string;
  /** The first seq at which the chain does not hold. */
  readonly firstInvalid: number | null;
}

export interface ReadOptions {
  /** Only events with a greater seq; 0 when left out. */
  readonly after?: number | undefined;
  /** 1,000 when left out. */
  readonly limit?: number | undefined;
  readonly type?: string | undefined;
}

export type EventListener = (event: SessionEvent) => void;

/**
 * The append-only history of every session: `seq` without gaps, each event chained to the one before by its hash.
 * Never put a secret into an event.
 */
export class EventLog {
  readonly #database: Database;
  readonly #onListenerError: (error: unknown) => void;
  readonly #heads = new Map<string, Head>();
  readonly #listeners = new Map<string, Set<EventListener>>();

  constructor(database: Database, onListenerError: (error: unknown) => void = rethrowLater) {
    this.#database = database;
    this.#onListenerError = onListenerError;
  }

  /**
   * Durable when it returns; inside a transaction, together with that. Listeners hear of it after the commit only.
   * Returns the events as they were written.
   */
  append(sessionId: string, entries: readonly EventEntry[]): SessionEvent[] {
    if (entries.length === 0) return [];
    return this.#database.transaction(() => {
      // Whatever undoes these events leaves the kept head wrong, so it is read from the table again then.
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
      this.#database.afterCommit(() => this.#tell(sessionId, written));
      return written;
    });
  }

  /** In order. May stop before `limit` where the page grows too large for a message: go on after the last seq until it is empty. */
  read(sessionId: string, options: ReadOptions = {}): SessionEvent[] {
    const { after = 0, limit = 1000, type } = options;
    const rows = this.#database.iterate(
      `SELECT * FROM events WHERE sessionId = ? AND seq > ? AND (?3 IS NULL OR type = ?3) ORDER BY seq LIMIT ?4`,
      sessionId,
      after,
      type ?? null,
      limit,
    );
    const events: SessionEvent[] = [];
    let bytes = 0;
    for (const row of rows) {
      const raw = parseRow(RawRowSchema, 'events', row);
      bytes += Buffer.byteLength(raw.data) + ENVELOPE_BYTES;
      if (events.length > 0 && bytes > PAGE_BYTES) break;
      events.push(toEvent(row));
    }
    return events;
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
      head = row === undefined ? { seq: 0, hash: GENESIS_HASH } : parseRow(HeadSchema, 'events', row);
      this.#heads.set(sessionId, head);
    }
    return head;
  }

  /** Recomputes the whole chain from the table. Lets other work in between, and covers what was there when it began. */
  async verify(sessionId: string): Promise<Verification> {
    const { seq: end } = this.head(sessionId);
    let head: Head = { seq: 0, hash: GENESIS_HASH };
    let events = 0;
    let firstInvalid: number | null = null;
    while (head.seq < end) {
      const rows = this.#database.all(
        'SELECT * FROM events WHERE sessionId = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?',
        sessionId,
        head.seq,
        end,
        VERIFIED_AT_ONCE,
      );
      if (rows.length === 0) break;
      for (const row of rows) {
        const raw = parseRow(RawRowSchema, 'events', row);
        const holds =
          raw.seq === head.seq + 1 &&
          raw.prevHash === head.hash &&
          raw.hash === eventHash(sessionId, raw.seq, isoTime(raw.at), raw.type, raw.data, head.hash);
        if (!holds) firstInvalid ??= head.seq + 1;
        head = raw;
        events += 1;
      }
      await setImmediate();
    }
    if (head.seq < end) firstInvalid ??= head.seq + 1;
    return { ok: firstInvalid === null, events, head: head.hash, firstInvalid };
  }

  /** `listener` hears of every event committed from now on, in order. Returns the end of it. */
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

  /** Takes a whole history away: only for a session that is removed for good. */
  remove(sessionId: string): void {
    this.#database.transaction(() => {
      this.#database.afterRollback(() => this.#heads.delete(sessionId));
      this.#database.run('DELETE FROM events WHERE sessionId = ?', sessionId);
      this.#heads.delete(sessionId);
    });
  }

  #tell(sessionId: string, events: readonly SessionEvent[]): void {
    for (const event of events) {
      for (const listener of [...(this.#listeners.get(sessionId) ?? [])]) {
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
  if (bytes > EVENT_BYTES) {
    throw new HoldfastError('internal', `An event of type ${type} is too large for the history`, {
      why: `it has ${bytes} bytes and ${EVENT_BYTES} are the most`,
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

/** sha256 over the canonical JSON `[sessionId, seq, at, type, data, prevHash]`; `data` is canonical already. */
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
