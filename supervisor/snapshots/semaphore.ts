/** A counting semaphore. Waiters acquire it in the order in which they asked. */
export class Semaphore {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(permits: number) {
    this.#free = permits;
  }

  /** Resolves to the release function, to be called once. Rejects with the signal's reason when that aborts first. */
  async acquire(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(signal);
    return () => this.#release();
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const grant = (): void => resolve(undefined);
    const giveUp = (): void => {
      // A waiter that was granted a permit in the same tick keeps it and releases it as usual.
      if (this.#waiting.delete(grant)) reject(signal.reason);
    };
    this.#waiting.add(grant);
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      await promise;
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  #release(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.#free += 1;
    else {
      this.#waiting.delete(next);
      next();
    }
  }
}
