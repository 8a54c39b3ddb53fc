import type { EventLog } from '../history/event-log.ts';
import { parseEvent } from '../../protocol/events.ts';

/** Text that waits to be stored, of one message. More is not shown before it is stored. */
const MAX_WAITING_CHARACTERS = 256 * 1024;
/** Messages of one session with text that waits. */
const MAX_MESSAGES = 64;

export type LiveRole = 'agent' | 'thought';

/** The end of a message that no event has yet. */
export interface LiveText {
  readonly turnId: string;
  /** As in `agent.message`. */
  readonly message: number;
  readonly role: LiveRole;
  /** Bytes of the message that are stored. */
  readonly offset: number;
  readonly text: string;
}

interface Waiting {
  readonly turnId: string;
  readonly message: number;
  readonly role: LiveRole;
  offset: number;
  text: string;
  /** Bytes behind `text` that did not fit. Until they are stored, nothing can follow. */
  leftOut: number;
}

export interface ConversationLiveOptions {
  readonly events: Pick<EventLog, 'subscribe'>;
  /** How many bytes of a message the history has. */
  readonly storedBytes: (sessionId: string, turnId: string, message: number, role: LiveRole) => number;
}

/**
 * What agents are saying now, in memory only: whoever reads a conversation sees it before it is stored. An agent's driver
 * appends each chunk, and later appends the `agent.message` event with the same text to the history, which ends its stay
 * here. Nothing waits for a reader: it is notified that there is something new, and takes it at its own pace.
 */
export class ConversationLive {
  readonly #options: ConversationLiveOptions;
  readonly #sessions = new Map<string, Session>();

  constructor(options: ConversationLiveOptions) {
    this.#options = options;
  }

  /** Adds text to the end of a message. Call it before its event is stored. */
  append(sessionId: string, turnId: string, message: number, role: LiveRole, text: string): void {
    if (text === '') return;
    const { storedBytes } = this.#options;
    const offset = (): number => storedBytes(sessionId, turnId, message, role);
    this.#session(sessionId).append({ turnId, message, role, text }, offset);
  }

  /** The turn has ended: what it did not store is gone. */
  endTurn(sessionId: string, turnId: string): void {
    const session = this.#sessions.get(sessionId);
    session?.endTurn(turnId);
    this.#release(sessionId, session);
  }

  /** What is not stored, in the order in which the messages began. */
  texts(sessionId: string): readonly LiveText[] {
    return this.#sessions.get(sessionId)?.texts() ?? [];
  }

  /** Calls `listener` whenever there is new text, until the returned function is called. It must not throw. */
  subscribe(sessionId: string, listener: () => void): () => void {
    const session = this.#session(sessionId);
    const own = (): void => listener();
    session.listeners.add(own);
    return () => {
      session.listeners.delete(own);
      this.#release(sessionId, session);
    };
  }

  #session(sessionId: string): Session {
    const existing = this.#sessions.get(sessionId);
    if (existing !== undefined) return existing;
    const session = new Session();
    session.stop = this.#options.events.subscribe(sessionId, (event) => {
      // Events of other types are many, and are not parsed.
      const entry = event.type === 'agent.message' || event.type === 'turn.ended' ? parseEvent(event) : null;
      if (entry?.type === 'agent.message') {
        const { turnId, message, role, content } = entry.data;
        session.store(turnId, message, role, content?.bytes ?? 0);
        this.#release(sessionId, session);
      } else if (entry?.type === 'turn.ended') {
        this.endTurn(sessionId, entry.data.turnId);
      }
    });
    this.#sessions.set(sessionId, session);
    return session;
  }

  #release(sessionId: string, session: Session | undefined): void {
    if (!session?.isEmpty) return;
    session.stop();
    this.#sessions.delete(sessionId);
  }
}

class Session {
  readonly listeners = new Set<() => void>();
  stop: () => void = () => undefined;
  readonly #waiting = new Map<string, Waiting>();

  get isEmpty(): boolean {
    return this.listeners.size === 0 && this.#waiting.size === 0;
  }

  append(chunk: Omit<LiveText, 'offset'>, offset: () => number): void {
    const { turnId, message, role, text } = chunk;
    const key = keyOf(turnId, message, role);
    let waiting = this.#waiting.get(key);
    if (waiting === undefined) {
      if (this.#waiting.size >= MAX_MESSAGES) return;
      waiting = { turnId, message, role, offset: offset(), text: '', leftOut: 0 };
      this.#waiting.set(key, waiting);
    }
    // What is left out here comes with the event.
    if (waiting.leftOut > 0 || waiting.text.length + text.length > MAX_WAITING_CHARACTERS) {
      waiting.leftOut += Buffer.byteLength(text);
      return;
    }
    waiting.text += text;
    for (const listener of this.listeners) listener();
  }

  /** An event has `bytes` more of the message. */
  store(turnId: string, message: number, role: LiveRole, bytes: number): void {
    const key = keyOf(turnId, message, role);
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) return;
    const text = Buffer.from(waiting.text);
    waiting.offset += bytes;
    waiting.text = bytes >= text.length ? '' : text.toString('utf8', bytes);
    waiting.leftOut = Math.max(0, waiting.leftOut - Math.max(0, bytes - text.length));
    if (waiting.text === '' && waiting.leftOut === 0) this.#waiting.delete(key);
  }

  endTurn(turnId: string): void {
    for (const [key, waiting] of this.#waiting) if (waiting.turnId === turnId) this.#waiting.delete(key);
  }

  texts(): readonly LiveText[] {
    return [...this.#waiting.values()]
      .map(({ turnId, message, role, offset, text }) => ({
        turnId,
        message,
        role,
        offset,
        text: whole(text),
      }))
      .filter(({ text }) => text !== '');
  }
}

function keyOf(turnId: string, message: number, role: LiveRole): string {
  return `${turnId}:${role}:${message}`;
}

/** Without the first half of a surrogate pair at the end, which waits for the other. */
export function whole(text: string): string {
  return /[\uD800-\uDBFF]$/.test(text) ? text.slice(0, -1) : text;
}
