import type { ProfileSummary } from '../../protocol/entities.ts';
import type { ProfileRow } from '../store/profiles.ts';
import { type DeployResult, DeployResultSchema } from '../../protocol/deploy-result.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Params, Result } from '../../protocol/methods.ts';
import { seedOf } from '../../protocol/profile.ts';
import { DEPLOY, type DeployRequest, Deploys } from './deploys.ts';
import type { ProfileServiceOptions } from './requests.ts';
import { requireEngine } from './requirements.ts';
import { readSourceRecord } from './source-record.ts';
import { summarize } from './summary.ts';
import { UNDEPLOY, type Undeployed, Undeploys } from './undeploys.ts';
import { Uploads } from './uploads.ts';
import { CodeVersions } from './versions.ts';

/** Deployed profiles. The code of a profile is a series of immutable numbered folders, one of which is current. */
export class ProfileService {
  readonly versions: CodeVersions;
  readonly uploads: Uploads;
  readonly #options: ProfileServiceOptions;
  readonly #deploys: Deploys;
  readonly #undeploys: Undeploys;

  constructor(options: ProfileServiceOptions) {
    this.#options = options;
    this.versions = new CodeVersions(options);
    this.uploads = new Uploads(options.home);
    this.#deploys = new Deploys(options, options.mutex, this.versions);
    this.#undeploys = new Undeploys(options, options.mutex, this.versions);
  }

  /** Errors: `not_found`. */
  get(name: string): ProfileRow {
    return this.#options.profiles.getOrThrow(name);
  }

  list(): ProfileSummary[] {
    const { profiles, sessions } = this.#options;
    return profiles.list().map((row) => summarize(row, sessions.sessionsOf(row.name).length));
  }

  /**
   * Begins a deploy. Null for `upload` if the `opId` was used before: then there is nothing to send. Errors: those of
   * `checkProfile`, `engine_unavailable`, `not_supported`, `overloaded`, and the first error of the `opId`.
   */
  async beginDeploy(
    { source, profile: text, opId }: Params<'profile/deploy/begin'>,
    owner: object,
  ): Promise<Result<'profile/deploy/begin'>> {
    const first = this.#options.operations.findResult(opId, DEPLOY);
    if (first !== null) {
      const result = DeployResultSchema.parse(first.result);
      return { upload: null, history: false, result, destinations: [] };
    }
    // The YAML parser is a tenth of the program, and only a deploy uses it.
    const { checkProfile } = await import('./read.ts');
    const profile = checkProfile(text);
    await requireEngine(this.#options.engine, profile);
    const upload = await this.uploads.begin(source, owner);
    const destinations = this.#deploys.newDestinations(profile);
    return { upload, history: seedOf(profile)?.git === true, result: null, destinations };
  }

  /**
   * Deploys what was uploaded as the profile's current version; workspaces stay as they are. Equal files change nothing. Errors: those of
   * `readProfile` and `requireSource`, `confirmation_required`, `profile_invalid`, `engine_unavailable`, `not_supported`, `conflict`.
   */
  async commitDeploy(
    { upload, ignored, origin, removeSecretFiles, destinations = [], opId }: Params<'profile/deploy/commit'>,
    owner: object,
    { reportProgress, signal }: Pick<DeployRequest, 'reportProgress' | 'signal'>,
  ): Promise<DeployResult> {
    const project = await this.uploads.finish(upload, owner);
    try {
      const what = { project, ignored, origin, removeSecretFiles, destinations, opId };
      return await this.#deploys.run({ ...what, reportProgress, signal });
    } finally {
      await project.discard().catch((error: unknown) => {
        this.#options.log.warn('cannot remove an upload; the next start tries again', { error });
      });
    }
  }

  /** Where a version comes from, and how its files relate to that commit. Errors: `not_found`, `invalid_params`. */
  async readSource({
    profile,
    version = this.get(profile).version,
    cursor,
    limit,
  }: Params<'profile/source'>): Promise<Result<'profile/source'>> {
    const { profiles, home } = this.#options;
    if (!profiles.hasVersion(profile, version)) {
      throw new HoldfastError('not_found', `There is no version ${version} of the profile ${profile}`, {
        next: 'omit the version for the current one',
      });
    }
    const page = await readSourceRecord(home.deployedSource(profile, version), { cursor, limit });
    return { profile, version, ...page };
  }

  /** Deletes the sessions and their workspaces, then profile and code. Errors: `not_found`, `confirmation_required`. */
  async undeploy(
    name: string,
    options: { readonly force: boolean; readonly opId?: string | undefined },
  ): Promise<Undeployed> {
    if (!options.force) throw this.#undeploys.confirmationError(this.get(name));
    return await this.#undeploys.run(name, options.opId);
  }

  /**
   * Runs after a start or when the engine is back: rolls back interrupted deploys and continues undeploys. What needs
   * an unreachable engine waits for the next call.
   */
  async recover(): Promise<void> {
    const { operations, setups, log } = this.#options;
    await this.uploads.removeLeftovers().catch((error: unknown) => {
      log.warn('cannot remove uploads of an earlier supervisor', { error });
    });
    await setups.recover();
    for (const operation of operations.pending()) {
      try {
        if (operation.kind === DEPLOY) await this.#deploys.rollBack(operation);
        else if (operation.kind === UNDEPLOY) await this.#undeploys.resume(operation);
      } catch (error) {
        log.warn('cannot finish an operation of an earlier supervisor', {
          operation: operation.kind,
          error,
        });
      }
    }
  }

  /** Resolves when no deploy, setup or undeploy is under way. */
  async waitUntilIdle(): Promise<void> {
    await this.#options.mutex.drained();
  }
}
