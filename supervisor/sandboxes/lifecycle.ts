import type { Profile } from '../../protocol/profile.ts';
import { type ErrorCode, HoldfastError } from '../../protocol/errors.ts';
import { Hook } from '../base/hook.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Engine } from '../engine/port.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Seeding } from '../workspace/seeding.ts';
import type { Limit } from '../../sidecar/wire.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import { statusWithoutSandbox } from './idle-plan.ts';
import { describeAgentExit, limitsMetAtExit } from './repair-plan.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { ActiveWork } from './active-work.ts';
import type { Dispatches, ReadySandbox } from './dispatches.ts';
import { DispatchSignals } from './dispatch-signals.ts';
import type { ObservationCache } from './observation-cache.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { SidecarConnections } from './sidecar-connections.ts';
import { STOP_GRACE_MS, sandboxSpec, sidecarOnlySpec, workspaceSpec } from './sandbox-spec.ts';

/** The errors of a step that ran on a stale observation. */
const STALE: ReadonlySet<ErrorCode> = new Set(['sandbox_lost', 'engine_error', 'invalid_state', 'conflict']);

export interface AgentExit {
  readonly why: string;
  readonly limits: readonly Limit[];
}

export interface LifecycleOptions {
  readonly engine: Engine;
  readonly records: SessionRecords;
  readonly profiles: Profiles;
  readonly sidecars: SidecarConnections;
  readonly observations: ObservationCache;
  readonly sessionMutex: KeyedMutex;
  readonly activeWork: ActiveWork;
  /** Make a sandbox ready once the session's mutex is held. */
  readonly dispatches: Pick<Dispatches, 'carryOut' | 'environment'>;
  /** Copies the project into a new or emptied workspace. */
  readonly seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  /** Saves what the next sidecar can use. Never rejects. */
  readonly beforeSidecarEnds: (row: SessionRow) => Promise<void>;
}

/**
 * Starts, pauses and stops sandboxes. One operation at a time per session: each holds the session's mutex, and a method whose name
 * ends in `Locked` is for callers that hold it already. Nothing here needs an intent on disk: the generation is stored before a
 * sandbox is created, and the containers that exist afterwards show how far a killed supervisor got. The reconciler does the rest.
 */
export class Lifecycle {
  /**
   * What must happen to the workspace of a session (by id) before anything new does. Runs with the session's mutex held.
   */
  readonly beforeUse = new Hook<string>();
  readonly #signals = new DispatchSignals();
  readonly #engine: Engine;
  readonly #records: SessionRecords;
  readonly #profiles: Profiles;
  readonly #sidecars: SidecarConnections;
  readonly #observations: ObservationCache;
  readonly #sessionMutex: KeyedMutex;
  readonly #activeWork: ActiveWork;
  readonly #dispatches: Pick<Dispatches, 'carryOut' | 'environment'>;
  readonly #seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  readonly #beforeSidecarEnds: (row: SessionRow) => Promise<void>;

  constructor(options: LifecycleOptions) {
    this.#engine = options.engine;
    this.#records = options.records;
    this.#profiles = options.profiles;
    this.#sidecars = options.sidecars;
    this.#observations = options.observations;
    this.#sessionMutex = options.sessionMutex;
    this.#activeWork = options.activeWork;
    this.#dispatches = options.dispatches;
    this.#seeding = options.seeding;
    this.#beforeSidecarEnds = options.beforeSidecarEnds;
  }

  /** The cached observation may be stale: the next dispatch asks the engine. */
  markSuspect(sessionId: string): void {
    this.#observations.invalidate(sessionId);
  }

  /**
   * Makes a sandbox ready for a request. `forWork` is the id of the turn, exec or terminal that asks; it is not active yet. `signal`
   * ends `setup.resume`, which may take a minute, and nothing else. Errors: also its reason.
   */
  dispatch(sessionId: string, forWork?: string, signal?: AbortSignal): Promise<ReadySandbox> {
    return this.#signals.during(sessionId, signal, (ended) =>
      this.#dispatchInTurn(sessionId, forWork, ended),
    );
  }

  /** Ends `setup.resume` of the session for those that wait for it now, before something that ends the sandbox waits for the mutex. */
  interruptDispatches(sessionId: string, why: string): void {
    const next = 'repeat it, if it is still wanted';
    const error = new HoldfastError('interrupted', 'The sandbox was not made ready', { why, next });
    this.#signals.interrupt(sessionId, error);
  }

  /** The supervisor shuts down: as `interruptDispatches`, for all sessions and from now on. */
  closeDispatches(): void {
    this.#signals.close(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
  }

  #dispatchInTurn(
    sessionId: string,
    forWork: string | undefined,
    signal: AbortSignal,
  ): Promise<ReadySandbox> {
    const requestedAt = performance.now();
    return this.#sessionMutex.run(sessionId, async () => {
      await this.beforeUse.run(sessionId);
      const isCached = this.#observations.isCached(sessionId);
      try {
        return await this.#dispatches.carryOut(sessionId, forWork, requestedAt, signal);
      } catch (error) {
        // The cached observation may have been stale: observe again, and start what is missing.
        const isStale = error instanceof HoldfastError && STALE.has(error.code);
        if (!isStale || (!isCached && error.code !== 'sandbox_lost')) throw error;
        this.#observations.invalidate(sessionId);
        return await this.#dispatches.carryOut(sessionId, forWork, requestedAt, signal);
      }
    });
  }

  /**
   * Calls `use` with a connection to the sidecar, which is started alone if it does not run. Never touches the agent.
   * `isSuspect`: an open connection is no proof that the sidecar runs.
   */
  async withSidecar<T>(
    sessionId: string,
    use: (client: SidecarClient) => Promise<T>,
    isSuspect = false,
  ): Promise<T> {
    const release = this.#sidecars.acquireLease(sessionId);
    try {
      const client = await this.#sessionMutex.run(sessionId, async () => {
        await this.beforeUse.run(sessionId);
        const row = this.#records.get(sessionId);
        // An observation would take longer than most calls.
        const open = isSuspect ? null : await this.#sidecars.getOpen(sessionId);
        const connected = open ?? (await this.ensureSidecarLocked(row));
        await this.#seeding.finishPending(row);
        return connected;
      });
      return await use(client);
    } finally {
      release();
    }
  }

  /** A connection to the sidecar, and how the agent of the current generation ended; null while it runs. Starts no agent. */
  attach(sessionId: string): Promise<{ client: SidecarClient; agentEnd: AgentExit | null }> {
    return this.#sessionMutex.run(sessionId, async () => {
      const row = this.#records.get(sessionId);
      const { agent } = await this.#engine.observeSession(sessionId);
      const isAgentAlive =
        agent?.generation === row.generation && (agent.state === 'running' || agent.state === 'paused');
      const current = agent?.generation === row.generation ? agent : null;
      const end = isAgentAlive ? null : { why: describeAgentExit(current), limits: limitsMetAtExit(current) };
      return { client: await this.ensureSidecarLocked(row), agentEnd: end };
    });
  }

  row(sessionId: string): SessionRow {
    return this.#records.get(sessionId);
  }

  /** Environment of a process in the sandbox. The profile overrides the egress proxy's variables. */
  environment(sessionId: string, profile: Profile): Readonly<Record<string, string>> {
    return this.#dispatches.environment(sessionId, profile);
  }

  /** Unpauses a paused agent, so that a signal can reach its processes. */
  thaw(sessionId: string): Promise<void> {
    return this.#sessionMutex.run(sessionId, async () => {
      const row = this.#records.get(sessionId);
      if (row.status !== 'paused') return;
      await this.#engine.unpause(sessionId);
      this.#observations.invalidate(sessionId);
      this.#records.change(
        sessionId,
        { status: this.#activeWork.count(sessionId) > 0 ? 'active' : 'idle' },
        'thawed',
      );
    });
  }

  /** Ends the agent's container. The sidecar stays, so that the output can be read. */
  endAgent(sessionId: string): Promise<void> {
    return this.#sessionMutex.run(sessionId, async () => {
      await this.#engine.stopAgent(sessionId, 0);
      this.#observations.invalidate(sessionId);
    });
  }

  /** Ends the agent with all of its processes, and records that. The sidecar stays. */
  async endAgentLocked(row: SessionRow, why: string): Promise<SessionRow> {
    const { agent } = await this.#engine.observeSession(row.id);
    if (agent === null) return row;
    await this.#engine.stopAgent(row.id, STOP_GRACE_MS);
    this.#observations.invalidate(row.id);
    return this.#records.change(
      row.id,
      { status: statusWithoutSandbox(row), codeVersion: null, image: null },
      why,
      [{ type: 'sandbox.removed', data: { generation: row.generation, why } }],
    );
  }

  /** Ends the agent and makes sure that the sidecar runs. */
  async ensureSidecarAloneLocked(row: SessionRow, why: string): Promise<SessionRow> {
    // Agents start only here, with this mutex held: a cached observation without an agent is not stale.
    const { agent } = await this.#observations.get(row.id);
    if (agent === null && (await this.#sidecars.getOpen(row.id)) !== null) return row;
    const ended = await this.endAgentLocked(row, why);
    await this.ensureSidecarLocked(ended);
    return ended;
  }

  /** Pauses the agent; its memory stays. A turn in it goes on when the session is resumed. */
  pause(sessionId: string): Promise<SessionRow> {
    return this.#sessionMutex.run(sessionId, () => this.#pause(sessionId, 'paused'));
  }

  /** Pauses the agent if `isStillDue` returns true once the mutex is held. */
  async pauseIf(sessionId: string, isStillDue: () => boolean): Promise<void> {
    await this.#sessionMutex.run(sessionId, async () => {
      if (isStillDue()) await this.#pause(sessionId, 'idle for a while');
    });
  }

  async stopIf(sessionId: string, isStillDue: () => boolean): Promise<void> {
    await this.#sessionMutex.run(sessionId, async () => {
      if (isStillDue()) await this.stopLocked(sessionId, 'idle for long');
    });
  }

  async #pause(sessionId: string, why: string): Promise<SessionRow> {
    if (this.#engine.capabilities().pause === 'none') {
      throw new HoldfastError('not_supported', 'This engine cannot pause', {
        next: 'use `holdfast session stop`',
      });
    }
    const row = this.#records.get(sessionId);
    const { agent } = await this.#engine.observeSession(sessionId);
    if (agent?.state === 'paused')
      return this.#records.change(sessionId, { status: 'paused' }, 'paused already');
    if (agent?.state !== 'running') {
      throw new HoldfastError(
        'invalid_state',
        `Session ${row.name} is ${row.status}, there is nothing to pause`,
        {
          next: 'only a running session can be paused',
          details: { status: row.status },
        },
      );
    }
    await failpoint('pause.after-intent');
    await this.#engine.pause(sessionId);
    this.#observations.invalidate(sessionId);
    await failpoint('pause.after-engine');
    return this.#records.change(sessionId, { status: 'paused' }, why);
  }

  /** Ends both containers. The caller has drained the session. */
  stop(sessionId: string, why: string): Promise<SessionRow> {
    this.interruptDispatches(sessionId, `its session was ${why}`);
    return this.#sessionMutex.run(sessionId, () => this.stopLocked(sessionId, why));
  }

  async stopLocked(sessionId: string, why: string): Promise<SessionRow> {
    const row = this.#records.get(sessionId);
    await failpoint('stop.after-intent');
    await this.#engine.stopAgent(sessionId, STOP_GRACE_MS);
    this.#observations.invalidate(sessionId);
    await failpoint('stop.after-agent');
    if (!row.persistent && row.generation > 0) {
      // The files of an ephemeral session are removed with its container.
      const client = await this.ensureSidecarLocked(row);
      const profile = this.#profiles.get(row.profile);
      if (profile !== null) this.#seeding.recordIntent(row.id, profile.config);
      await client.clearWorkspace();
      await client.clearHome();
    }
    await this.#beforeSidecarEnds(row);
    await this.#sidecars.disconnect(sessionId);
    await this.#engine.removeSandbox(sessionId, STOP_GRACE_MS);
    await failpoint('stop.after-removed');
    return this.#records.change(
      sessionId,
      { status: statusWithoutSandbox(row), codeVersion: null, image: null },
      why,
      [{ type: 'sandbox.removed', data: { generation: row.generation, why } }],
    );
  }

  /** A connection to the sidecar, which is started alone if it does not run. */
  async ensureSidecarLocked(row: SessionRow): Promise<SidecarClient> {
    const observed = await this.#engine.observeSession(row.id);
    if (observed.sidecar?.state !== 'running') {
      await this.#sidecars.disconnect(row.id);
      await this.#engine.createWorkspace(workspaceSpec(row));
      const profile = this.#profiles.get(row.profile);
      await this.#engine.startSidecar(
        profile === null
          ? sidecarOnlySpec(row)
          : sandboxSpec(row, profile.config, profile.image, profile.version),
      );
    }
    return this.#sidecars.get(row.id);
  }
}
