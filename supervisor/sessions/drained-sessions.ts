import type { Sessions } from '../store/sessions.ts';
import type { StorageLimits } from '../workspace/storage-limits.ts';
import type { BackgroundWork } from '../base/background-work.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Removal } from './removal.ts';

export interface ThrowawaysOptions {
  readonly sessions: Sessions;
  readonly records: SessionRecords;
  readonly live: ActiveWork;
  readonly removal: Removal;
  readonly limits: StorageLimits;
  readonly background: BackgroundWork;
}

/** What happens to a session when nothing more is to be done in it: one that was made for a single turn goes, any other is measured. */
export class DrainedSessions {
  readonly #options: ThrowawaysOptions;

  constructor(options: ThrowawaysOptions) {
    this.#options = options;
  }

  /** A supervisor that was killed after the last turn of a throw-away did not come to put it away. */
  recover(): void {
    for (const row of this.#options.sessions.all()) if (row.throwaway) this.handleDrained(row.id);
  }

  /** The last of the session's turns, or one of its terminals, has ended. */
  handleDrained(sessionId: string): void {
    const { records, live, removal, limits, background } = this.#options;
    const row = records.peek(sessionId);
    if (row === null || row.status === 'deleted') return;
    if (!row.throwaway) limits.measureSoon(sessionId, true);
    else if (live.count(sessionId) === 0)
      background.add(removal.deleteSession(sessionId, 'its turn has ended'));
  }
}
