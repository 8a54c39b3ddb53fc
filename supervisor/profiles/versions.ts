import type { VersionRow } from '../store/profiles.ts';
import { removeTree } from '../store/remove-tree.ts';
import type { ProfileServiceOptions } from './requests.ts';

type Options = Pick<ProfileServiceOptions, 'home' | 'engine' | 'profiles' | 'log'>;

/** Deployed code that nothing runs any more. */
export class CodeVersions {
  readonly #options: Options;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Neither current nor behind a session's sandbox or a turn. */
  listUnused(profile?: string): VersionRow[] {
    const { profiles } = this.#options;
    return profiles
      .listVersions()
      .filter((one) => profile === undefined || one.profile === profile)
      .filter(({ profile: name, version }) => !profiles.versionsInUse(name).includes(version));
  }

  /** Killed on any line, the version stays noted and is removed again. Returns its bytes on this machine. */
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
    const code = await removeTree(home.deploy(profile, version));
    profiles.markVersionRemoved(profile, version);
    return code.bytes + history.bytes;
  }

  /** As far as it can be done now; the rest is left to gc. */
  async removeUnused(profile: string): Promise<void> {
    for (const version of this.listUnused(profile)) {
      try {
        await this.remove(version);
      } catch (error) {
        this.#options.log.warn('an old version stays until the next gc', { ...version, error });
      }
    }
  }
}
