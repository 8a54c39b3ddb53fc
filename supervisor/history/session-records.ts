import type { SessionStatus } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { EventEntry } from '../../protocol/events.ts';
import type { EventLog } from './event-log.ts';
import type { Database } from '../store/database.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';

/** Rows of sessions and the events about their changes, written in one transaction. */
export class SessionRecords {
  readonly #database: Database;
  readonly #sessions: Sessions;
  readonly #events: EventLog;
  readonly #now: () => number;

  constructor(database: Database, sessions: Sessions, events: EventLog, now: () => number) {
    this.#database = database;
    this.#sessions = sessions;
    this.#events = events;
    this.#now = now;
  }

  /** Errors: `not_found`, also for a deleted session. */
  get(sessionId: string): SessionRow {
    const row = this.#sessions.get(sessionId);
    if (row === null) {
      throw new HoldfastError('not_found', `There is no session ${sessionId}`, {
        next: 'see `holdfast session list`',
      });
    }
    if (row.status === 'deleted') {
      throw new HoldfastError('not_found', `There is no session ${sessionId}`, {
        why: 'it was deleted',
        next: `see \`holdfast session list\`; \`holdfast snapshot list ${sessionId}\` shows what is left of its files, and \`holdfast snapshot fork\` makes a session of it`,
      });
    }
    return row;
  }

  peek(sessionId: string): SessionRow | null {
    return this.#sessions.get(sessionId);
  }

  /** Changes the row and appends `events`, and a `session.status` event if the status changes. */
  change(sessionId: string, patch: Partial<SessionRow>, why: string, events: EventEntry[] = []): SessionRow {
    return this.#database.transaction(() => {
      const before = this.#sessions.get(sessionId);
      if (before === null) throw new HoldfastError('not_found', `There is no session ${sessionId}`);
      const to: SessionStatus = patch.status ?? before.status;
      const isNewStatus = to !== before.status;
      const row = this.#sessions.update(
        sessionId,
        isNewStatus ? { ...patch, statusSince: this.#now() } : patch,
      );
      const entries: EventEntry[] = isNewStatus
        ? [...events, { type: 'session.status', data: { from: before.status, to, why } }]
        : events;
      if (entries.length > 0) this.#events.append(sessionId, entries);
      return row;
    });
  }
}
