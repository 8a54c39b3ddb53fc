import type { DispatchResult } from '../../protocol/entities.ts';
import { type ErrorCode, HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Engine, ObservedSandbox, SandboxSpec } from '../engine/port.ts';
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
import type { ObservationCache } from './observation-cache.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { SidecarConnections } from './sidecar-connections.ts';
import { sandboxSpec, sidecarOnlySpec, workspaceSpec } from './sandbox-spec.ts';

/** How long an agent container may take to end by itself. */
export const STOP_GRACE_MS = 3000;

/** What acting on a sandbox that has changed meanwhile fails with. */
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
  /** Request → sandbox ready, ms. */
  readonly dispatchMs: number;
}

export interface LifecycleOptions {
  readonly engine: Engine;
  readonly records: SessionRecords;
  readonly profiles: Profiles;
  readonly sidecars: SidecarConnections;
  readonly observations: ObservationCache;
  readonly lanes: KeyedMutex;
  readonly live: ActiveWork;
  readonly now: () => number;
  /** Completes, in the session's lane, what must have happened to its workspace before anything new does. */
  readonly finishPendingWork: (sessionId: string) => Promise<void>;
  /** Fills a new or emptied workspace. */
  readonly seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  /** Its sidecar is about to be ended, and may leave something for the next one. Never rejects. */
  readonly beforeSidecarEnds: (row: SessionRow) => Promise<void>;
  /** The way out of a sandbox that is up. */
  readonly egress: Pick<Egress, 'waitUntilReady' | 'environment'>;
}

/**
 * Runs the plans: brings a session's sandbox up for a message, pauses it, ends it. One thing at a time per session (lanes).
 * No verb here needs an intent on disk: the generation is written before a sandbox is made, and what the engine shows
 * afterwards – found by labels – says how far a killed supervisor came; `reconcile` does the rest.
 */
export class Lifecycle {
  readonly #engine: Engine;
  readonly #records: SessionRecords;
  readonly #profiles: Profiles;
  readonly #sidecars: SidecarConnections;
  readonly #observations: ObservationCache;
  readonly #lanes: KeyedMutex;
  readonly #live: ActiveWork;
  readonly #now: () => number;
  readonly #finishEarlier: (sessionId: string) => Promise<void>;
  readonly #seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  readonly #egress: Pick<Egress, 'waitUntilReady' | 'environment'>;
  readonly #beforeSidecarEnds: (row: SessionRow) => Promise<void>;

  constructor(options: LifecycleOptions) {
    this.#engine = options.engine;
    this.#records = options.records;
    this.#profiles = options.profiles;
    this.#sidecars = options.sidecars;
    this.#observations = options.observations;
    this.#lanes = options.lanes;
    this.#live = options.live;
    this.#now = options.now;
    this.#finishEarlier = options.finishPendingWork;
    this.#seeding = options.seeding;
    this.#egress = options.egress;
    this.#beforeSidecarEnds = options.beforeSidecarEnds;
  }

  /** What is known of its containers may be behind: the next dispatch asks the engine. */
  markSuspect(sessionId: string): void {
    this.#observations.invalidate(sessionId);
  }

  /** A sandbox that can take a message now. `forThing` is the turn or exec that asks: it does not count as live yet. */
  dispatch(sessionId: string, forThing?: string): Promise<ReadySandbox> {
    const asked = performance.now();
    return this.#lanes.run(sessionId, async () => {
      await this.#finishEarlier(sessionId);
      const fromMemory = this.#observations.isCached(sessionId);
      try {
        return await this.#dispatch(sessionId, forThing, asked);
      } catch (error) {
        // What was known may have been a moment behind: look again, and bring up what is missing.
        const stale = error instanceof HoldfastError && STALE.has(error.code);
        if (!stale || (!fromMemory && error.code !== 'sandbox_lost')) throw error;
        this.#observations.invalidate(sessionId);
        return await this.#dispatch(sessionId, forThing, asked);
      }
    });
  }

  async #dispatch(sessionId: string, forThing: string | undefined, asked: number): Promise<ReadySandbox> {
    const row = this.#records.get(sessionId);
    const profile = this.#profile(row);
    const observed = await this.#observations.get(sessionId);
    const live =
      forThing === undefined ? this.#live.count(sessionId) : this.#live.countOthers(sessionId, forThing);
    const plan = planDispatch(row, observed, { codeVersion: profile.version, live });
    const after = await this.#follow(plan, row, profile, observed);
    const client = await this.#sidecars.get(sessionId);
    // The agent's container runs, but nothing of the agent's does: that begins with the turn.
    await this.#seeding.finishPending(after);
    await this.#egress.waitUntilReady(sessionId);
    return {
      dispatched: { reused: plan.reused, case: plan.case },
      client,
      row: after,
      profile,
      dispatchMs: performance.now() - asked,
    };
  }

  /** The sidecar's connection, starting it alone where the session does not run. Never touches the agent. */
  async withSidecar<T>(
    sessionId: string,
    use: (client: SidecarClient) => Promise<T>,
    doubts = false,
  ): Promise<T> {
    const release = this.#sidecars.acquireLease(sessionId);
    try {
      const client = await this.#lanes.run(sessionId, async () => {
        await this.#finishEarlier(sessionId);
        const row = this.#records.get(sessionId);
        // Asking the engine takes longer than many a call.
        const standing = doubts ? null : await this.#sidecars.getOpen(sessionId);
        const there = standing ?? (await this.ensureSidecarLocked(row));
        await this.#seeding.finishPending(row);
        return there;
      });
      return await use(client);
    } finally {
      release();
    }
  }

  /** The sidecar's connection, and how the agent of the sandbox on record has ended; null while it lives. Starts no agent. */
  attach(sessionId: string): Promise<{ client: SidecarClient; agentEnd: AgentExit | null }> {
    return this.#lanes.run(sessionId, async () => {
      const row = this.#records.get(sessionId);
      const { agent } = await this.#engine.observeSession(sessionId);
      const agentAlive =
        agent?.generation === row.generation && (agent.state === 'running' || agent.state === 'paused');
      const ours = agent?.generation === row.generation ? agent : null;
      const end = agentAlive ? null : { why: describeAgentExit(ours), limits: limitsMetAtExit(ours) };
      return { client: await this.ensureSidecarLocked(row), agentEnd: end };
    });
  }

  row(sessionId: string): SessionRow {
    return this.#records.get(sessionId);
  }

  /** For a process that begins in the sandbox now, before what the profile and whoever starts it say. */
  environment(sessionId: string, profile: Profile): Readonly<Record<string, string>> {
    return { ...this.#egress.environment(sessionId), ...profile.env };
  }

  /** Unfreezes a paused agent, so that a signal can reach its processes. */
  thaw(sessionId: string): Promise<void> {
    return this.#lanes.run(sessionId, async () => {
      const row = this.#records.get(sessionId);
      if (row.status !== 'paused') return;
      await this.#engine.unpause(sessionId);
      this.#observations.invalidate(sessionId);
      this.#records.change(
        sessionId,
        { status: this.#live.count(sessionId) > 0 ? 'active' : 'idle' },
        'thawed',
      );
    });
  }

  /** Ends the agent's container and leaves the sidecar, which still has to be read. */
  endAgent(sessionId: string): Promise<void> {
    return this.#lanes.run(sessionId, async () => {
      await this.#engine.stopAgent(sessionId, 0);
      this.#observations.invalidate(sessionId);
    });
  }

  /** Ends the agent with all that it left running, and says so; the sidecar stays. For callers in the session's lane. */
  async endAgentLocked(row: SessionRow, why: string): Promise<SessionRow> {
    const { agent } = await this.#engine.observeSession(row.id);
    if (agent === null) return row;
    await this.#engine.stopAgent(row.id, STOP_GRACE_MS);
    this.#observations.invalidate(row.id);
    return this.#records.change(row.id, { status: statusWithoutSandbox(row), codeVersion: null }, why, [
      { type: 'sandbox.removed', data: { generation: row.generation, why } },
    ]);
  }

  /** The same, and the sidecar runs afterwards. */
  async ensureSidecarAloneLocked(row: SessionRow, why: string): Promise<SessionRow> {
    // Agents begin here only, in this lane: that there is none cannot be behind. Asking the engine takes longer than many a call.
    const { agent } = await this.#observations.get(row.id);
    if (agent === null && (await this.#sidecars.getOpen(row.id)) !== null) return row;
    const ended = await this.endAgentLocked(row, why);
    await this.ensureSidecarLocked(ended);
    return ended;
  }

  /** Freezes the agent; its memory stays. A turn in it goes on when the session is resumed. */
  pause(sessionId: string): Promise<SessionRow> {
    return this.#lanes.run(sessionId, () => this.#pause(sessionId, 'paused'));
  }

  /** As `pause`, where `still` says so once the lane is free. */
  async pauseIf(sessionId: string, still: () => boolean): Promise<void> {
    await this.#lanes.run(sessionId, async () => {
      if (still()) await this.#pause(sessionId, 'idle for a while');
    });
  }

  async stopIf(sessionId: string, still: () => boolean): Promise<void> {
    await this.#lanes.run(sessionId, async () => {
      if (still()) await this.stopLocked(sessionId, 'idle for long');
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

  /** Ends both containers. The caller has ended what was live. */
  stop(sessionId: string, why: string): Promise<SessionRow> {
    return this.#lanes.run(sessionId, () => this.stopLocked(sessionId, why));
  }

  /** As `stop`, for callers that are in the session's lane already. */
  async stopLocked(sessionId: string, why: string): Promise<SessionRow> {
    const row = this.#records.get(sessionId);
    await failpoint('stop.after-intent');
    await this.#engine.stopAgent(sessionId, STOP_GRACE_MS);
    this.#observations.invalidate(sessionId);
    await failpoint('stop.after-agent');
    if (!row.persistent && row.generation > 0) {
      // Nothing of an ephemeral session outlives its container.
      const client = await this.ensureSidecarLocked(row);
      const profile = this.#profiles.get(row.profile);
      if (profile !== null) this.#seeding.recordIntent(row.id, profile.config);
      await client.clearWorkspace();
    }
    await this.#beforeSidecarEnds(row);
    await this.#sidecars.disconnect(sessionId);
    await this.#engine.removeSandbox(sessionId, STOP_GRACE_MS);
    await failpoint('stop.after-removed');
    return this.#records.change(sessionId, { status: statusWithoutSandbox(row), codeVersion: null }, why, [
      { type: 'sandbox.removed', data: { generation: row.generation, why } },
    ]);
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

  /** The sidecar's connection for callers that are in the session's lane already; started alone where nothing runs. */
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

  async #follow(
    plan: Plan,
    before: SessionRow,
    profile: ProfileRow,
    observed: ObservedSandbox,
  ): Promise<SessionRow> {
    let row = before;
    if (plan.steps.length > 0) this.#observations.invalidate(row.id);
    const starts = plan.steps.some((step) => step.do === 'start');
    if (observed.sidecar?.state !== 'running') await this.#sidecars.disconnect(row.id);
    if (starts) {
      const generation = row.generation + 1;
      row = this.#records.change(row.id, { generation }, 'a new sandbox is made', [
        { type: 'sandbox.starting', data: { generation } },
      ]);
      await failpoint('start.after-intent');
    }
    const spec = this.#spec(row, profile);
    // Asked beside the start, which takes longer; for the history only, so that not knowing it stops nothing.
    const identity = starts
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
          // Before it: killed in between, what is missing is filled in and then cleared again.
          this.#seeding.recordIntent(row.id, profile.config);
          await (await this.#sidecars.get(row.id)).clearWorkspace();
          break;
        case 'start':
          await this.#engine.startSandbox(spec);
          await failpoint('start.before-record');
          break;
        case 'setup':
          // Profiles with a setup are refused at deploy until the setup phase exists; this is its place.
          break;
      }
    }
    if (plan.steps.length > 0) this.#observations.invalidate(row.id);
    const patch = {
      status: this.#live.count(row.id) > 0 ? ('active' as const) : ('idle' as const),
      lastActiveAt: this.#now(),
    };
    if (!starts) {
      return row.status === patch.status && plan.case === 'reuse'
        ? row
        : this.#records.change(row.id, patch, plan.case);
    }
    return this.#records.change(row.id, { ...patch, codeVersion: profile.version }, plan.case, [
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
    ]);
  }
}
