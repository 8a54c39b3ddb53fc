import { lstat, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { setupSecretsOf } from '../../protocol/profile.ts';
import type { SetupStatus } from '../../protocol/setup.ts';
import type { EventEntry } from '../../protocol/events.ts';
import type { SecretStore } from '../secrets/secret-store.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SetupRow, SetupTemplate } from '../store/setups.ts';
import { type BuildPlan, type BuildSource, DockerfileBuilds } from './dockerfile/builds.ts';
import { planSetup, type SetupPlan } from './plan.ts';
import type { SetupSecret } from './secret-parts.ts';
import { readSetupLog } from './setup-log.ts';
import { SetupContainers } from './setup-containers.ts';
import { type FinishedSetup, SetupExecutions } from './setup-execution.ts';
import { shutdownReason } from './setup-failure.ts';
import { SetupRuns, type SetupRequest, type SetupRunsOptions } from './setup-runs.ts';

/** Setups without an image that are kept with their logs, of each profile. */
const KEPT_FAILURES = 5;

export interface SetupsOptions extends SetupRunsOptions {
  readonly secrets: Pick<SecretStore, 'use' | 'describe'>;
  readonly profiles: Pick<Profiles, 'list'>;
}

/** `build`: the Dockerfile that makes the image to start from, instead of `image`; null: none. */
export type ImageRequest = SetupRequest & { readonly build: BuildSource | null };

/**
 * Prepares images: what a profile's setup installs becomes an image that its sandboxes start from. One key is prepared once, unless
 * somebody asks for it again.
 */
export class Setups {
  readonly #options: SetupsOptions;
  readonly #containers: SetupContainers;
  readonly #executions: SetupExecutions;
  readonly #runs: SetupRuns;
  readonly #builds: DockerfileBuilds;
  readonly #stopping = new AbortController();
  readonly #unfinished = new Set<Promise<unknown>>();

  constructor(options: SetupsOptions) {
    this.#options = options;
    this.#containers = new SetupContainers(options);
    this.#executions = new SetupExecutions(options, this.#containers);
    this.#runs = new SetupRuns(options, this.#executions);
    this.#builds = new DockerfileBuilds(options, this.#executions);
  }

  /** Whether this process runs the setup with this id. */
  isRunning(id: string): boolean {
    return this.#executions.isRunning(id) || this.#containers.isRemoving(id);
  }

  /**
   * The image that sandboxes of the profile start from: `image` itself without a setup. Errors: `setup_failed` with the log's last
   * line, `cancelled`, `timeout`, and those of the engine.
   */
  async ensureImage({ build, ...given }: ImageRequest): Promise<string> {
    const built = build === null ? null : await this.#builds.plan(build, given);
    const base =
      built === null
        ? await this.#ownImage(given.image)
        : ((await this.#findImage(built.key)) ?? (await this.#build(built, given)).image.reference);
    const request = { ...given, image: base };
    const plan = await this.#plan(request);
    if (plan === null) return base;
    return (await this.#findImage(plan.key)) ?? (await this.#run(plan, request)).image.reference;
  }

  /**
   * Runs the setup although an equal one may have made an image already. The id of the setup. Errors: `invalid_state` without a
   * setup, and those of `ensureImage`.
   */
  async runAgain({ build, ...given }: ImageRequest): Promise<string> {
    if (build !== null) {
      const built = await this.#builds.plan(build, given);
      const finished = await this.#build(built, { ...given, recordUse: () => undefined });
      const onTop = { ...given, image: finished.image.reference };
      const plan = await this.#plan(onTop);
      if (plan !== null) return (await this.#run(plan, onTop)).id;
      given.recordUse?.(finished.image.reference);
      return finished.id;
    }
    const request = { ...given, image: await this.#ownImage(given.image) };
    const plan = await this.#plan(request);
    if (plan === null) {
      throw new HoldfastError('invalid_state', `The profile ${request.profile.name} has no setup`, {
        next: 'list what it installs in `setup.packages` of holdfast.yaml, or what it runs in `setup.run`, and deploy it',
      });
    }
    return (await this.#run(plan, request)).id;
  }

  /** Cancels every setup and waits until nothing of them is left. None begins afterwards. */
  async stop(): Promise<void> {
    this.#stopping.abort(shutdownReason());
    await Promise.allSettled(this.#unfinished);
  }

  /** Puts what was refused to a running setup into its log: few installers tell the reason. */
  reportEgress(id: string, entries: readonly EventEntry[]): void {
    for (const { type, data } of entries) {
      if (type !== 'egress' || (data.decision !== 'denied' && data.decision !== 'failed')) continue;
      const { decision, host, port, reason } = data;
      this.#executions.addToLog(id, `[network] ${decision}: ${host}:${port} (${reason ?? 'unknown'})\n`);
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
    const { rows, log, now, engine } = this.#options;
    await this.#removeLeftTemplates();
    for (const row of rows.list()) {
      if (this.isRunning(row.id) || (row.state !== 'running' && !(await this.#hasFolders(row.id)))) continue;
      try {
        await this.#containers.remove(row);
        if (row.state !== 'running') continue;
        await this.#options.templates.remove(row.id);
        rows.fail(
          row.id,
          now(),
          new HoldfastError('interrupted', `The setup of ${row.profile} was not completed`, {
            why: 'the supervisor ended meanwhile',
            next: `run it again: \`holdfast setup run ${row.profile}\`, or deploy the profile`,
          }),
        );
      } catch (error) {
        log.warn('cannot remove what a setup left; the next start tries again', { setup: row.id, error });
      }
    }
    await engine
      .removeBuildLeftovers((id) => !this.isRunning(id))
      .catch((error: unknown) =>
        log.warn('cannot remove what builds left; the next start tries again', { error }),
      );
  }

  /** Of setups that no image is left of. */
  async #removeLeftTemplates(): Promise<void> {
    const { rows, templates, log } = this.#options;
    try {
      for (const id of await templates.list()) {
        const state = rows.get(id)?.state;
        if (state !== 'done' && state !== 'running') await templates.remove(id);
      }
    } catch (error) {
      log.warn('cannot remove what setups left; the next start tries again', { error });
    }
  }

  /** Prepared images that no profile uses. Of a setup that is not known: one that was killed before it could say so. */
  unusedImages(observed: readonly { readonly reference: string; readonly setupId: string }[]) {
    const used = this.#imagesInUse();
    return observed
      .filter(({ reference, setupId }) => !used.has(reference) && !this.isRunning(setupId))
      .map((one) => {
        const row = this.#options.rows.get(one.setupId);
        return { ...one, profile: row?.profile ?? null, bytes: row?.bytes ?? null };
      });
  }

  /** The image of a setup was removed. Of a profile that is undeployed, nothing is remembered then. */
  async recordImageRemoved(setupId: string): Promise<void> {
    const { rows, profiles, templates } = this.#options;
    const row = rows.get(setupId);
    rows.markRemoved(setupId);
    await templates.remove(setupId);
    if (row !== null && !profiles.list().some(({ name }) => name === row.profile))
      await this.#forget(setupId);
  }

  /** Forgets the oldest setups of a profile that have no image. */
  async prune(profile: string): Promise<void> {
    const { rows } = this.#options;
    const without = rows.list(profile).filter(({ state }) => state !== 'done' && state !== 'running');
    for (const { id } of without.slice(KEPT_FAILURES)) await this.#forget(id);
  }

  /** Whether commands of this setup may have left files. */
  async #hasFolders(id: string): Promise<boolean> {
    const { workspaces, agentHomes } = this.#options.home;
    const found = await Promise.all(
      [workspaces, agentHomes].map((folder) =>
        lstat(join(folder, id)).then(
          () => true,
          () => false,
        ),
      ),
    );
    return found.includes(true);
  }

  /** Its row stays while it has files: the next start removes these. */
  async #forget(id: string): Promise<void> {
    if (await this.#hasFolders(id)) return;
    await rm(this.#options.home.setupLog(id), { force: true });
    this.#options.rows.remove(id);
  }

  async #intactImage({ image, imageId }: SetupRow): Promise<string | null> {
    const { images } = this.#options.engine;
    // Somebody may have given the name to another image.
    return image !== null && imageId !== null && (await images.id(image)) === imageId ? image : null;
  }

  /** The image of the setup with this key; null if it has to run. */
  async #findImage(key: string): Promise<string | null> {
    const { rows } = this.#options;
    const earlier = rows.findDone(key);
    if (earlier === null) return null;
    const prepared = await this.#intactImage(earlier);
    if (prepared !== null) return prepared;
    rows.markRemoved(earlier.id);
    await this.#options.templates.remove(earlier.id);
    return null;
  }

  /** Errors: `not_supported` for an image that was prepared for a profile. */
  async #ownImage(image: string): Promise<string> {
    const { images } = this.#options.engine;
    if (await images.isPrepared(image)) {
      throw new HoldfastError('not_supported', `${image} cannot be the image of a profile`, {
        why: 'it was prepared for a profile, and is for that profile alone',
        next: 'name the image that it was made from, and what to install in `setup`',
      });
    }
    return image;
  }

  async #plan({ profile, image, seed }: SetupRequest): Promise<SetupPlan | null> {
    const { engine, sources } = this.#options;
    const versions = setupSecretsOf(profile).map((name) => {
      const known = this.#options.secrets.describe(profile.name, name);
      return known === null ? name : `${known.profile ?? ''}/${name}/${known.version}`;
    });
    if (profile.setup === undefined && profile.workspace?.repository === undefined) return null;
    return planSetup(profile, await engine.images.identity(image), versions, seed?.hash ?? null, sources());
  }

  async #build(plan: BuildPlan, request: SetupRequest): Promise<FinishedSetup> {
    const secrets = this.#secretsOf(request);
    return await this.#finish(request, (signal) => this.#builds.run(plan, secrets, { ...request, signal }));
  }

  async #run(plan: SetupPlan, request: SetupRequest): Promise<FinishedSetup> {
    const secrets = this.#secretsOf(request);
    return await this.#finish(request, (signal) => this.#runs.run(plan, secrets, { ...request, signal }));
  }

  async #finish(
    request: SetupRequest,
    begin: (signal: AbortSignal) => Promise<FinishedSetup>,
  ): Promise<FinishedSetup> {
    const signal = AbortSignal.any([request.signal, this.#stopping.signal]);
    const run = begin(signal).finally(() => this.prune(request.profile.name));
    this.#unfinished.add(run);
    try {
      return await run;
    } finally {
      this.#unfinished.delete(run);
    }
  }

  #secretsOf({ profile }: SetupRequest): SetupSecret[] {
    return setupSecretsOf(profile).map((name) => {
      const secret = this.#options.secrets.use(profile.name, name);
      if (secret !== null) return { name, value: secret.value };
      throw new HoldfastError('not_found', `The setup of ${profile.name} needs the secret ${name}`, {
        why: 'there is none that can be used',
        next: `set it with \`holdfast secret set ${name}\``,
      });
    });
  }

  #imagesInUse(): ReadonlySet<string> {
    const used = new Set(this.#options.profiles.list().map(({ image }) => image));
    // What a setup installed was added to an image that may have been built.
    for (const { image, baseImage } of this.#options.rows.list())
      if (image !== null && used.has(image)) used.add(baseImage);
    return used;
  }
}

function view(row: SetupRow, current: ReadonlySet<string>): SetupStatus {
  const { id, profile, state, step, error, baseImage, image, bytes, template } = row;
  const iso = (ms: number): string => new Date(ms).toISOString();
  return {
    ...{ id, profile, state, step, error, baseImage, image, bytes },
    startedAt: iso(row.startedAt),
    endedAt: row.endedAt === null ? null : iso(row.endedAt),
    template:
      template === null ? null : { workspace: extentOf(template.workspace), home: extentOf(template.home) },
    current: image !== null && current.has(image),
  };
}

function extentOf({ files, bytes }: SetupTemplate['home']): { files: number; bytes: number } {
  return { files, bytes };
}
