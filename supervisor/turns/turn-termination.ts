import type { Log } from '../base/log.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { TerminationReason } from './turn-outcomes.ts';

/** TERM, and this long later KILL. */
const KILL_GRACE_MS = 5000;
/** When killing processes has not ended the turn after this, only ending the container will. */
const KILL_PATIENCE_MS = 10_000;
/** Saying it again does no harm: the runner may have been busy, or the sidecar replaced. */
const KILL_AGAIN_MS = 1000;

export interface TurnTerminationOptions {
  readonly turnId: string;
  readonly sessionId: string;
  readonly lifecycle: Pick<Lifecycle, 'row' | 'thaw' | 'endAgent'>;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
  /** Called once, when it is decided that the turn is to end. */
  readonly onRequested: () => void;
}

/** Whether and why a turn is to end before it does so by itself, and how it is made to. */
export class TurnTermination {
  readonly #options: TurnTerminationOptions;
  #why: TerminationReason | null = null;
  /** Both in ms of the monotonic clock. */
  #since: number | null = null;
  #killAgainAt = 0;
  #lookedAt: number;
  /** How long the agent was paused while we looked. */
  #frozenMs = 0;

  constructor(options: TurnTerminationOptions, already: TerminationReason | null) {
    this.#options = options;
    this.#why = already;
    this.#lookedAt = options.now();
  }

  get reason(): TerminationReason | null {
    return this.#why;
  }

  /** The first reason stays. */
  request(why: TerminationReason): void {
    if (this.#why !== null) return;
    this.#why = why;
    this.#options.onRequested();
  }

  /** `deadline` in ms since 1970. A paused agent's clock stands still: the time it was frozen does not count. */
  checkDeadline(deadline: number): void {
    const now = this.#options.now();
    if (this.#options.lifecycle.row(this.#options.sessionId).status === 'paused') {
      this.#frozenMs += Math.max(0, now - this.#lookedAt);
    }
    this.#lookedAt = now;
    if (now >= deadline + this.#frozenMs) this.request('timeout');
  }

  /** To be called again and again until the turn has ended. Gives a reason once the agent's whole container was ended. */
  async kill(client: SidecarClient): Promise<string | null> {
    const { turnId, sessionId, lifecycle, log } = this.#options;
    const now = performance.now();
    this.#since ??= now;
    const patience = Math.round(now - this.#since);
    if (patience < KILL_PATIENCE_MS) {
      if (now < this.#killAgainAt) return null;
      this.#killAgainAt = now + KILL_AGAIN_MS;
      await lifecycle.thaw(sessionId);
      await client.killTurn(turnId, Math.max(0, KILL_GRACE_MS - patience));
      return null;
    }
    log.warn('turn did not end when killed; its container is ended', { turn: turnId });
    await lifecycle.endAgent(sessionId);
    return 'it did not end when told to, so its container was ended';
  }
}
