import type { DiskReserve } from '../store/reserve.ts';
import type { SessionServices } from './session-services.ts';

/** All sessions while this supervisor has them: `takeOver` before the first request, `letGo` after the last. */
export class SessionRuntime {
  readonly #parts: SessionServices;
  readonly #reserve: DiskReserve;

  constructor(parts: SessionServices, reserve: DiskReserve) {
    this.#parts = parts;
    this.#reserve = reserve;
  }

  /** Finds out what is, goes on with what was begun. Unfinished removals go on in the background. */
  async start(): Promise<void> {
    const { snapshots, queue, terminals, reconciler, background, unfinished, throwaways, idle, limits } =
      this.#parts;
    this.#reserve.ensure();
    await snapshots.service.start();
    snapshots.turnSnapshots.recover();
    snapshots.maintenance.start();
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
  async pauseHydration(): Promise<() => void> {
    return await this.#parts.snapshots.hydration.suspendAll();
  }

  /** Sandboxes, turns and terminals go on without us, execs end. */
  async stop(): Promise<void> {
    const { idle, limits, execs, terminals, queue, reconciler, lanes, background, snapshots } = this.#parts;
    const { sidecars, observations } = this.#parts;
    await snapshots.hydration.suspendAll();
    await idle.stop();
    await limits.close();
    await execs.close();
    await terminals.detach();
    await queue.detach();
    await snapshots.turnSnapshots.close();
    await reconciler.stop();
    await lanes.drained();
    await background.settled();
    await snapshots.scanCaches.close();
    await snapshots.maintenance.close();
    await snapshots.comparisons.close();
    await snapshots.service.close();
    await sidecars.close();
    observations.close();
  }
}
