import type { Reserve } from '../store/reserve.ts';
import type { SessionParts } from './parts.ts';

/** All sessions while this supervisor has them: `takeOver` before the first request, `letGo` after the last. */
export class Custody {
  readonly #parts: SessionParts;
  readonly #reserve: Reserve;

  constructor(parts: SessionParts, reserve: Reserve) {
    this.#parts = parts;
    this.#reserve = reserve;
  }

  /** Finds out what is, goes on with what was begun. Unfinished removals go on in the background. */
  async takeOver(): Promise<void> {
    const { snapshots, queue, terminals, reconciler, background, unfinished, throwaways, idle, limits } =
      this.#parts;
    this.#reserve.ensure();
    await snapshots.service.start();
    snapshots.beforeTurns.recover();
    snapshots.upkeep.start();
    // Turns first: a session with a turn to go on with is live, and the first look must not take it for idle.
    queue.recover();
    terminals.recover();
    await reconciler.start();
    background.add(unfinished.finish());
    throwaways.recover();
    idle.start();
    limits.start();
  }

  /**
   * Ends what the next supervisor goes on with by itself and nobody has to wait for: workspaces that are being filled. Settles when
   * nothing is; gives the way to go on after all.
   */
  async pauseFills(): Promise<() => void> {
    return await this.#parts.snapshots.fills.pause();
  }

  /** Sandboxes, turns and terminals go on without us, execs end. */
  async letGo(): Promise<void> {
    const { idle, limits, execs, terminals, queue, reconciler, lanes, background, snapshots } = this.#parts;
    const { sidecars, observations } = this.#parts;
    await snapshots.fills.pause();
    await idle.stop();
    await limits.close();
    await execs.close();
    await terminals.leave();
    await queue.leave();
    await snapshots.beforeTurns.close();
    await reconciler.stop();
    await lanes.drained();
    await background.settled();
    await snapshots.keptScans.close();
    await snapshots.upkeep.close();
    await snapshots.comparisons.close();
    await snapshots.service.close();
    await sidecars.close();
    observations.close();
  }
}
