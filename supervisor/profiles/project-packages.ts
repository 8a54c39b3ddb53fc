import { PRESETS } from '../../protocol/presets/index.ts';
import { type Profile, presetOf } from '../../protocol/profile.ts';
import { findPackages } from '../../project/packages.ts';

/**
 * The profile with its packages listed, where it says `auto`: those of its preset and those that its project names. Notes say on one
 * line each where they come from. `folder`: the code of a version. Errors: those of `findPackages`.
 */
export async function withProjectPackages(
  profile: Profile,
  folder: string,
): Promise<{ readonly profile: Profile; readonly notes: readonly string[] }> {
  const { agent, setup } = profile;
  if (setup?.packages !== 'auto') return { profile, notes: [] };
  const preset = presetOf(agent);
  const { packages, notes } = await findPackages(folder, preset === null ? [] : PRESETS[preset].packages);
  return { profile: { ...profile, setup: { ...setup, packages } }, notes };
}
