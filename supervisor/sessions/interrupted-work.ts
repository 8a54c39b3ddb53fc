import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { SnapshotServices } from '../snapshots/snapshot-services.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import type { Removal } from './removal.ts';

export interface UnfinishedOptions {
  readonly removal: Removal;
  readonly snapshots: Pick<SnapshotServices, 'restores' | 'hydration'>;
  readonly access: SidecarAccess;
  readonly log: Log;
}

/** What an earlier supervisor had begun to do with workspaces: deletions, cleans, restores and fills. */
export class InterruptedWork {
  readonly #options: UnfinishedOptions;

  constructor(options: UnfinishedOptions) {
    this.#options = options;
  }

  /** What cannot be finished now is tried again at the session's next use. */
  async finish(): Promise<void> {
    const { removal, snapshots, access, log } = this.#options;
    const { restores, hydration } = snapshots;
    await removal.recover();
    for (const sessionId of restores.sessionsWithPending()) {
      if (restores.pendingHydration(sessionId) !== null) {
        hydration.start(sessionId);
        continue;
      }
      await access.ensureRunning(sessionId).catch((error: unknown) => {
        const why = HoldfastError.from(error).sentence;
        log.warn('a restore stays unfinished', { session: sessionId, why });
      });
    }
  }
}
