import type { DirectoryWatcher } from './directory-watcher.ts';

/** Resolves at the next change or after `ms`. Rejects when the signal aborts. */
export function nextChange(changes: DirectoryWatcher, ms: number, signal: AbortSignal): Promise<void> {
  return wait(ms, signal, (wake) => changes.listen(wake));
}

/** Those who wait for the next change of one thing. */
export class Waiters {
  readonly #waiting = new Set<() => void>();

  notify(): void {
    for (const wake of [...this.#waiting]) wake();
  }

  /** Resolves at the next change or after `ms`. Rejects when the signal aborts. */
  nextChange(ms: number, signal: AbortSignal): Promise<void> {
    return wait(ms, signal, (wake) => {
      this.#waiting.add(wake);
      return () => this.#waiting.delete(wake);
    });
  }
}

export function delay(ms: number, signal: AbortSignal): Promise<void> {
  return wait(ms, signal, () => () => undefined);
}

function wait(ms: number, signal: AbortSignal, listen: (wake: () => void) => () => unknown): Promise<void> {
  signal.throwIfAborted();
  return new Promise((resolve, reject) => {
    const finish = (): void => {
      clearTimeout(timer);
      stopListening();
      signal.removeEventListener('abort', onAbort);
    };
    const wake = (): void => {
      finish();
      resolve();
    };
    const onAbort = (): void => {
      finish();
      reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
    };
    const timer = setTimeout(wake, Math.max(0, ms));
    const stopListening = listen(wake);
    signal.addEventListener('abort', onAbort, { once: true });
  });
}
