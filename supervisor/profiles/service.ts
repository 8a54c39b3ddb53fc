import type { ProfileSummary } from '../../protocol/entities.ts';
import { KeyedMutex } from '../base/keyed-mutex.ts';
import type { ProfileRow } from '../store/profiles.ts';
import type { DeployResult } from '../../protocol/deploy-result.ts';
import { DEPLOY, type DeployRequest, Deploys } from './deploys.ts';
import type { ProfileServiceOptions } from './requests.ts';
import { summarize } from './summary.ts';
import { UNDEPLOY, type Undeployed, Undeploys } from './undeploys.ts';
import { CodeVersions } from './versions.ts';

/** Deployed profiles. The code of a profile is a series of immutable numbered folders, one of which is current. */
export class ProfileService {
  readonly versions: CodeVersions;
  readonly #options: ProfileServiceOptions;
  readonly #lanes = new KeyedMutex();
  readonly #deploys: Deploys;
  readonly #undeploys: Undeploys;

  constructor(options: ProfileServiceOptions) {
    this.#options = options;
    this.versions = new CodeVersions(options);
    this.#deploys = new Deploys(options, this.#lanes, this.versions);
    this.#undeploys = new Undeploys(options, this.#lanes, this.versions);
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
   * Deploys a folder as the profile's current version; workspaces stay as they are. Equal files change nothing.
   * Errors: those of `readProfile`, `copyProject` and `requireImage`, `engine_unavailable`, `not_supported`,
   * `conflict`.
   */
  deploy(request: DeployRequest): Promise<DeployResult> {
    return this.#deploys.run(request);
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
    const { operations, log } = this.#options;
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

  /** Resolves when no deploy or undeploy is under way. */
  async waitUntilIdle(): Promise<void> {
    await this.#lanes.drained();
  }
}
