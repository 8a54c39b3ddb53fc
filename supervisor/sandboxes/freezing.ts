import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Engine, PauseGuard } from '../engine/port.ts';
import { failpoint } from '../base/failpoints.ts';
import type { ObservationCache } from './observation-cache.ts';
import type { Freezes } from '../store/freezes.ts';

export interface FreezingOptions {
  readonly engine: Engine;
  readonly observations: Pick<ObservationCache, 'invalidate'>;
  readonly freezes: Freezes;
  readonly log: Log;
}

/**
 * Freezes an agent while its workspace is scanned. The intent is on disk before the engine is called, so that the next
 * supervisor thaws the agent after a crash; a guard process thaws it if no supervisor starts. Callers hold the
 * session's mutex, so nobody else observes the paused agent.
 */
export class Freezing {
  readonly #options: FreezingOptions;
  /** Sessions whose freeze has begun and not ended. */
  readonly #frozen: Set<string>;
  readonly #guards = new Map<string, PauseGuard>();

  constructor(options: FreezingOptions) {
    this.#options = options;
    this.#frozen = new Set(options.freezes.list());
  }

  /**
   * `isFrozen`: no process of the agent runs, whoever paused it. `frozenMs`: how long this call kept the agent frozen.
   */
  async runFrozen<T>(
    sessionId: string,
    act: (isFrozen: boolean) => Promise<T>,
  ): Promise<{ readonly result: T; readonly frozenMs: number }> {
    const { engine, freezes } = this.#options;
    const { agent } = await engine.observeSession(sessionId);
    if (agent?.state !== 'running') return { result: await act(agent?.state === 'paused'), frozenMs: 0 };
    const { pause } = engine.capabilities();
    if (pause !== 'freezer' && pause !== 'signal') return { result: await act(false), frozenMs: 0 };
    freezes.add(sessionId);
    this.#frozen.add(sessionId);
    await failpoint('freeze.after-intent');
    this.#guards.set(sessionId, engine.guardPause(agent));
    const begun = performance.now();
    try {
      await engine.pause(sessionId);
      await failpoint('freeze.after-pause');
      const result = await act(true);
      await failpoint('freeze.before-thaw');
      return { result, frozenMs: await this.#end(sessionId, begun) };
    } catch (error) {
      await this.#end(sessionId, begun);
      throw error;
    }
  }

  /** Whether a freeze of the session has begun and not ended. */
  isFrozen(sessionId: string): boolean {
    return this.#frozen.has(sessionId);
  }

  /**
   * Thaws an agent that a crash left frozen. The caller holds the session's mutex and has not yet read the agent's
   * state.
   */
  async thawIfLeftFrozen(sessionId: string): Promise<void> {
    if (this.#frozen.has(sessionId)) await this.#thaw(sessionId);
  }

  async #end(sessionId: string, begun: number): Promise<number> {
    try {
      await this.#thaw(sessionId);
    } catch (error) {
      // The intent and the guard stay: the next use of the session tries again.
      this.#options.log.warn('an agent stays frozen', {
        session: sessionId,
        why: HoldfastError.from(error).sentence,
      });
    }
    return performance.now() - begun;
  }

  async #thaw(sessionId: string): Promise<void> {
    const { engine, observations, freezes } = this.#options;
    observations.invalidate(sessionId);
    const { agent } = await engine.observeSession(sessionId);
    if (agent?.state === 'paused') await engine.unpause(sessionId);
    observations.invalidate(sessionId);
    this.#guards.get(sessionId)?.release();
    this.#guards.delete(sessionId);
    freezes.remove(sessionId);
    this.#frozen.delete(sessionId);
  }
}
