import { setImmediate } from 'node:timers/promises';

/** How long one stretch of work may keep everything else waiting. */
const SLICE_MS = 10;

/** Breaks long synchronous work into stretches, between which other requests are served. */
export class TimeSlice {
  readonly #signal: AbortSignal | undefined;
  #since = performance.now();

  /** Aborting ends the work at the next break with the signal's reason. */
  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  /** True when it is time for `rest`. */
  get isUsedUp(): boolean {
    return performance.now() - this.#since > SLICE_MS;
  }

  async yieldToEventLoop(): Promise<void> {
    this.#signal?.throwIfAborted();
    await setImmediate();
    this.#since = performance.now();
  }
}
