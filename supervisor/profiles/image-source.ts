import { devcontainerOf, dockerfileOf } from '../../protocol/dockerfile.ts';
import type { Profile } from '../../protocol/profile.ts';
import type { BuildSource } from '../setup/dockerfile/builds.ts';
import { readDevcontainer } from '../setup/dockerfile/devcontainer.ts';

/** Where the image of a profile comes from, before its setup. */
export interface ImageSource {
  /** The Dockerfile that makes it; null: `image` is the image. */
  readonly build: BuildSource | null;
  readonly image: string;
  /** It is the image of profiles that name none. */
  readonly isDefault: boolean;
  /** Images of this machine alone that a file of the project may name; null: the profile itself names the image. */
  readonly listed: readonly string[] | null;
  /** For people, one sentence each. */
  readonly warnings: readonly string[];
}

/** `folder`: the code of the version. Errors: those of `readDevcontainer`. */
export async function imageSourceOf(
  profile: Profile,
  folder: string,
  defaultImage: string,
): Promise<ImageSource> {
  const devcontainer = devcontainerOf(profile.devcontainer);
  if (devcontainer === null) {
    const use = dockerfileOf(profile.dockerfile);
    return {
      build: use === null ? null : { use, folder },
      image: profile.image ?? defaultImage,
      isDefault: profile.image === undefined,
      listed: null,
      warnings: [],
    };
  }
  const { path, image, ignored } = await readDevcontainer(folder, devcontainer);
  const warnings =
    ignored.length === 0
      ? []
      : [`Of ${path} only the image or the Dockerfile is used; ignored: ${ignored.join(', ')}.`];
  return 'reference' in image
    ? { build: null, image: image.reference, isDefault: false, listed: devcontainer.from, warnings }
    : {
        build: { use: image.dockerfile, folder },
        image: defaultImage,
        isDefault: false,
        listed: null,
        warnings,
      };
}
