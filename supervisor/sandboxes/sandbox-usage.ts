import { keptInHome } from '../../protocol/agent-home.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Engine } from '../engine/port.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { SidecarConnections } from './sidecar-connections.ts';

export interface SandboxUsageOptions {
  readonly engine: Pick<Engine, 'observeSession'>;
  readonly records: Pick<SessionRecords, 'get'>;
  readonly profiles: Pick<Profiles, 'get'>;
  readonly sidecars: Pick<SidecarConnections, 'getOpen' | 'acquireLease'>;
  readonly sessionMutex: KeyedMutex;
  readonly lifecycle: Pick<Lifecycle, 'ensureSidecarLocked'>;
}

interface Measured {
  readonly bytes: number;
}

/**
 * Measures what an agent can fill beside its workspace. `isAwaited`: somebody waits for the result, so a sidecar is
 * started for it; otherwise the result is null where none is connected.
 */
export class SandboxUsage {
  readonly #options: SandboxUsageOptions;

  constructor(options: SandboxUsageOptions) {
    this.#options = options;
  }

  /**
   * The size of HOME. Where somebody waits and no sandbox runs, what the next one will not take over is removed first: it
   * must not count, and nothing uses it.
   */
  async measureHome(sessionId: string, isAwaited: boolean): Promise<Measured | null> {
    return await this.#measure(
      sessionId,
      isAwaited,
      async (client) => {
        const { engine, records, profiles } = this.#options;
        const { agent } = await engine.observeSession(sessionId);
        const profile = profiles.get(records.get(sessionId).profile);
        if (agent === null && profile !== null) await client.prepareHome(keptInHome(profile.config.agent));
      },
      (client) => client.homeUsage(),
    );
  }

  /** The size of the run directory, which goes with its sandbox. */
  async measureRunDirectory(sessionId: string, isAwaited: boolean): Promise<Measured | null> {
    if (isAwaited) {
      const { sidecar, agent } = await this.#options.engine.observeSession(sessionId);
      if (sidecar === null && agent === null) return { bytes: 0 };
    }
    return await this.#measure(
      sessionId,
      isAwaited,
      () => Promise.resolve(),
      (client) => client.runUsage(),
    );
  }

  /** `prepare` runs with the session's mutex held, so that no sandbox starts meanwhile. */
  async #measure(
    sessionId: string,
    isAwaited: boolean,
    prepare: (client: SidecarClient) => Promise<void>,
    measure: (client: SidecarClient) => Promise<Measured>,
  ): Promise<Measured | null> {
    const { records, sidecars, sessionMutex, lifecycle } = this.#options;
    const release = sidecars.acquireLease(sessionId);
    try {
      const open = await sidecars.getOpen(sessionId);
      if (!isAwaited) return open === null ? null : await measure(open);
      const client = await sessionMutex.run(sessionId, async () => {
        const connected = await lifecycle.ensureSidecarLocked(records.get(sessionId));
        await prepare(connected);
        return connected;
      });
      return await measure(client);
    } finally {
      release();
    }
  }
}
