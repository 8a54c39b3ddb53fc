import { rm } from 'node:fs/promises';
import type { VersionRow } from '../store/profiles.ts';
import { removeTree } from '../store/remove-tree.ts';
import type { ProfileServiceOptions } from './requests.ts';

type Options = Pick<ProfileServiceOptions, 'home' | 'engine' | 'profiles' | 'log'>;

/** Removes deployed code that nothing uses. */
export class CodeVersions {
  readonly #options: Options;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Versions that are not current and that no sandbox and no turn uses. */
  listUnused(profile?: string): VersionRow[] {
    const { profiles } = this.#options;
    return profiles
      .listVersions()
      .filter((one) => profile === undefined || one.profile === profile)
      .filter(({ profile: name, version }) => !profiles.versionsInUse(name).includes(version));
  }

  /**
   * Removes the code of a version and returns its bytes. After a crash the version is still recorded and is removed
   * again.
   */
  async remove({
    profile,
    version,
  }: {
    readonly profile: string;
    readonly version: number;
  }): Promise<number> {
    const { engine, home, profiles } = this.#options;
    await engine.removeCode(profile, version);
    const history = await removeTree(home.deployedGitHistory(profile, version));
    const configuration = await removeTree(home.deployedConfiguration(profile, version));
    await rm(home.deployedSource(profile, version), { force: true });
    const code = await removeTree(home.deploy(profile, version));
    profiles.markVersionRemoved(profile, version);
    return code.bytes + history.bytes + configuration.bytes;
  }

  /** Removes what it can; gc removes the rest. */
  async removeUnused(profile: string): Promise<void> {
    for (const version of this.listUnused(profile)) {
      try {
        await this.remove(version);
      } catch (error) {
        this.#options.log.warn('cannot remove an old version; the next gc tries again', {
          ...version,
          error,
        });
      }
    }
  }
}
