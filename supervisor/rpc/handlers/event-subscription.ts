import type { SessionEvent } from '../../../protocol/entities.ts';
import type { EventLog } from '../../history/event-log.ts';

const PAGE = 500;

/** Sends the events of one session to one client, from a position in the log, at the client's pace. */
export class EventSubscription {
  readonly #events: EventLog;
  readonly #sessionId: string;
  readonly #send: (event: SessionEvent) => Promise<void>;
  readonly #unlisten: () => void;
  #after: number;
  #wake: (() => void) | null = null;
  readonly #ending = new AbortController();

  constructor(
    events: EventLog,
    sessionId: string,
    after: number,
    send: (event: SessionEvent) => Promise<void>,
  ) {
    this.#events = events;
    this.#sessionId = sessionId;
    this.#after = after;
    this.#send = send;
    this.#unlisten = events.subscribe(sessionId, () => {
      this.#wake?.();
    });
  }

  /** Runs until `stop`, or until the client disconnects. Memory holds one page, however slow the client is. */
  async run(): Promise<void> {
    try {
      while (!this.#isEnding()) {
        const page = this.#events.read(this.#sessionId, { after: this.#after, limit: PAGE });
        for (const event of page) {
          if (this.#isEnding()) return;
          await this.#send(event);
          this.#after = event.seq;
        }
        // Nothing is appended between this read and the wait: both run in one step of the event loop.
        if (page.length === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
        this.#wake = null;
      }
    } finally {
      this.stop();
    }
  }

  #isEnding(): boolean {
    return this.#ending.signal.aborted;
  }

  stop(): void {
    this.#ending.abort();
    this.#unlisten();
    this.#wake?.();
  }
}
