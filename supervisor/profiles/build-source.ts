import { dockerfileOf } from '../../protocol/dockerfile.ts';
import type { Profile } from '../../protocol/profile.ts';
import type { BuildSource } from '../setup/dockerfile/builds.ts';

/** The Dockerfile that makes the image of the profile; null for none. `folder`: the code of the version. */
export function buildOf(profile: Profile, folder: string): BuildSource | null {
  const use = dockerfileOf(profile.dockerfile);
  return use === null ? null : { use, folder };
}
