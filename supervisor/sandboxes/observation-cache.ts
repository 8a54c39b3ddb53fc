import type { Engine, ObservedSandbox } from '../engine/port.ts';

/**
 * The containers of each session as last observed, until the engine reports a change. Asking the engine takes several
 * milliseconds, and every request to a session would pay for it. The cache is stale for as long as an event takes to arrive, so
 * callers retry: a step that fails observes again, and no runner picks up a turn that was sent to a dead container.
 */
export class ObservationCache {
  readonly #engine: Engine;
  readonly #cached = new Map<string, ObservedSandbox>();
  readonly #ends: readonly (() => void)[];
  /** Number of invalidations: an observation that was under way during one is not cached. */
  #invalidations = 0;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.#ends = [
      engine.watch(({ sessionId }) => this.invalidate(sessionId)),
      engine.onStatus(({ reachable }) => {
        if (!reachable) this.invalidate(null);
      }),
    ];
  }

  isCached(sessionId: string): boolean {
    return this.#cached.has(sessionId);
  }

  /** The cached observation, or a new one. */
  async get(sessionId: string): Promise<ObservedSandbox> {
    return this.#cached.get(sessionId) ?? (await this.refresh(sessionId));
  }

  /** Asks the engine and caches the answer. */
  async refresh(sessionId: string): Promise<ObservedSandbox> {
    const before = this.#invalidations;
    const observed = await this.#engine.observeSession(sessionId);
    if (before === this.#invalidations && this.#engine.status().reachable)
      this.#cached.set(sessionId, observed);
    return observed;
  }

  /** `null`: of every session. */
  invalidate(sessionId: string | null): void {
    this.#invalidations += 1;
    if (sessionId === null) this.#cached.clear();
    else this.#cached.delete(sessionId);
  }

  close(): void {
    for (const end of this.#ends) end();
    this.invalidate(null);
  }
}
