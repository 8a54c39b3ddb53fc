import type { DispatchResult } from '../../protocol/entities.ts';
import { type ErrorCode, HoldfastError } from '../../protocol/errors.ts';
import { keptInHome } from '../../protocol/agent-home.ts';
import type { Profile } from '../../protocol/profile.ts';
import { Hook } from '../base/hook.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Engine, ObservedSandbox, SandboxSpec } from '../engine/port.ts';
import type { Home } from '../store/home.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Egress } from '../egress/egress.ts';
import type { Seeding } from '../workspace/seeding.ts';
import type { Limit } from '../../sidecar/wire.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import { planDispatch, type Plan } from './dispatch-plan.ts';
import { statusWithoutSandbox } from './idle-plan.ts';
import { describeAgentExit, limitsMetAtExit } from './repair-plan.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { ActiveWork } from './active-work.ts';
import { DispatchSignals } from './dispatch-signals.ts';
import type { ObservationCache } from './observation-cache.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { SidecarConnections } from './sidecar-connections.ts';
import { configurationParts } from '../workspace/home-configuration.ts';
import type { ResumeScript } from './resume-script.ts';
import { sandboxSpec, sidecarOnlySpec, workspaceSpec } from './sandbox-spec.ts';

/** How long an agent container may take to end after TERM. */
export const STOP_GRACE_MS = 3000;

/** The errors of a step that ran on a stale observation. */
const STALE: ReadonlySet<ErrorCode> = new Set(['sandbox_lost', 'engine_error', 'invalid_state', 'conflict']);

export interface AgentExit {
  readonly why: string;
  readonly limits: readonly Limit[];
}

export interface ReadySandbox {
  readonly dispatched: DispatchResult;
  readonly client: SidecarClient;
  readonly row: SessionRow;
  readonly profile: ProfileRow;
  /** From the request to the ready sandbox, ms. */
  readonly dispatchMs: number;
}

export interface HomeTemplates {
  /** The caller holds the session's mutex; the sidecar runs, and no process of the agent. Does nothing without a setup that left something. */
  fillHome(row: SessionRow, profile: ProfileRow): Promise<void>;
}

export interface LifecycleOptions {
  readonly home: Pick<Home, 'deployedConfiguration'>;
  readonly engine: Engine;
  readonly records: SessionRecords;
  readonly profiles: Profiles;
  readonly sidecars: SidecarConnections;
  readonly observations: ObservationCache;
  readonly sessionMutex: KeyedMutex;
  readonly activeWork: ActiveWork;
  readonly now: () => number;
  /** Copies the project into a new or emptied workspace. */
  readonly seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  /** Puts what a setup left in HOME, but for what the profile keeps, into a HOME that has no more than that. */
  readonly homeTemplates: HomeTemplates;
  /** What a profile runs in new sandboxes of sessions that had one before. */
  readonly resumeScript: Pick<ResumeScript, 'run'>;
  /** Saves what the next sidecar can use. Never rejects. */
  readonly beforeSidecarEnds: (row: SessionRow) => Promise<void>;
  /** Network access of a running sandbox. */
  readonly egress: Pick<Egress, 'waitUntilReady' | 'environment'>;
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
  readonly #dispatches = new DispatchSignals();
  readonly #home: Pick<Home, 'deployedConfiguration'>;
  readonly #engine: Engine;
  readonly #records: SessionRecords;
  readonly #profiles: Profiles;
  readonly #sidecars: SidecarConnections;
  readonly #observations: ObservationCache;
  readonly #sessionMutex: KeyedMutex;
  readonly #activeWork: ActiveWork;
  readonly #now: () => number;
  readonly #seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  readonly #egress: Pick<Egress, 'waitUntilReady' | 'environment'>;
  readonly #homeTemplates: HomeTemplates;
  readonly #resumeScript: Pick<ResumeScript, 'run'>;
  readonly #beforeSidecarEnds: (row: SessionRow) => Promise<void>;

  constructor(options: LifecycleOptions) {
    this.#home = options.home;
    this.#engine = options.engine;
    this.#records = options.records;
    this.#profiles = options.profiles;
    this.#sidecars = options.sidecars;
    this.#observations = options.observations;
    this.#sessionMutex = options.sessionMutex;
    this.#activeWork = options.activeWork;
    this.#now = options.now;
    this.#seeding = options.seeding;
    this.#egress = options.egress;
    this.#homeTemplates = options.homeTemplates;
    this.#resumeScript = options.resumeScript;
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
    return this.#dispatches.during(sessionId, signal, (ended) =>
      this.#dispatchInTurn(sessionId, forWork, ended),
    );
  }

  /** Ends `setup.resume` of the session for those that wait for it now, before something that ends the sandbox waits for the mutex. */
  interruptDispatches(sessionId: string, why: string): void {
    const next = 'repeat it, if it is still wanted';
    const error = new HoldfastError('interrupted', 'The sandbox was not made ready', { why, next });
    this.#dispatches.interrupt(sessionId, error);
  }

  /** The supervisor shuts down: as `interruptDispatches`, for all sessions and from now on. */
  closeDispatches(): void {
    this.#dispatches.close(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
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
        return await this.#dispatch(sessionId, forWork, requestedAt, signal);
      } catch (error) {
        // The cached observation may have been stale: observe again, and start what is missing.
        const isStale = error instanceof HoldfastError && STALE.has(error.code);
        if (!isStale || (!isCached && error.code !== 'sandbox_lost')) throw error;
        this.#observations.invalidate(sessionId);
        return await this.#dispatch(sessionId, forWork, requestedAt, signal);
      }
    });
  }

  async #dispatch(
    sessionId: string,
    forWork: string | undefined,
    requestedAt: number,
    signal: AbortSignal,
  ): Promise<ReadySandbox> {
    const row = this.#records.get(sessionId);
    const profile = this.#profile(row);
    const observed = await this.#observations.get(sessionId);
    const activeWork =
      forWork === undefined
        ? this.#activeWork.count(sessionId)
        : this.#activeWork.countOthers(sessionId, forWork);
    const plan = planDispatch(row, observed, {
      codeVersion: profile.version,
      image: profile.image,
      activeWork,
    });
    const started = await this.#carryOut(plan, row, profile, observed);
    const client = await this.#sidecars.get(sessionId);
    // The agent's container runs, and no process of the agent: those start with the turn.
    await this.#seeding.finishPending(started);
    await this.#prepareHome(started, profile, client, signal);
    await this.#egress.waitUntilReady(sessionId, signal);
    return {
      dispatched: { reused: plan.reused, case: plan.case },
      client,
      row: started,
      profile,
      dispatchMs: performance.now() - requestedAt,
    };
  }

  /**
   * A new sandbox takes over of HOME only what the profile keeps. The rest is what its setup left, with the person's configuration
   * beside it. The generation is stored afterwards: if we are killed
   * in between, the next dispatch repeats this. No process of the agent has started, but for those of `setup.resume`: where that may
   * have begun, `planDispatch` replaces the sandbox.
   */
  async #prepareHome(
    row: SessionRow,
    profile: ProfileRow,
    client: SidecarClient,
    signal: AbortSignal,
  ): Promise<void> {
    if (row.homeGeneration === row.generation) return;
    const { agent } = profile.config;
    await client.prepareHome(keptInHome(agent));
    await this.#homeTemplates.fillHome(row, profile);
    if (agent.config !== undefined) {
      const folder = this.#home.deployedConfiguration(profile.name, profile.version);
      for await (const part of configurationParts(folder)) await client.fillHome(part);
    }
    if (row.homeGeneration > 0 && row.persistent) {
      await this.#egress.waitUntilReady(row.id, signal);
      const env = this.environment(row.id, profile.config);
      await this.#resumeScript.run(row.id, profile.config, env, client, signal);
    }
    await failpoint('start.after-home');
    this.#records.change(row.id, { homeGeneration: row.generation }, 'HOME is prepared');
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
    return { ...this.#egress.environment(sessionId), ...profile.env };
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

  #profile(row: SessionRow): ProfileRow {
    const profile = this.#profiles.get(row.profile);
    if (profile === null) {
      throw new HoldfastError(
        'not_found',
        `The profile ${row.profile} of session ${row.name} is not deployed`,
        {
          next: `deploy it again with \`holdfast deploy DIR\``,
        },
      );
    }
    return profile;
  }

  #spec(row: SessionRow, profile: ProfileRow): SandboxSpec {
    return sandboxSpec(row, profile.config, profile.image, profile.version);
  }

  /** A connection to the sidecar, which is started alone if it does not run. */
  async ensureSidecarLocked(row: SessionRow): Promise<SidecarClient> {
    const observed = await this.#engine.observeSession(row.id);
    if (observed.sidecar?.state !== 'running') {
      await this.#sidecars.disconnect(row.id);
      await this.#engine.createWorkspace(workspaceSpec(row));
      const profile = this.#profiles.get(row.profile);
      await this.#engine.startSidecar(profile === null ? sidecarOnlySpec(row) : this.#spec(row, profile));
    }
    return this.#sidecars.get(row.id);
  }

  async #clearFiles(sessionId: string): Promise<void> {
    const client = await this.#sidecars.get(sessionId);
    await client.clearWorkspace();
    await client.clearHome();
  }

  async #carryOut(
    plan: Plan,
    before: SessionRow,
    profile: ProfileRow,
    observed: ObservedSandbox,
  ): Promise<SessionRow> {
    let row = before;
    if (plan.steps.length > 0) this.#observations.invalidate(row.id);
    const startsAgent = plan.steps.some((step) => step.do === 'start');
    if (observed.sidecar?.state !== 'running') await this.#sidecars.disconnect(row.id);
    if (startsAgent) {
      const generation = row.generation + 1;
      row = this.#records.change(row.id, { generation }, 'a new sandbox is made', [
        { type: 'sandbox.starting', data: { generation } },
      ]);
      await failpoint('start.after-intent');
    }
    const spec = this.#spec(row, profile);
    // Runs beside the start, which takes longer. It is for the history only: a failure is ignored.
    const identity = startsAgent
      ? this.#engine.images.identity(profile.image).catch(() => null)
      : Promise.resolve(null);
    for (const step of plan.steps) {
      switch (step.do) {
        case 'remove-agent':
          await this.#engine.stopAgent(row.id, STOP_GRACE_MS);
          break;
        case 'thaw':
          await this.#engine.unpause(row.id);
          break;
        case 'start-sidecar':
          await this.#engine.startSidecar(spec);
          break;
        case 'create-workspace':
          await this.#engine.createWorkspace(spec.workspace);
          break;
        case 'clear-workspace':
          await this.#engine.startSidecar(spec);
          // Recorded first: after a crash in between, the workspace is seeded and then cleared again.
          this.#seeding.recordIntent(row.id, profile.config);
          await this.#clearFiles(row.id);
          break;
        case 'start':
          await this.#engine.startSandbox(spec);
          await failpoint('start.before-record');
          break;
        case 'setup':
          // Comes with HOME, which is prepared once the sandbox is recorded.
          break;
      }
    }
    if (plan.steps.length > 0) this.#observations.invalidate(row.id);
    const patch = {
      status: this.#activeWork.count(row.id) > 0 ? ('active' as const) : ('idle' as const),
      lastActiveAt: this.#now(),
    };
    if (!startsAgent) {
      return row.status === patch.status && plan.case === 'reuse'
        ? row
        : this.#records.change(row.id, patch, plan.case);
    }
    return this.#records.change(
      row.id,
      { ...patch, codeVersion: profile.version, image: profile.image },
      plan.case,
      [
        {
          type: 'sandbox.started',
          data: {
            generation: row.generation,
            case: plan.case,
            image: profile.image,
            imageIdentity: await identity,
            codeVersion: profile.version,
          },
        },
      ],
    );
  }
}
