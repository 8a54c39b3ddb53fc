import type { Engine, ObservedSandbox } from '../engine/port.ts';

/**
 * What the engine showed last of each session, for as long as it has told of no change: asking costs several milliseconds,
 * which every message to a session would feel. It can be behind by the moment that an event takes to arrive. Whoever acts on
 * it must bear that: a step that fails looks again, and a turn that was handed to a dead container is taken by nobody.
 */
export class ObservationCache {
  readonly #engine: Engine;
  readonly #known = new Map<string, ObservedSandbox>();
  readonly #ends: readonly (() => void)[];
  /** Counts what made knowledge void, so that an answer that was under way meanwhile is not kept. */
  #changes = 0;

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
    return this.#known.has(sessionId);
  }

  /** What is known, else what the engine says now. */
  async get(sessionId: string): Promise<ObservedSandbox> {
    return this.#known.get(sessionId) ?? (await this.refresh(sessionId));
  }

  /** What the engine says now; kept for the next look. */
  async refresh(sessionId: string): Promise<ObservedSandbox> {
    const before = this.#changes;
    const seen = await this.#engine.observeSession(sessionId);
    if (before === this.#changes && this.#engine.status().reachable) this.#known.set(sessionId, seen);
    return seen;
  }

  /** Of one session, or of all (null). */
  invalidate(sessionId: string | null): void {
    this.#changes += 1;
    if (sessionId === null) this.#known.clear();
    else this.#known.delete(sessionId);
  }

  close(): void {
    for (const end of this.#ends) end();
    this.invalidate(null);
  }
}
