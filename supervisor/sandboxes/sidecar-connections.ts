import type { Engine } from '../engine/port.ts';
import { SidecarClient } from '../workspace/sidecar-client.ts';

/** How long a sidecar that nobody uses stays when no agent runs beside it. */
const UNUSED_MS = 60_000;

/** One standing connection to the sidecar of each session that has one. */
export class SidecarConnections {
  readonly #engine: Engine;
  readonly #now: () => number;
  readonly #dropped: (sessionId: string) => void;
  readonly #clients = new Map<string, Promise<SidecarClient>>();
  readonly #used = new Map<string, number>();
  readonly #holds = new Map<string, number>();

  /** `dropped`: this sidecar is about to go, or is gone. */
  constructor(engine: Engine, now: () => number, dropped: (sessionId: string) => void) {
    this.#engine = engine;
    this.#now = now;
    this.#dropped = dropped;
  }

  /** The open connection, or a new one. Fails with `sandbox_lost` when no sidecar runs. */
  get(sessionId: string): Promise<SidecarClient> {
    this.#used.set(sessionId, this.#now());
    const open = this.#clients.get(sessionId);
    if (open !== undefined) return open;
    const opening = SidecarClient.connect(() => this.#engine.dial(sessionId), sessionId);
    this.#clients.set(sessionId, opening);
    const forget = (): void => {
      if (this.#clients.get(sessionId) === opening) this.#clients.delete(sessionId);
    };
    opening.then((client) => void client.closed.then(forget, forget), forget);
    return opening;
  }

  /**
   * The connection that is open: whoever is on it is alive, and its end is heard of before the engine tells of it. Null where there is none.
   */
  async getOpen(sessionId: string): Promise<SidecarClient | null> {
    const client = (await this.#clients.get(sessionId)?.catch(() => null)) ?? null;
    if (client !== null) this.#used.set(sessionId, this.#now());
    return client;
  }

  /** Keeps the sidecar from being put away until the returned function is called. */
  acquireLease(sessionId: string): () => void {
    this.#holds.set(sessionId, (this.#holds.get(sessionId) ?? 0) + 1);
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      this.#used.set(sessionId, this.#now());
      const left = (this.#holds.get(sessionId) ?? 1) - 1;
      if (left === 0) this.#holds.delete(sessionId);
      else this.#holds.set(sessionId, left);
    };
  }

  /** True when nobody has needed this session's sidecar for a while. */
  isUnused(sessionId: string): boolean {
    if (this.#holds.has(sessionId)) return false;
    return this.#now() - (this.#used.get(sessionId) ?? 0) >= UNUSED_MS;
  }

  /** Closes the connection; the sidecar itself is the engine's to remove. */
  async disconnect(sessionId: string): Promise<void> {
    this.#dropped(sessionId);
    const open = this.#clients.get(sessionId);
    this.#clients.delete(sessionId);
    this.#used.delete(sessionId);
    if (open === undefined) return;
    await open.then(
      (client) => client.close(),
      () => undefined,
    );
  }

  async close(): Promise<void> {
    await Promise.all([...this.#clients.keys()].map((sessionId) => this.disconnect(sessionId)));
  }
}
