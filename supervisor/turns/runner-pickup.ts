import { HoldfastError } from '../../protocol/errors.ts';
import type { TurnProgress } from '../../sidecar/wire.ts';

/** A runner picks up a turn within milliseconds; this is for machines under heavy load. */
const PICKUP_TIMEOUT_MS = 30_000;
/** Sandboxes that are tried for one turn. */
const SANDBOXES = 3;

/** Watches whether the runner of a sandbox picks up the turn that it was sent. */
export class RunnerPickup {
  readonly #timeoutMs: number;
  /** ms of the monotonic clock; null while nothing waits. */
  #waitingSince: number | null = null;
  #failures = 0;

  constructor(timeoutMs = PICKUP_TIMEOUT_MS) {
    this.#timeoutMs = timeoutMs;
  }

  /**
   * True when the runner has not picked up the turn in time: it is stopped, or something in the sandbox keeps requests from it.
   * The time for which the agent is paused does not count.
   */
  isOverdue(state: TurnProgress['state'], isPaused: boolean): boolean {
    const now = performance.now();
    if (state !== 'accepted' || isPaused) this.#waitingSince = null;
    else this.#waitingSince ??= now;
    return this.#waitingSince !== null && now - this.#waitingSince >= this.#timeoutMs;
  }

  /** The sandbox did not pick up the turn. Errors: `sandbox_failed` when no further sandbox should be tried. */
  recordFailure(why: string): void {
    this.#waitingSince = null;
    this.#failures += 1;
    if (this.#failures < SANDBOXES) return;
    throw new HoldfastError('sandbox_failed', "The agent's container does not take requests", {
      why: `${why}; ${String(SANDBOXES)} sandboxes were tried`,
      next: 'check `limits` in holdfast.yaml (a container needs some memory and processes) and `holdfast doctor`',
    });
  }
}
