import type { Engine } from '../engine/port.ts';
import { SidecarClient } from '../workspace/sidecar-client.ts';

/** How long an unused sidecar stays when no agent runs beside it. */
const UNUSED_MS = 60_000;

/** One open connection per session to its sidecar. */
export class SidecarConnections {
  readonly #engine: Engine;
  readonly #now: () => number;
  readonly #onDisconnect: (sessionId: string) => void;
  readonly #clients = new Map<string, Promise<SidecarClient>>();
  readonly #used = new Map<string, number>();
  readonly #leases = new Map<string, number>();

  /** `onDisconnect`: the sidecar of this session is about to be removed, or is gone. */
  constructor(engine: Engine, now: () => number, onDisconnect: (sessionId: string) => void) {
    this.#engine = engine;
    this.#now = now;
    this.#onDisconnect = onDisconnect;
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

  /** The open connection, or null. It ends when the sidecar does, before the engine reports that. */
  async getOpen(sessionId: string): Promise<SidecarClient | null> {
    const client = (await this.#clients.get(sessionId)?.catch(() => null)) ?? null;
    if (client !== null) this.#used.set(sessionId, this.#now());
    return client;
  }

  /** Keeps the sidecar from being removed as unused until the returned function is called. */
  acquireLease(sessionId: string): () => void {
    this.#leases.set(sessionId, (this.#leases.get(sessionId) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#used.set(sessionId, this.#now());
      const left = (this.#leases.get(sessionId) ?? 1) - 1;
      if (left === 0) this.#leases.delete(sessionId);
      else this.#leases.set(sessionId, left);
    };
  }

  /** True when nobody has used this session's sidecar for a minute. */
  isUnused(sessionId: string): boolean {
    if (this.#leases.has(sessionId)) return false;
    return this.#now() - (this.#used.get(sessionId) ?? 0) >= UNUSED_MS;
  }

  /** Closes the connection. The engine removes the container. */
  async disconnect(sessionId: string): Promise<void> {
    this.#onDisconnect(sessionId);
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
