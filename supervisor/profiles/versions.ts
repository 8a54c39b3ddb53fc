import type { Engine } from '../engine/port.ts';
import type { Home } from '../store/home.ts';
import type { Profiles, VersionRow } from '../store/profiles.ts';
import { removeTree } from '../store/remove-tree.ts';

/** Deployed code that nothing runs any more. */
export class CodeVersions {
  readonly #home: Home;
  readonly #engine: Engine;
  readonly #profiles: Profiles;

  constructor(home: Home, engine: Engine, profiles: Profiles) {
    this.#home = home;
    this.#engine = engine;
    this.#profiles = profiles;
  }

  /** Neither current nor behind a session's sandbox or a turn. */
  unused(profile?: string): VersionRow[] {
    return this.#profiles
      .versions()
      .filter((one) => profile === undefined || one.profile === profile)
      .filter(({ profile: name, version }) => !this.#profiles.versionsInUse(name).includes(version));
  }

  /** Killed on any line, the version stays noted and is removed again. Returns its bytes on this machine. */
  async remove({
    profile,
    version,
  }: {
    readonly profile: string;
    readonly version: number;
  }): Promise<number> {
    await this.#engine.removeCode(profile, version);
    const { bytes } = await removeTree(this.#home.deploy(profile, version));
    this.#profiles.versionRemoved(profile, version);
    return bytes;
  }
}
