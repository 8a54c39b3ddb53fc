/** Lets callers wait for the next change of a key. */
export class ChangeNotifier {
  readonly #waiters = new Map<string, Set<() => void>>();

  /** Wakes every waiter of this key. */
  notify(key: string): void {
    const waiting = this.#waiters.get(key);
    if (waiting === undefined) return;
    this.#waiters.delete(key);
    for (const wake of waiting) wake();
  }

  /** Resolves at the next `notify`, after `timeoutMs`, or when the signal aborts, whichever is first. */
  wait(key: string, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted === true) return Promise.resolve();
    return new Promise((resolve) => {
      const waiting = this.#waiters.get(key) ?? new Set<() => void>();
      this.#waiters.set(key, waiting);
      const done = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        waiting.delete(done);
        if (waiting.size === 0 && this.#waiters.get(key) === waiting) this.#waiters.delete(key);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      waiting.add(done);
      signal?.addEventListener('abort', done, { once: true });
    });
  }
}
