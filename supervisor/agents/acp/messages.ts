import { type NewEvent, type LiveText, contentOfText } from './effects.ts';
import type { AgentTurn } from './state.ts';

type Role = LiveText['role'];

/** Stored at the latest when an open message has this many UTF-16 units: then it goes on in a further event. */
const PIECE_CHARACTERS = 64 * 1024;

/** The message that an agent is streaming: its text is collected, so that a few events hold what came in thousands of pieces. */
export class OpenMessage {
  readonly #turn: AgentTurn;
  #role: Role | null = null;
  #messageId: string | null = null;
  #parts: string[] = [];
  #length = 0;

  constructor(turn: AgentTurn) {
    this.#turn = turn;
  }

  get hasText(): boolean {
    return this.#length > 0;
  }

  /** Adds a piece of text. `messageId`: the agent's own id of the message, if it gives one. */
  append(role: Role, messageId: string | null, text: string): { events: NewEvent[]; live: LiveText | null } {
    if (text === '') return { events: [], live: null };
    const events: NewEvent[] = [];
    const isOther =
      role !== this.#role ||
      (messageId !== null && this.#messageId !== null && messageId !== this.#messageId);
    if (isOther) {
      events.push(...this.close());
      this.#role = role;
      this.#turn.messages += 1;
    }
    this.#messageId = messageId ?? this.#messageId;
    this.#parts.push(text);
    this.#length += text.length;
    const live = { turnId: this.#turn.id, message: this.#turn.messages, role, text };
    if (this.#length >= PIECE_CHARACTERS) events.push(...this.takeEvents());
    return { events, live };
  }

  /** What is not stored yet. The same message may go on. */
  takeEvents(): NewEvent[] {
    if (this.#role === null || this.#length === 0) return [];
    const { content, bytes } = contentOfText(this.#parts.join('').toWellFormed());
    this.#parts = [];
    this.#length = 0;
    const { id: turnId, messages: message } = this.#turn;
    return [{ type: 'agent.message', data: { turnId, message, role: this.#role, content }, bytes }];
  }

  /** The agent goes on to something else: its next text is another message. */
  close(): NewEvent[] {
    const events = this.takeEvents();
    this.#role = null;
    this.#messageId = null;
    return events;
  }
}
