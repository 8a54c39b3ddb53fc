import { setImmediate } from 'node:timers/promises';

/** How long synchronous work may block the event loop. */
const SLICE_MS = 10;

/** Splits long synchronous work into slices, between which the event loop serves other requests. */
export class TimeSlice {
  readonly #signal: AbortSignal | undefined;
  #since = performance.now();

  /** Aborting the signal makes the next `yieldToEventLoop` reject with its reason. */
  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  /** Whether the work should call `yieldToEventLoop` now. */
  get isUsedUp(): boolean {
    return performance.now() - this.#since > SLICE_MS;
  }

  async yieldToEventLoop(): Promise<void> {
    this.#signal?.throwIfAborted();
    await setImmediate();
    this.#since = performance.now();
  }
}
