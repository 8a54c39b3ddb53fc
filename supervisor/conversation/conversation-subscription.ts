import type { ConversationItem } from '../../protocol/conversation.ts';
import type { EventLog } from '../history/event-log.ts';
import { type ConversationLive, type LiveText, whole } from './conversation-live.ts';
import type { ConversationReader } from './conversation-reader.ts';

/** Characters of one chunk. */
const CHUNK = 64 * 1024;

/** Sends to one reader. Each resolves when the reader has taken it. */
export interface ConversationSink {
  changed(items: ConversationItem[], seq: number): Promise<void>;
  chunk(text: LiveText): Promise<void>;
}

export interface ConversationSubscriptionOptions {
  readonly events: Pick<EventLog, 'subscribe'>;
  readonly reader: Pick<ConversationReader, 'changedAfter'>;
  readonly live: Pick<ConversationLive, 'subscribe' | 'texts'>;
  readonly sessionId: string;
  /** The last event that the reader knows. */
  readonly after: number;
  readonly sink: ConversationSink;
}

/**
 * Sends what changes in one conversation to one reader, at the reader's pace: what changed several times meanwhile is sent
 * once, and live text in larger pieces. It keeps no more than a page, and the agent never waits for it.
 */
export class ConversationSubscription {
  readonly #options: ConversationSubscriptionOptions;
  readonly #unlisten: readonly (() => void)[];
  readonly #ending = new AbortController();
  /** For each live message, up to which byte it was sent. */
  #sent = new Map<string, number>();
  #seq: number;
  #isDue = true;
  #wake: (() => void) | null = null;

  constructor(options: ConversationSubscriptionOptions) {
    const { events, live, sessionId } = options;
    this.#options = options;
    this.#seq = options.after;
    const onChange = (): void => {
      this.#isDue = true;
      this.#wake?.();
    };
    this.#unlisten = [events.subscribe(sessionId, onChange), live.subscribe(sessionId, onChange)];
  }

  /** Runs until `stop`, or until the reader is gone: then it rejects as the sink does. */
  async run(): Promise<void> {
    try {
      while (!this.#isEnding()) {
        this.#isDue = false;
        await this.#sendItems();
        await this.#sendTexts();
        await this.#waitUntilDue();
      }
    } finally {
      this.stop();
    }
  }

  stop(): void {
    this.#ending.abort();
    for (const unlisten of this.#unlisten) unlisten();
    this.#wake?.();
  }

  async #sendItems(): Promise<void> {
    const { reader, sessionId, sink } = this.#options;
    while (!this.#isEnding()) {
      const { items, seq } = await reader.changedAfter(sessionId, this.#seq);
      if (items.length === 0) {
        this.#seq = seq;
        return;
      }
      if (this.#isEnding()) return;
      await sink.changed(items, seq);
      this.#seq = seq;
    }
  }

  async #sendTexts(): Promise<void> {
    const { live, sessionId, sink } = this.#options;
    const sent = new Map<string, number>();
    for (const text of live.texts(sessionId)) {
      const key = `${text.turnId}:${text.role}:${text.message}`;
      let rest = behind(text, this.#sent.get(key) ?? 0);
      while (rest.text !== '' && !this.#isEnding()) {
        const chunk = { ...rest, text: whole(rest.text.slice(0, CHUNK)) };
        await sink.chunk(chunk);
        rest = behind(rest, rest.offset + Buffer.byteLength(chunk.text));
      }
      sent.set(key, rest.offset);
    }
    this.#sent = sent;
  }

  async #waitUntilDue(): Promise<void> {
    if (this.#isDue || this.#isEnding()) return;
    await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#wake = null;
  }

  #isEnding(): boolean {
    return this.#ending.signal.aborted;
  }
}

/** The text from byte `from` of the message on. */
function behind(text: LiveText, from: number): LiveText {
  if (from <= text.offset) return text;
  const bytes = Buffer.from(text.text);
  const skipped = from - text.offset;
  return { ...text, offset: from, text: skipped >= bytes.length ? '' : bytes.toString('utf8', skipped) };
}
