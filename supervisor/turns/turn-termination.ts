import type { Log } from '../base/log.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { TerminationReason } from './turn-outcomes.ts';

/** Time between TERM and KILL. */
const KILL_GRACE_MS = 5000;
/** A turn that has not ended after this is ended with its container. */
const KILL_TIMEOUT_MS = 10_000;
/** Signals are repeated: the runner may have been busy, or the sidecar was replaced. */
const REPEAT_KILL_MS = 1000;

export interface TurnTerminationOptions {
  readonly turnId: string;
  readonly sessionId: string;
  readonly lifecycle: Pick<Lifecycle, 'row' | 'thaw' | 'endAgent'>;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
  /** Called once, at the first request. */
  readonly onRequested: () => void;
}

/** Terminates a turn: because somebody cancelled it, or it exceeded its time or its output limit. */
export class TurnTermination {
  readonly #options: TurnTerminationOptions;
  #reason: TerminationReason | null = null;
  /** Both in ms of the monotonic clock. */
  #firstKillAt: number | null = null;
  #nextKillAt = 0;
  #checkedAt: number;
  /** How long the agent was paused, between calls of `checkDeadline`. */
  #pausedMs = 0;

  constructor(options: TurnTerminationOptions, requested: TerminationReason | null) {
    this.#options = options;
    this.#reason = requested;
    this.#checkedAt = options.now();
  }

  get reason(): TerminationReason | null {
    return this.#reason;
  }

  /** The first reason stays. */
  request(reason: TerminationReason): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.#options.onRequested();
  }

  /** `deadline` in ms since 1970. The time for which the agent was paused does not count. */
  checkDeadline(deadline: number): void {
    const now = this.#options.now();
    if (this.#options.lifecycle.row(this.#options.sessionId).status === 'paused') {
      this.#pausedMs += Math.max(0, now - this.#checkedAt);
    }
    this.#checkedAt = now;
    if (now >= deadline + this.#pausedMs) this.request('timeout');
  }

  /** Call it repeatedly until the turn has ended. Returns why the agent's container was ended, once it was. */
  async kill(client: SidecarClient): Promise<string | null> {
    const { turnId, sessionId, lifecycle, log } = this.#options;
    const now = performance.now();
    this.#firstKillAt ??= now;
    const elapsed = Math.round(now - this.#firstKillAt);
    if (elapsed < KILL_TIMEOUT_MS) {
      if (now < this.#nextKillAt) return null;
      this.#nextKillAt = now + REPEAT_KILL_MS;
      await lifecycle.thaw(sessionId);
      await client.killTurn(turnId, Math.max(0, KILL_GRACE_MS - elapsed));
      return null;
    }
    log.warn('a turn did not end when it was killed; its container is ended', { turn: turnId });
    await lifecycle.endAgent(sessionId);
    return 'it did not end when it was killed, so its container was ended';
  }
}
