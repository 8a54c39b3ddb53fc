import type { HoldfastError } from '../../protocol/errors.ts';

/** One signal for each dispatch that runs or waits, so that what ends a session need not wait for its `setup.resume`. */
export class DispatchSignals {
  readonly #controllers = new Map<string, Set<AbortController>>();
  #closed: HoldfastError | null = null;

  /** Calls `act` with a signal that also aborts with `requested`, and at `interrupt` and `close`. */
  async during<T>(
    sessionId: string,
    requested: AbortSignal | undefined,
    act: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const controller = new AbortController();
    if (this.#closed !== null) controller.abort(this.#closed);
    const controllers = this.#controllers.get(sessionId) ?? new Set();
    this.#controllers.set(sessionId, controllers);
    controllers.add(controller);
    try {
      const { signal } = controller;
      return await act(requested === undefined ? signal : AbortSignal.any([requested, signal]));
    } finally {
      controllers.delete(controller);
      if (controllers.size === 0) this.#controllers.delete(sessionId);
    }
  }

  interrupt(sessionId: string, why: HoldfastError): void {
    for (const controller of this.#controllers.get(sessionId) ?? []) controller.abort(why);
  }

  /** Also the signals of later dispatches are aborted. */
  close(why: HoldfastError): void {
    this.#closed = why;
    for (const sessionId of this.#controllers.keys()) this.interrupt(sessionId, why);
  }
}
