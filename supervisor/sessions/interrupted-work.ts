import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { RestoreIntents } from '../snapshots/restore-intents.ts';
import type { SidecarAccess } from '../workspace/sidecar-access.ts';
import type { Removal } from './removal.ts';
import type { SessionGate } from './session-gate.ts';

export interface InterruptedWorkOptions {
  readonly removal: Removal;
  readonly restoreIntents: RestoreIntents;
  readonly hydration: Hydration;
  readonly gate: Pick<SessionGate, 'stateOf'>;
  readonly access: SidecarAccess;
  readonly log: Log;
}

/** Deletions, cleans, restores and hydrations that an earlier supervisor began. */
export class InterruptedWork {
  readonly #options: InterruptedWorkOptions;

  constructor(options: InterruptedWorkOptions) {
    this.#options = options;
  }

  /** Work that cannot be finished now is retried when the session is used next. */
  async finish(): Promise<void> {
    const { removal, restoreIntents, hydration, gate, access, log } = this.#options;
    await removal.recover();
    for (const sessionId of restoreIntents.sessionIds()) {
      // One that moves gets its files where it lives in the end.
      if (gate.stateOf(sessionId) !== null) continue;
      if (restoreIntents.pendingHydration(sessionId) !== null) {
        hydration.start(sessionId);
        continue;
      }
      await access.ensureRunning(sessionId).catch((error: unknown) => {
        const why = HoldfastError.from(error).sentence;
        log.warn('a restore could not be finished', { session: sessionId, why });
      });
    }
  }
}
