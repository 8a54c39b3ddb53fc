import type { Engine, ObservedSandbox } from '../engine/port.ts';

/**
 * What the engine showed last, for as long as it has told of no change: asking it costs several milliseconds, which a turn
 * in a warm worker would feel. Only whole, running sandboxes are remembered. It can be behind by the moment that an event
 * takes to arrive; whoever relies on it must notice a container that died in that moment (a turn does: nobody takes it).
 */
export class Observations {
  readonly #engine: Engine;
  readonly #known = new Map<string, ObservedSandbox>();
  readonly #ends: readonly (() => void)[];
  /** Counts what made knowledge void, so that an answer that was under way meanwhile is not kept. */
  #changes = 0;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.#ends = [
      engine.watch(({ sessionId }) => this.forget(sessionId)),
      engine.onStatus(({ reachable }) => {
        if (!reachable) this.forget(null);
      }),
    ];
  }

  async look(sessionId: string): Promise<ObservedSandbox> {
    const known = this.#known.get(sessionId);
    if (known !== undefined) return known;
    const before = this.#changes;
    const seen = await this.#engine.observeSession(sessionId);
    const whole = seen.agent?.state === 'running' && seen.sidecar?.state === 'running';
    if (whole && before === this.#changes && this.#engine.status().reachable)
      this.#known.set(sessionId, seen);
    return seen;
  }

  /** Of one session, or of all (null). */
  forget(sessionId: string | null): void {
    this.#changes += 1;
    if (sessionId === null) this.#known.clear();
    else this.#known.delete(sessionId);
  }

  close(): void {
    for (const end of this.#ends) end();
    this.forget(null);
  }
}
