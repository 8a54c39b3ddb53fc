import { keptInHome } from '../../protocol/agent-home.ts';
import type { DispatchResult } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Egress } from '../egress/egress.ts';
import type { Engine, ObservedSandbox } from '../engine/port.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { Home } from '../store/home.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import { configurationParts } from '../workspace/home-configuration.ts';
import type { Seeding } from '../workspace/seeding.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { ActiveWork } from './active-work.ts';
import { planDispatch, type Plan } from './dispatch-plan.ts';
import type { ObservationCache } from './observation-cache.ts';
import type { ResumeScript } from './resume-script.ts';
import { STOP_GRACE_MS, sandboxSpec } from './sandbox-spec.ts';
import type { SidecarConnections } from './sidecar-connections.ts';

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

export interface DispatchesOptions {
  readonly home: Pick<Home, 'deployedConfiguration'>;
  readonly engine: Engine;
  readonly records: SessionRecords;
  readonly profiles: Profiles;
  readonly sidecars: SidecarConnections;
  readonly observations: ObservationCache;
  readonly activeWork: ActiveWork;
  readonly now: () => number;
  /** Copies the project into a new or emptied workspace. */
  readonly seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  /** Puts what a setup left in HOME, but for what the profile keeps, into a HOME that has no more than that. */
  readonly homeTemplates: HomeTemplates;
  /** What a profile runs in new sandboxes of sessions that had one before. */
  readonly resumeScript: Pick<ResumeScript, 'run'>;
  /** Network access of a running sandbox. */
  readonly egress: Pick<Egress, 'waitUntilReady' | 'environment'>;
}

/**
 * Makes sandboxes ready: runs the steps that `dispatch-plan.ts` decides, and prepares HOME. `Lifecycle` says when, one operation at
 * a time per session.
 */
export class Dispatches {
  readonly #home: Pick<Home, 'deployedConfiguration'>;
  readonly #engine: Engine;
  readonly #records: SessionRecords;
  readonly #profiles: Profiles;
  readonly #sidecars: SidecarConnections;
  readonly #observations: ObservationCache;
  readonly #activeWork: ActiveWork;
  readonly #now: () => number;
  readonly #seeding: Pick<Seeding, 'recordIntent' | 'finishPending'>;
  readonly #homeTemplates: HomeTemplates;
  readonly #resumeScript: Pick<ResumeScript, 'run'>;
  readonly #egress: Pick<Egress, 'waitUntilReady' | 'environment'>;

  constructor(options: DispatchesOptions) {
    this.#home = options.home;
    this.#engine = options.engine;
    this.#records = options.records;
    this.#profiles = options.profiles;
    this.#sidecars = options.sidecars;
    this.#observations = options.observations;
    this.#activeWork = options.activeWork;
    this.#now = options.now;
    this.#seeding = options.seeding;
    this.#homeTemplates = options.homeTemplates;
    this.#resumeScript = options.resumeScript;
    this.#egress = options.egress;
  }

  /**
   * Observes, plans and does what is missing. `forWork`: as in `Lifecycle.dispatch`. `requestedAt` is of the monotonic clock, ms. The caller
   * holds the session's mutex.
   */
  async carryOut(
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
    const started = await this.#run(plan, row, profile, observed);
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

  /** Environment of a process in the sandbox. The profile overrides the egress proxy's variables. */
  environment(sessionId: string, profile: Profile): Readonly<Record<string, string>> {
    return { ...this.#egress.environment(sessionId), ...profile.env };
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

  async #clearFiles(sessionId: string): Promise<void> {
    const client = await this.#sidecars.get(sessionId);
    await client.clearWorkspace();
    await client.clearHome();
  }

  async #run(
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
    const spec = sandboxSpec(row, profile.config, profile.image, profile.version);
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
