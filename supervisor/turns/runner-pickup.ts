import { HoldfastError } from '../../protocol/errors.ts';
import type { TurnProgress } from '../../sidecar/wire.ts';

/** A runner takes a turn within milliseconds; this is for machines that are very busy. */
const TAKE_MS = 30_000;
/** How many sandboxes are tried for one turn. */
const SANDBOXES = 3;

/** Whether a turn that was handed to a sandbox begins there. */
export class RunnerPickup {
  readonly #takeMs: number;
  /** ms of the monotonic clock; null while it is not waited for. */
  #since: number | null = null;
  #failures = 0;

  constructor(takeMs = TAKE_MS) {
    this.#takeMs = takeMs;
  }

  /**
   * True once the runner has left the turn lying for too long: it is stopped, or something in the sandbox keeps requests from it.
   * The time in which the agent is paused does not count.
   */
  isOverdue(state: TurnProgress['state'], isPaused: boolean): boolean {
    const now = performance.now();
    if (state !== 'accepted' || isPaused) this.#since = null;
    else this.#since ??= now;
    return this.#since !== null && now - this.#since >= this.#takeMs;
  }

  /** The sandbox did not take the turn. Fails with `sandbox_failed` when there should be no further one. */
  recordFailure(why: string): void {
    this.#since = null;
    this.#failures += 1;
    if (this.#failures < SANDBOXES) return;
    throw new HoldfastError('sandbox_failed', "The agent's container does not take requests", {
      why: `${why}; ${String(SANDBOXES)} sandboxes were tried`,
      next: 'check `limits` in holdfast.yaml (a container needs some memory and processes) and `holdfast doctor`',
    });
  }
}
