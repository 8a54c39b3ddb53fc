import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../daemon/logs.ts';
import type { SnapshotParts } from '../snapshots/parts.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import type { Removal } from './removal.ts';

export interface UnfinishedOptions {
  readonly removal: Removal;
  readonly snapshots: Pick<SnapshotParts, 'restores' | 'fills'>;
  readonly access: SidecarAccess;
  readonly log: Log;
}

/** What an earlier supervisor had begun to do with workspaces: deletions, cleans, restores and fills. */
export class Unfinished {
  readonly #options: UnfinishedOptions;

  constructor(options: UnfinishedOptions) {
    this.#options = options;
  }

  /** What cannot be finished now is tried again at the session's next use. */
  async finish(): Promise<void> {
    const { removal, snapshots, access, log } = this.#options;
    const { restores, fills } = snapshots;
    await removal.recover();
    for (const sessionId of restores.unfinished()) {
      if (restores.fills(sessionId) !== null) {
        fills.begin(sessionId);
        continue;
      }
      await access.ensure(sessionId).catch((error: unknown) => {
        const why = HoldfastError.from(error).sentence;
        log.warn('a restore stays unfinished', { session: sessionId, why });
      });
    }
  }
}
