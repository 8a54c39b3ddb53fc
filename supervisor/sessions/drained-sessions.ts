import type { Sessions } from '../store/sessions.ts';
import type { StorageLimitGroup } from '../workspace/storage-limit-group.ts';
import type { StorageLimits } from '../workspace/storage-limits.ts';
import type { BackgroundWork } from '../base/background-work.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Removal } from './removal.ts';

export interface DrainedSessionsOptions {
  readonly sessions: Sessions;
  readonly records: SessionRecords;
  readonly activeWork: ActiveWork;
  readonly removal: Removal;
  readonly limits: StorageLimits;
  readonly sandboxLimits: StorageLimitGroup;
  readonly background: BackgroundWork;
}

/** What happens when a session has no more work: a single-turn session is deleted, any other is measured. */
export class DrainedSessions {
  readonly #options: DrainedSessionsOptions;

  constructor(options: DrainedSessionsOptions) {
    this.#options = options;
  }

  /** Deletes single-turn sessions that an earlier supervisor left. */
  recover(): void {
    for (const row of this.#options.sessions.all()) if (row.throwaway) this.handleDrained(row.id);
  }

  /** The last turn of the session, or one of its terminals, has ended. */
  handleDrained(sessionId: string): void {
    const { records, activeWork, removal, limits, sandboxLimits, background } = this.#options;
    const row = records.peek(sessionId);
    if (row === null || row.status === 'deleted') return;
    if (!row.throwaway) {
      limits.measureSoon(sessionId, true);
      sandboxLimits.measureSoon(sessionId);
    } else if (activeWork.count(sessionId) === 0)
      background.add(removal.deleteSession(sessionId, 'its turn has ended'));
  }
}
