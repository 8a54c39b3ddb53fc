import type { SessionEvent } from '../../../protocol/entities.ts';
import type { EventLog } from '../../history/event-log.ts';

const PAGE = 500;

/** Sends one session's events to one client, from a place in the log on, at the pace at which the client takes them. */
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

  /** Runs until `end`, or until the client is gone. Memory holds one page, however far behind the client is. */
  async run(): Promise<void> {
    try {
      while (!this.#isEnding()) {
        const page = this.#events.read(this.#sessionId, { after: this.#after, limit: PAGE });
        for (const event of page) {
          if (this.#isEnding()) return;
          await this.#send(event);
          this.#after = event.seq;
        }
        // Nothing can be appended between this look and the wait: both are in one step of the event loop.
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
