import { seedOf } from '../../protocol/profile.ts';
import type { DeployRequest } from './deploys.ts';
import { imageSourceOf } from './image-source.ts';
import { requireSource } from './images.ts';
import { withProjectPackages } from './project-packages.ts';
import { toFailure, type ProfileServiceOptions } from './requests.ts';
import { requireEngine } from './requirements.ts';
import { setupSeed } from './setup-seed.ts';

export type ProfileSetupsOptions = Pick<
  ProfileServiceOptions,
  'home' | 'profiles' | 'engine' | 'setups' | 'fillWorkspace' | 'defaultImage' | 'mutex'
>;

/** Setups of deployed profiles, run again. */
export class ProfileSetups {
  readonly #options: ProfileSetupsOptions;

  constructor(options: ProfileSetupsOptions) {
    this.#options = options;
  }

  /**
   * Runs the setup of a profile again; its sandboxes start from the new image. The id of the setup. A session with active work keeps
   * its sandbox until that ends. Errors: `not_found`, and those of `Setups.runAgain` and `requireSource`.
   */
  async run(
    name: string,
    request: Pick<DeployRequest, 'reportProgress' | 'signal' | 'removeSecretFiles'> & {
      readonly onOutput: (bytes: Buffer) => void;
    },
  ): Promise<string> {
    const { home, engine, profiles, setups, defaultImage, fillWorkspace, mutex } = this.#options;
    const { reportProgress, signal } = request;
    return await mutex.run(name, async () => {
      try {
        signal.throwIfAborted();
        const { config: profile, version } = profiles.getOrThrow(name);
        await requireEngine(engine, profile);
        const history = seedOf(profile)?.git === true ? home.deployedGitHistory(name, version) : null;
        const code = home.deploy(name, version);
        const source = await imageSourceOf(profile, code, defaultImage);
        const { build, image } = source;
        await requireSource(engine.images, source, reportProgress, signal);
        const { profile: complete, notes } = await withProjectPackages(profile, code);
        const seed = await setupSeed(profile, { code, history }, fillWorkspace, signal);
        return await setups.runAgain({
          ...{ profile: complete, notes, image, build, seed, ...request },
          recordUse: (made) => profiles.upsert({ ...profiles.getOrThrow(name), image: made }),
        });
      } catch (error) {
        throw toFailure(error);
      }
    });
  }
}
