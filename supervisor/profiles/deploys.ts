import { createHash } from 'node:crypto';
import { mkdir, rename, rm } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import type { ProjectOrigin, SecretDestination } from '../../protocol/deploy.ts';
import { type DeployResult, DeployResultSchema, type IgnoredFiles } from '../../protocol/deploy-result.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { parsePath } from '../../protocol/paths.ts';
import { findProfileWarnings } from '../../protocol/profile-validation.ts';
import { type Profile, type Seed, presetOf, seedOf } from '../../protocol/profile.ts';
import { failpoint } from '../base/failpoints.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import { syncDirectory } from '../store/home.ts';
import { type Operation, replayResult } from '../store/operations.ts';
import type { NewProfileRow } from '../store/profiles.ts';
import { removeTree } from '../store/remove-tree.ts';
import { gitHistoryError } from '../../project/git/error.ts';
import { GitHistory } from '../../project/git/history.ts';
import { seedItems } from './seed-source.ts';
import { imageSourceOf } from './image-source.ts';
import { requireSource, type ReportProgress } from './images.ts';
import { type ProfileServiceOptions, RunningOperations } from './requests.ts';
import { requireConfiguration, requireEngine, requireEntry } from './requirements.ts';
import { writeSourceRecord } from './source-record.ts';
import type { SetupSeed } from '../setup/setup-commands.ts';
import { withProjectPackages } from './project-packages.ts';
import { newDestinations, requireAgreement } from './secret-destinations.ts';
import { secretWarnings } from './secret-warnings.ts';
import { needsSeed, setupSeed } from './setup-seed.ts';
import { summarize } from './summary.ts';
import { redeployedError, UNDEPLOY } from './undeploys.ts';
import type { UploadedProject } from './uploads.ts';
import type { CodeVersions } from './versions.ts';

export const DEPLOY = 'profile/deploy';

export interface DeployRequest {
  readonly project: UploadedProject;
  /** What the client's ignore files excluded. */
  readonly ignored: IgnoredFiles;
  /** Null without git. */
  readonly origin: ProjectOrigin | null;
  /** See `SetupRequest`. */
  readonly removeSecretFiles?: boolean | undefined;
  /** Where a person agreed that secrets go. */
  readonly destinations: readonly SecretDestination[];
  readonly opId?: string | undefined;
  readonly reportProgress: ReportProgress;
  readonly signal: AbortSignal;
}

const DataSchema = z.object({
  profile: z.string().optional(),
  version: z.number().int().optional(),
  /** No other deploy gets the version until this one has ended. */
  reserved: z.boolean().default(false),
});

/**
 * Publishes a folder as an immutable version that sandboxes can mount. An interrupted deploy leaves the profile as it
 * was: the row is written last, in one transaction with the end of the operation.
 */
export class Deploys {
  readonly #options: ProfileServiceOptions;
  readonly #mutex: KeyedMutex;
  readonly #versions: CodeVersions;
  readonly #running: RunningOperations;

  constructor(options: ProfileServiceOptions, mutex: KeyedMutex, versions: CodeVersions) {
    this.#options = options;
    this.#mutex = mutex;
    this.#running = new RunningOperations(options.operations);
    this.#versions = versions;
  }

  async run(request: DeployRequest): Promise<DeployResult> {
    const { operations } = this.#options;
    const begun = operations.begin({ opId: request.opId, kind: DEPLOY, sessionId: null, data: {} });
    if ('replay' in begun) return DeployResultSchema.parse(replayResult(begun.replay));
    const { operation } = begun;
    return await this.#running.run(operation, async () => {
      // The YAML parser is a tenth of the program, and only a deploy uses it.
      const { readProfile } = await import('./read.ts');
      const profile = await readProfile(request.project.codeFolder);
      return await this.#mutex.run(profile.name, () => this.#deployLocked(operation, profile, request));
    });
  }

  /** Where the profile would send secrets that the version deployed now does not send there. */
  newDestinations(profile: Profile): SecretDestination[] {
    const { profiles, secretScope } = this.#options;
    const before = profiles.get(profile.name)?.config ?? null;
    return newDestinations(profile, before, (name) => secretScope(profile.name, name));
  }

  /** Rolls back a deploy after a crash. Nothing remains, so a retry with the same opId starts a new deploy. */
  async rollBack(operation: Operation): Promise<void> {
    if (this.#running.has(operation)) return;
    const { profile } = DataSchema.parse(operation.data);
    const undo = async (): Promise<void> => {
      await this.#removeCode(operation);
      this.#options.operations.forget(operation);
    };
    // Another deploy of the profile may have begun since.
    if (profile === undefined) await undo();
    else await this.#mutex.run(profile, undo);
  }

  async #deployLocked(
    begun: Operation,
    profile: Profile,
    { project, ignored, origin, removeSecretFiles, destinations, signal, reportProgress }: DeployRequest,
  ): Promise<DeployResult> {
    const { engine, database, profiles, defaultImage, setups, operations, log, now } = this.#options;
    signal.throwIfAborted();
    // Before anything of the project runs.
    requireAgreement(profile.name, this.newDestinations(profile), destinations);
    await requireEngine(engine, profile);
    const source = await imageSourceOf(profile, project.codeFolder, defaultImage);
    const { build, image: base, warnings } = source;
    await requireSource(engine.images, source, reportProgress, signal);
    requireEntry(profile, project.code);
    requireConfiguration(profile, project);
    // Before anything of the version exists: a setup takes minutes, and its image is found again by its key.
    const { profile: complete, notes } = await withProjectPackages(profile, project.codeFolder);
    const seed = await this.#setupSeed(profile, project, signal);
    const image = await setups.ensureImage({
      ...{ profile: complete, notes, image: base, build, seed },
      ...{ removeSecretFiles, reportProgress, signal },
    });

    const { version, operation } = database.transaction(() => {
      const version = profiles.reserveVersion(profile.name, now());
      const numbered = { profile: profile.name, version, reserved: true };
      return { version, operation: operations.recordStep(begun, 'numbered', numbered) };
    });
    await failpoint('deploy.after-intent');
    try {
      return await this.#publish(
        operation,
        { project, ignored, origin, profile, image, version, warnings },
        reportProgress,
        signal,
      );
    } catch (error) {
      await this.#removeCode(operation).catch((left: unknown) => {
        // The caller gets the deploy's own failure; gc finds these leftovers.
        log.warn('cannot remove the code of a failed deploy', {
          profile: profile.name,
          version,
          error: left,
        });
      });
      throw error;
    }
  }

  /** What the commands of the setup begin with. The git history is copied as it will be published. */
  async #setupSeed(
    profile: Profile,
    project: UploadedProject,
    signal: AbortSignal,
  ): Promise<SetupSeed | null> {
    const seed = seedOf(profile);
    if (seed === null || !needsSeed(profile)) return null;
    const { code, codeFolder } = project;
    const history = seed.git ? join(dirname(codeFolder), 'setup-history') : null;
    if (history !== null)
      await (await this.#readHistory(project, seed, signal)).copyTo(history, { used: code, signal });
    return await setupSeed(profile, { code: codeFolder, history }, this.#options.fillWorkspace, signal);
  }

  async #publish(
    operation: Operation,
    what: {
      readonly project: UploadedProject;
      readonly ignored: IgnoredFiles;
      readonly origin: ProjectOrigin | null;
      readonly profile: Profile;
      readonly image: string;
      readonly version: number;
      readonly warnings: readonly string[];
    },
    reportProgress: ReportProgress,
    signal: AbortSignal,
  ): Promise<DeployResult> {
    const { home, engine, profiles } = this.#options;
    const { project, ignored, origin, profile, image, version, warnings } = what;
    const { source, code, codeFolder } = project;
    const target = home.deploy(profile.name, version);
    await mkdir(dirname(target), { recursive: true, mode: 0o700 });
    // Leftovers of a version of that number that was never published.
    await removeTree(target);
    await removeTree(home.deployedGitHistory(profile.name, version));
    await removeTree(home.deployedConfiguration(profile.name, version));
    await failpoint('deploy.after-copy');

    const seed = seedOf(profile);
    const history = seed?.git === true ? await this.#readHistory(project, seed, signal) : null;
    const sourceHash = sourceHashOf(code.hash, history?.hash, project.configuration?.tree.hash);
    const report = async (historyVersion: number) => ({
      ignored,
      seed: await seedExtent(
        codeFolder,
        history === null ? null : home.deployedGitHistory(profile.name, historyVersion),
        seed,
        signal,
      ),
    });
    const before = profiles.get(profile.name);
    if (before?.sourceHash === sourceHash && before.image === image) {
      const extent = await report(before.version);
      // Another commit may have the same files.
      await writeSourceRecord(home.deployedSource(profile.name, before.version), origin, code.sources);
      profiles.releaseVersion(profile.name, version);
      // A newer program may read the same file differently.
      return this.#record(
        operation,
        { ...before, source, config: profile },
        { replaced: false, unchanged: true, warnings, ...extent },
      );
    }
    await history?.copyTo(home.deployedGitHistory(profile.name, version), {
      used: code,
      signal,
      progress: (files) => reportProgress('copy', files, undefined, 'files'),
    });
    const extent = await report(version);
    signal.throwIfAborted();
    await writeSourceRecord(home.deployedSource(profile.name, version), origin, code.sources);
    if (project.configuration !== null)
      await rename(project.configuration.folder, home.deployedConfiguration(profile.name, version));
    await rename(codeFolder, target);
    syncDirectory(dirname(target));
    syncDirectory(home.deploys);
    await engine.publishCode(profile.name, version, target);
    await failpoint('deploy.after-publish');

    const { files, bytes } = code;
    const deployedAt = this.#options.now();
    await failpoint('deploy.before-row');
    const row = {
      name: profile.name,
      version,
      deployedAt,
      source,
      config: profile,
      sourceHash,
      files,
      bytes,
      image,
    };
    const how = { replaced: before !== null, unchanged: false, warnings, ...extent };
    const deployed = this.#record(operation, row, how);
    await this.#versions.removeUnused(profile.name);
    return deployed;
  }

  #record(
    operation: Operation,
    row: NewProfileRow,
    how: Omit<DeployResult, 'profile' | 'warnings' | 'preset' | 'configuration'> & {
      readonly warnings: readonly string[];
    },
  ): DeployResult {
    const { database, profiles, operations, sessions, log } = this.#options;
    const deployed = database.transaction(() => {
      this.#cancelUndeploys(row.name);
      profiles.upsert(row);
      const profile = summarize(row, sessions.sessionsOf(row.name).length);
      const preset = presetOf(row.config.agent);
      const warnings = [...how.warnings, ...this.#warnings(row.config)];
      const answer = { profile, ...how, preset, warnings, configuration: null };
      operations.finish(operation, answer);
      return answer;
    });
    log.info('deployed', {
      profile: row.name,
      version: row.version,
      files: row.files,
      bytes: row.bytes,
      replaced: how.replaced,
      unchanged: how.unchanged,
    });
    return deployed;
  }

  async #readHistory(
    { codeFolder, historyFolder }: UploadedProject,
    { folder, ignore }: Seed,
    signal: AbortSignal,
  ): Promise<GitHistory> {
    if (historyFolder === null)
      throw gitHistoryError('the client did not send it', 'deploy with a program of this version');
    const paths = new Set<string>();
    for await (const { path } of seedItems({ code: codeFolder, history: null, folder, ignore })) {
      signal.throwIfAborted();
      paths.add(
        parsePath(path)
          .map((name) => name.toString('latin1'))
          .join('/'),
      );
    }
    return await GitHistory.readUploaded(historyFolder, { isSeeded: (path) => paths.has(path), signal });
  }

  #warnings(profile: Profile): string[] {
    const { localPaths } = this.#options.engine.capabilities();
    return [
      ...findProfileWarnings(profile, localPaths ? totalmem() : null),
      ...secretWarnings(profile, (name) => this.#options.secretScope(profile.name, name)),
    ];
  }

  /** Cancels an unfinished undeploy of an earlier supervisor: a new deploy means that the profile is wanted. */
  #cancelUndeploys(name: string): void {
    const { operations } = this.#options;
    for (const operation of operations.pending()) {
      if (operation.kind !== UNDEPLOY || operation.data['profile'] !== name) continue;
      operations.fail(operation, redeployedError(name));
    }
  }

  /** Removes what an unfinished deploy has written; does nothing if there is nothing. */
  async #removeCode(operation: Operation): Promise<void> {
    const { home, engine, profiles } = this.#options;
    const { profile, version, reserved } = DataSchema.parse(operation.data);
    // An operation without a reservation is from an earlier version of Holdfast: another deploy may have its number
    // by now.
    if (profile === undefined || version === undefined || profiles.hasVersion(profile, version)) return;
    const target = home.deploy(profile, version);
    // Of an earlier version of Holdfast, which copied the code to this name.
    await removeTree(`${target}.tmp`);
    await engine.removeCode(profile, version);
    await removeTree(home.deployedGitHistory(profile, version));
    await removeTree(home.deployedConfiguration(profile, version));
    await rm(home.deployedSource(profile, version), { force: true });
    await removeTree(target);
    if (reserved) profiles.releaseVersion(profile, version);
  }
}

/** Of the trees of a version together. */
function sourceHashOf(code: string, history: string | undefined, configuration: string | undefined): string {
  const withHistory =
    history === undefined ? code : createHash('sha256').update(`${code}:${history}`).digest('hex');
  if (configuration === undefined) return withHistory;
  return createHash('sha256').update(`${withHistory}:configuration:${configuration}`).digest('hex');
}

/** Files and bytes that a new workspace of the profile starts with; null for none. */
async function seedExtent(
  code: string,
  history: string | null,
  seed: Seed | null,
  signal: AbortSignal,
): Promise<DeployResult['seed']> {
  if (seed === null) return null;
  const extent = { files: 0, bytes: 0 };
  try {
    for await (const item of seedItems({ code, history, folder: seed.folder, ignore: seed.ignore })) {
      signal.throwIfAborted();
      if (item.kind === 'folder') continue;
      extent.files += 1;
      if (item.kind === 'file') extent.bytes += item.size;
    }
  } catch (error) {
    // Starting a session reports the error; the code itself is valid.
    if (error instanceof HoldfastError && error.code === 'not_found') return null;
    throw error;
  }
  return extent;
}
