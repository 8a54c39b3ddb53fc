import { rm } from 'node:fs/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import { SETUP_TIMEOUT_MS, type SetupStatus } from '../../protocol/setup.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventEntry } from '../../protocol/events.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Egress } from '../egress/egress.ts';
import type { Policies } from '../egress/policies.ts';
import type { Engine, PreparedImage, SandboxSpec, WorkspaceSpec } from '../engine/port.ts';
import type { Home } from '../store/home.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SetupRow, SetupRows } from '../store/setups.ts';
import { planSetup, type SetupPlan } from './plan.ts';
import { readSetupLog, SetupLog } from './setup-log.ts';

/** Setups without an image that are kept with their logs, of each profile. */
const KEPT_FAILURES = 5;
/** How often a line of output is reported to the client. */
const REPORT_MS = 250;

export interface SetupsOptions {
  readonly home: Home;
  readonly rows: SetupRows;
  readonly profiles: Pick<Profiles, 'list'>;
  readonly engine: Engine;
  readonly policies: Pick<Policies, 'declare' | 'withdraw'>;
  readonly egress: Pick<Egress, 'setLive' | 'waitUntilReady'>;
  /** Who owns the files of the setup's sidecar. */
  readonly owner: () => { readonly uid: number; readonly gid: number };
  readonly ids: Ids;
  readonly log: Log;
  readonly now: () => number;
}

export interface SetupRequest {
  readonly profile: Profile;
  /** The image to start from; the engine has it. */
  readonly image: string;
  /** Called with what the setup does. */
  readonly reportProgress: (stage: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Prepares images: what a profile's setup installs becomes an image that its sandboxes start from. A setup has a sidecar of its own,
 * for its network, and a container that is removed with it; it sees no workspace and no code. One key is prepared once.
 */
export class Setups {
  readonly #options: SetupsOptions;
  /** Their logs, by id. */
  readonly #running = new Map<string, SetupLog>();
  readonly #stopping = new AbortController();
  readonly #unfinished = new Set<Promise<unknown>>();

  constructor(options: SetupsOptions) {
    this.#options = options;
  }

  /** Whether this process runs the setup with this id. */
  isRunning(id: string): boolean {
    return this.#running.has(id);
  }

  /**
   * The image that sandboxes of the profile start from: `image` itself without a setup. Errors: `setup_failed` with the log's last
   * line, `cancelled`, `timeout`, and those of the engine.
   */
  async ensureImage(request: SetupRequest): Promise<string> {
    const { engine, rows } = this.#options;
    const { profile, image } = request;
    if (await engine.images.isPrepared(image)) {
      throw new HoldfastError('not_supported', `${image} cannot be the image of a profile`, {
        why: 'it was prepared for a profile, and is for that profile alone',
        next: 'name the image that it was made from, and what to install in `setup`',
      });
    }
    const plan = planSetup(profile, await engine.images.identity(image));
    if (plan === null) return image;
    const earlier = rows.findDone(plan.key);
    if (earlier !== null) {
      const prepared = await this.#intactImage(earlier);
      if (prepared !== null) return prepared;
      rows.markRemoved(earlier.id);
    }
    const signal = AbortSignal.any([request.signal, this.#stopping.signal]);
    const run = this.#run(plan, { ...request, signal });
    this.#unfinished.add(run);
    try {
      return (await run).reference;
    } finally {
      this.#unfinished.delete(run);
    }
  }

  /** Cancels every setup and waits until nothing of them is left. None begins afterwards. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.allSettled(this.#unfinished);
  }

  /** Puts what was refused to a running setup into its log: few installers tell the reason. */
  reportEgress(id: string, entries: readonly EventEntry[]): void {
    const output = this.#running.get(id);
    for (const { type, data } of entries) {
      if (type !== 'egress' || (data.decision !== 'denied' && data.decision !== 'failed')) continue;
      const { decision, host, port, reason } = data;
      output?.append(Buffer.from(`[network] ${decision}: ${host}:${port} (${reason ?? 'unknown'})\n`));
    }
  }

  /** The setups of a profile, the newest first. */
  list(profile: string): SetupStatus[] {
    const current = this.#imagesInUse();
    return this.#options.rows.list(profile).map((row) => view(row, current));
  }

  /** Errors: `not_found`. */
  readLog(profile: string, id?: string): { setup: SetupStatus; text: Buffer; truncated: boolean } {
    const { rows, home } = this.#options;
    const row = rows.list(profile).find((one) => id === undefined || one.id === id);
    if (row === undefined) {
      throw new HoldfastError('not_found', `The profile ${profile} has had no such setup`, {
        next: 'see `holdfast setup status`; a setup runs when a profile with `setup` is deployed',
      });
    }
    return { setup: view(row, this.#imagesInUse()), ...readSetupLog(home.setupLog(row.id)) };
  }

  /** Runs after a start and when the engine is back: removes what a killed supervisor's setups left. */
  async recover(): Promise<void> {
    const { rows, log, now } = this.#options;
    for (const row of rows.list()) {
      if (row.state !== 'running' || this.#running.has(row.id)) continue;
      try {
        await this.#removeContainers(row);
        rows.fail(
          row.id,
          now(),
          new HoldfastError('interrupted', `The setup of ${row.profile} was not completed`, {
            why: 'the supervisor ended meanwhile',
            next: 'deploy the profile again',
          }),
        );
      } catch (error) {
        log.warn('cannot remove what a setup left; the next start tries again', { setup: row.id, error });
      }
    }
  }

  /** Prepared images that no profile uses. Of a setup that is not known: one that was killed before it could say so. */
  unusedImages(observed: readonly { readonly reference: string; readonly setupId: string }[]) {
    const used = this.#imagesInUse();
    return observed
      .filter(({ reference, setupId }) => !used.has(reference) && !this.#running.has(setupId))
      .map((one) => {
        const row = this.#options.rows.get(one.setupId);
        return { ...one, profile: row?.profile ?? null, bytes: row?.bytes ?? null };
      });
  }

  /** The image of a setup was removed. Of a profile that is undeployed, nothing is remembered then. */
  async recordImageRemoved(setupId: string): Promise<void> {
    const { rows, profiles } = this.#options;
    const row = rows.get(setupId);
    rows.markRemoved(setupId);
    if (row !== null && !profiles.list().some(({ name }) => name === row.profile))
      await this.#forget(setupId);
  }

  /** Forgets the oldest setups of a profile that have no image. */
  async prune(profile: string): Promise<void> {
    const { rows } = this.#options;
    const without = rows.list(profile).filter(({ state }) => state !== 'done' && state !== 'running');
    for (const { id } of without.slice(KEPT_FAILURES)) await this.#forget(id);
  }

  async #forget(id: string): Promise<void> {
    await rm(this.#options.home.setupLog(id), { force: true });
    this.#options.rows.remove(id);
  }

  async #intactImage({ image, imageId }: SetupRow): Promise<string | null> {
    const { images } = this.#options.engine;
    // Somebody may have given the name to another image.
    return image !== null && imageId !== null && (await images.id(image)) === imageId ? image : null;
  }

  #imagesInUse(): ReadonlySet<string> {
    return new Set(this.#options.profiles.list().map(({ image }) => image));
  }

  async #run(
    plan: SetupPlan,
    { profile, image, reportProgress, signal }: SetupRequest,
  ): Promise<PreparedImage> {
    const { rows, ids, owner, engine, home, log, now } = this.#options;
    const id = ids.next('setup');
    const { localPaths } = engine.capabilities();
    const row = {
      ...{ id, profile: profile.name, key: plan.key, ...owner(), baseImage: image, startedAt: now() },
      backing: localPaths ? ('directory' as const) : ('volume' as const),
    };
    const limit = profile.setup?.timeout ?? SETUP_TIMEOUT_MS;
    const late = AbortSignal.timeout(limit);
    const output = SetupLog.create(home.setupLog(id));
    this.#running.set(id, output);
    try {
      rows.begin(row);
      await failpoint('setup.after-intent');
      const made = await this.#prepare(
        plan,
        row,
        profile,
        output,
        reportProgress,
        AbortSignal.any([signal, late]),
      );
      rows.finish(id, now(), { image: made.reference, imageId: made.imageId, bytes: made.bytes });
      log.info('prepared an image', { profile: profile.name, setup: id, bytes: made.bytes });
      return made;
    } catch (error) {
      const failure = failureOf(error, {
        profile: profile.name,
        said: output.lastLines,
        signal,
        late,
        limit,
      });
      rows.fail(id, now(), failure);
      throw failure;
    } finally {
      await this.#removeContainers(row).catch((error: unknown) =>
        log.warn('cannot remove the containers of a setup; gc removes them', { setup: id, error }),
      );
      this.#running.delete(id);
      output.close();
      await this.prune(profile.name);
    }
  }

  async #prepare(
    plan: SetupPlan,
    row: Pick<SetupRow, 'id' | 'backing' | 'uid' | 'gid' | 'baseImage'>,
    profile: Profile,
    output: SetupLog,
    reportProgress: (stage: string) => void,
    signal: AbortSignal,
  ): Promise<PreparedImage> {
    const { engine, policies, egress, rows } = this.#options;
    const sandbox = sandboxOf(row, profile);
    let step = '';
    let reportedAt = 0;
    signal.throwIfAborted();
    reportProgress('setup');
    await engine.createWorkspace(sandbox.workspace);
    await engine.startSidecar(sandbox);
    signal.throwIfAborted();
    policies.declare(row.id, plan.rules);
    await egress.waitUntilReady(row.id);
    return await engine.prepare(
      { sandbox, image: row.baseImage, steps: plan.steps },
      {
        signal,
        onStep: (name) => {
          step = name;
          rows.recordStep(row.id, name);
          output.append(Buffer.from(`== ${name}\n`));
          reportProgress(`setup: ${name}`);
        },
        onOutput: (chunk) => {
          output.append(chunk);
          const at = performance.now();
          if (at - reportedAt < REPORT_MS) return;
          reportedAt = at;
          reportProgress(`setup: ${step}: ${output.lastLine}`);
        },
      },
    );
  }

  async #removeContainers(row: Pick<SetupRow, 'id' | 'backing' | 'uid' | 'gid'>): Promise<void> {
    const { engine, policies, egress } = this.#options;
    egress.setLive(row.id, false);
    policies.withdraw(row.id);
    await engine.removeSandbox(row.id, 0);
    // Nothing is ever written there.
    await engine.deleteWorkspace(workspaceOf(row));
  }
}

function workspaceOf({
  id,
  backing,
  uid,
  gid,
}: Pick<SetupRow, 'id' | 'backing' | 'uid' | 'gid'>): WorkspaceSpec {
  return { sessionId: id, backing, uid, gid };
}

function sandboxOf(row: Pick<SetupRow, 'id' | 'backing' | 'uid' | 'gid'>, profile: Profile): SandboxSpec {
  return {
    sessionId: row.id,
    generation: 1,
    image: '',
    uid: row.uid,
    gid: row.gid,
    workspace: workspaceOf(row),
    code: { profile: profile.name, version: 0 },
    env: {},
    limits: {
      memoryBytes: profile.limits?.memory ?? PROFILE_DEFAULTS.limits.memory,
      cpus: profile.limits?.cpus ?? PROFILE_DEFAULTS.limits.cpus,
      pids: profile.limits?.pids ?? PROFILE_DEFAULTS.limits.pids,
    },
    runtime: profile.runtime,
  };
}

function failureOf(
  error: unknown,
  at: {
    readonly profile: string;
    readonly said: string;
    readonly signal: AbortSignal;
    readonly late: AbortSignal;
    readonly limit: number;
  },
): HoldfastError {
  const next = `read its output with \`holdfast setup log ${at.profile}\`; to try again, deploy the profile again`;
  if (at.signal.aborted)
    return new HoldfastError('cancelled', `The setup of ${at.profile} was cancelled`, { cause: error });
  if (at.late.aborted) {
    return new HoldfastError('timeout', `The setup of ${at.profile} took too long`, {
      why: `it may take ${Math.round(at.limit / 1000)} s; \`setup.timeout\` allows more`,
      next,
      cause: error,
    });
  }
  const failure = HoldfastError.from(error);
  if (failure.code !== 'setup_failed') return failure;
  const said = at.said === '' ? '' : `; it said: ${at.said}`;
  return new HoldfastError('setup_failed', failure.message, {
    why: `${failure.why ?? ''}${said}`,
    next,
    details: { ...failure.details, profile: at.profile },
    cause: error,
  });
}

function view(row: SetupRow, current: ReadonlySet<string>): SetupStatus {
  const { id, profile, state, step, error, baseImage, image, bytes } = row;
  const iso = (ms: number): string => new Date(ms).toISOString();
  return {
    ...{ id, profile, state, step, error, baseImage, image, bytes },
    startedAt: iso(row.startedAt),
    endedAt: row.endedAt === null ? null : iso(row.endedAt),
    current: image !== null && current.has(image),
  };
}
