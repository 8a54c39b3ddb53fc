import { setTimeout } from 'node:timers/promises';
import type { SessionEvent } from '../../protocol/entities.ts';
import { parseEvent } from '../../protocol/events.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Sessions } from '../store/sessions.ts';
import type { ByItself, Manifests } from './manifests.ts';

/** Events that wait for their manifest, of all sessions. Of more, the oldest get none. */
const MAX_WAITING = 64;
/** A turn often begins just then, and does not share the processor with its manifest. */
const DELAY_MS = 200;

interface Due extends ByItself {
  readonly sessionId: string;
}

export interface AutomaticManifestsOptions {
  readonly events: Pick<EventLog, 'subscribeAll'>;
  readonly sessions: Pick<Sessions, 'get'>;
  readonly manifests: Pick<Manifests, 'keep'>;
  readonly log: Log;
}

/**
 * Makes a manifest whenever a snapshot was created or a sandbox was started: afterwards, one at a time, and of the history up to
 * that event. Whoever created the snapshot does not wait for it. A supervisor that is killed in between makes none for that event.
 */
export class AutomaticManifests {
  readonly #options: AutomaticManifestsOptions;
  readonly #waiting: Due[] = [];
  #running: Promise<void> | null = null;
  readonly #closing = new AbortController();

  constructor(options: AutomaticManifestsOptions) {
    this.#options = options;
    options.events.subscribeAll((event) => this.#handle(event));
  }

  /** Ends with the manifest that is being made. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
  }

  #handle(event: SessionEvent): void {
    if (this.#closing.signal.aborted) return;
    if (event.type !== 'snapshot.created' && event.type !== 'sandbox.started') return;
    const { sessionId, seq, hash } = event;
    const entry = parseEvent(event);
    const snapshotId = entry?.type === 'snapshot.created' ? entry.data.snapshotId : null;
    const reason = snapshotId === null ? 'resume' : 'snapshot';
    this.#waiting.push({ sessionId, reason, snapshotId, head: { seq, hash } });
    if (this.#waiting.length > MAX_WAITING) this.#waiting.shift();
    this.#running ??= this.#makeAll().finally(() => (this.#running = null));
  }

  async #makeAll(): Promise<void> {
    const { sessions, manifests, log } = this.#options;
    for (;;) {
      const { signal } = this.#closing;
      await setTimeout(DELAY_MS, undefined, { signal }).catch(() => undefined);
      const due = signal.aborted ? undefined : this.#waiting.shift();
      if (due === undefined) return;
      try {
        // Its row may be damaged, too.
        const session = sessions.get(due.sessionId);
        if (session !== null) await manifests.keep(session, due);
      } catch (error) {
        const { sentence: why } = HoldfastError.from(error);
        log.warn('a manifest could not be made', { session: due.sessionId, reason: due.reason, why });
      }
    }
  }
}
