import type { ProjectedItem } from '../../protocol/conversation.ts';
import { isText } from '../../protocol/contents.ts';
import type { Content } from '../../protocol/contents.ts';
import { type ItemChange, projectEvent } from '../../protocol/conversation-projection.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type EventEntry, contentOf, parseEvent } from '../../protocol/events.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import type { Log } from '../base/log.ts';
import type { Contents } from '../history/contents.ts';
import type { Appended, Cut, EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { LiveRole } from './conversation-live.ts';
import { ItemRows } from './item-rows.ts';
import { WordIndex } from './word-index.ts';

/** A fork appends the history of its source at once. Its items follow in steps. */
const MAX_AT_ONCE = 500;
const CATCH_UP_PAGE = 200;
const REMOVED_AT_ONCE = 500;
/** Of each content, and of each stream of a turn, this much can be found. */
const INDEXED_BYTES = 64 * 1024;
const INDEXED_STREAM_BYTES = 256 * 1024;

export interface ConversationsOptions {
  readonly database: Database;
  readonly events: EventLog;
  readonly contents: Pick<Contents, 'read'>;
  readonly log: Log;
}

/**
 * Keeps the rows and the index of every conversation equal to what its events say. They change in the transaction of the
 * event. Where they are behind (a session from before this version, a fork), whoever reads waits for `catchUp`.
 */
export class Conversations {
  readonly rows: ItemRows;
  /** Null where SQLite has no FTS5. */
  readonly index: WordIndex | null;
  readonly #options: ConversationsOptions;
  readonly #catchingUp = new Map<string, Promise<void>>();
  readonly #ending = new AbortController();
  #isComplete = false;

  constructor(options: ConversationsOptions) {
    this.#options = options;
    this.rows = new ItemRows(options.database);
    this.index = WordIndex.open(options.database, () => this.rows.forgetAll());
    options.events.appended.on((appended) => this.#onAppended(appended));
    options.events.wasCut.on((cut) => this.#onCut(cut));
  }

  /** Whether every conversation has been brought up to date since the start. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** Brings every conversation up to date, and removes those of deleted sessions. Ends early when `close` is called. */
  async start(): Promise<void> {
    for (const sessionId of this.rows.ofDeletedSessions()) await this.remove(sessionId);
    for (const sessionId of this.rows.behind()) {
      await this.catchUp(sessionId).catch((error: unknown) => {
        if (this.#isEnding()) return;
        const why = HoldfastError.from(error).sentence;
        this.#options.log.warn('a conversation could not be read', { session: sessionId, why });
      });
      if (this.#isEnding()) return;
    }
    this.#isComplete = true;
  }

  /** Settles when nothing of this is under way any more. */
  async close(): Promise<void> {
    this.#ending.abort(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
    await Promise.allSettled(this.#catchingUp.values());
  }

  /** Resolves when the items follow every event that exists at that moment. */
  async catchUp(sessionId: string): Promise<void> {
    if (!this.#isOutdated(sessionId)) return;
    let running = this.#catchingUp.get(sessionId);
    if (running === undefined) {
      running = this.#catchUp(sessionId).finally(() => this.#catchingUp.delete(sessionId));
      this.#catchingUp.set(sessionId, running);
    }
    await running;
  }

  /** How many bytes of a message of an agent the history has. */
  storedBytes(sessionId: string, turnId: string, message: number, role: LiveRole): number {
    const item = this.rows.find(sessionId, `message:${turnId}:${role}:${message}`);
    return item?.type === 'message' ? item.start + item.bytes : 0;
  }

  /** Removes the items and the words of a deleted session, in steps: what a crash leaves, the next start removes. */
  async remove(sessionId: string): Promise<void> {
    const { database } = this.#options;
    const slice = new TimeSlice();
    for (;;) {
      // The words first: as long as there is an item, the next start looks for both.
      const removed = database.transaction(
        () =>
          (this.index?.remove(sessionId, REMOVED_AT_ONCE) ?? 0) ||
          this.rows.remove(sessionId, REMOVED_AT_ONCE),
      );
      if (removed === 0 || this.#isEnding()) return;
      await slice.yieldToEventLoop();
    }
  }

  #isEnding(): boolean {
    return this.#ending.signal.aborted;
  }

  #isOutdated(sessionId: string): boolean {
    return this.rows.head(sessionId).seq < this.#options.events.head(sessionId).seq;
  }

  async #catchUp(sessionId: string): Promise<void> {
    const { database, events } = this.#options;
    const slice = new TimeSlice(this.#ending.signal);
    while (this.#isOutdated(sessionId)) {
      const page = events.read(sessionId, { after: this.rows.head(sessionId).seq, limit: CATCH_UP_PAGE });
      if (page.length === 0) return;
      database.transaction(() => this.#project(sessionId, page));
      await slice.yieldToEventLoop();
    }
  }

  #onAppended({ sessionId, events }: Appended): void {
    const [first] = events;
    // A reader, or the next start, brings up to date what is left here.
    if (first === undefined || events.length > MAX_AT_ONCE) return;
    if (this.rows.head(sessionId).seq === first.seq - 1) this.#project(sessionId, events);
  }

  /** Items that began with a removed event go with it. */
  #onCut({ sessionId, seq, kept }: Cut): void {
    const head = this.rows.head(sessionId);
    this.index?.removeUpTo(sessionId, seq, kept);
    const removed = this.rows.removeUpTo(sessionId, seq, kept);
    // Nobody has to read what is gone.
    this.rows.setHead(sessionId, { seq: Math.max(head.seq, seq), items: head.items - removed });
  }

  #project(sessionId: string, events: readonly SessionEvent[]): void {
    let { seq, items } = this.rows.head(sessionId);
    for (const event of events) {
      for (const change of this.#changesOf(event)) {
        if (change.item.id === event.seq) items += 1;
        if (event.type === 'turn.edited') this.#removeWords(event.sessionId, change.item.id);
        this.rows.save(sessionId, change);
        this.#addWords(event, change);
      }
      ({ seq } = event);
    }
    this.rows.setHead(sessionId, { seq, items });
  }

  /** An event that is damaged is not shown. `session verify` finds it. */
  #changesOf(event: SessionEvent): readonly ItemChange[] {
    try {
      return projectEvent(event, (key) => this.rows.find(event.sessionId, key));
    } catch (error) {
      const why = HoldfastError.from(error).sentence;
      this.#options.log.warn('an event is not shown', { session: event.sessionId, seq: event.seq, why });
      return [];
    }
  }

  /** Those of a prompt that another one replaces. */
  #removeWords(sessionId: string, item: number): void {
    const [content] = this.rows.get(sessionId, item)?.contents ?? [];
    const text = content === undefined ? null : this.#read(sessionId, content);
    if (text !== null) this.index?.removeText(sessionId, item, text);
    for (const words of this.#wordsOfAttachments(sessionId, this.rows.get(sessionId, item)))
      this.index?.removeText(sessionId, item, words);
  }

  #addWords(event: SessionEvent, { item }: ItemChange): void {
    const { index } = this;
    const entry = index === null ? null : parseEvent(event);
    if (index === null || entry === null) return;
    // Titles change with a call's state, and are found once.
    if (item.type === 'tool' && item.id === event.seq && item.title !== '')
      index.add(event.sessionId, item.id, item.title);
    const content = contentToIndex(entry);
    const text = content === null ? null : this.#read(event.sessionId, content);
    if (text !== null) index.add(event.sessionId, item.id, text);
    if (entry.type !== 'turn.queued' && entry.type !== 'turn.edited') return;
    for (const words of this.#wordsOfAttachments(event.sessionId, item))
      index.add(event.sessionId, item.id, words);
  }

  /** The names of what a prompt brings along, and its texts. */
  #wordsOfAttachments(sessionId: string, item: ProjectedItem | undefined): string[] {
    const attachments = item?.type === 'prompt' ? (item.attachments ?? []) : [];
    return attachments.flatMap((one) => {
      if (one.kind === 'link') return [one.path];
      const text = one.kind === 'file' && isText(one.content) ? this.#read(sessionId, one.content) : null;
      return text === null ? [one.name] : [one.name, text];
    });
  }

  #read(sessionId: string, content: Content): string | null {
    if (content.bytes === 0) return null;
    try {
      const { part } = this.#options.contents.read(sessionId, content.sha256, 0, INDEXED_BYTES);
      return part.includes(0) ? null : part.toString('utf8');
    } catch {
      // Removed on purpose, or lost: there is nothing to find.
      return null;
    }
  }
}

/** The content whose words can be found at an event; null for none. */
function contentToIndex(entry: EventEntry): Content | null {
  const content = contentOf(entry);
  if (content === null) return null;
  switch (entry.type) {
    case 'turn.queued':
    case 'turn.edited':
    case 'turn.ended':
    case 'memory.changed':
      return isText(content) ? content : null;
    case 'agent.message':
      return content;
    case 'turn.output':
      return entry.data.stream !== 'result' && entry.data.offset < INDEXED_STREAM_BYTES ? content : null;
    case 'agent.tool':
      // Before its end the same call comes again and again.
      return ['completed', 'failed', 'cancelled'].includes(entry.data.status) ? content : null;
    default:
      return null;
  }
}
