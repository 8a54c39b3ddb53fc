import { HoldfastError } from '../../../protocol/errors.ts';
import type { EngineImages, ImageFacts } from '../../engine/port.ts';
import { dockerfileError } from './lines.ts';
import type { Dockerfile, Source } from './parse.ts';

/** Our agent images, which are built on this machine and published nowhere. */
const OWN = /^holdfast\/agent(?:-[a-z]+)?(?::[\w.-]+)?$/;

/** The images that a Dockerfile begins with or copies from. */
export function imagesOf({ stages }: Dockerfile): { reference: string; line: number }[] {
  const sources = stages.flatMap(({ base, instructions }): (Source | null)[] => [
    base,
    ...instructions.map((one) => (one.kind === 'copy' ? one.from : null)),
  ]);
  const found = new Map<string, { reference: string; line: number }>();
  for (const source of sources) {
    if (source?.kind === 'image' && !found.has(source.reference)) found.set(source.reference, source);
  }
  return [...found.values()];
}

/** Where an image is named. */
interface Place {
  /** Whether the image is built on there. */
  readonly isBuilt: boolean;
  /** As people call it, with its article. */
  readonly file: string;
  /** How to list an image of this machine. */
  readonly listing: (reference: string) => string;
  readonly refuse: (why: string, next?: string) => HoldfastError;
}
type Images = Pick<EngineImages, 'facts' | 'pull'>;
interface Pull {
  readonly report: (stage: string) => void;
  readonly signal: AbortSignal;
}

/**
 * The facts of each image, by its name. An engine's own images may hold anything, also of other profiles: those that are in no registry
 * have to be listed by the profile. Missing ones are pulled. Errors: `profile_invalid`, `not_supported`, those of a pull.
 */
export async function resolveImages(
  images: Images,
  dockerfile: Dockerfile,
  listed: readonly string[],
  pull: Pull,
): Promise<ReadonlyMap<string, ImageFacts>> {
  const found = new Map<string, ImageFacts>();
  for (const { reference, line } of imagesOf(dockerfile)) {
    const facts = await resolve(images, reference, listed, pull, {
      isBuilt: true,
      file: 'a Dockerfile',
      listing: (name) => `\`dockerfile: { path: …, from: [${name}] }\``,
      refuse: (why, next) => dockerfileError(line, why, next),
    });
    found.set(reference, facts);
  }
  return found;
}

/** Applies the same rules to the image that a devcontainer.json names. Errors: those of `resolveImages`. */
export async function requireDevcontainerImage(
  images: Images,
  reference: string,
  listed: readonly string[],
  pull: Pull,
): Promise<void> {
  const refuse = (why: string, next = 'name another image'): HoldfastError =>
    new HoldfastError('profile_invalid', 'The image of devcontainer.json cannot be used', {
      why,
      next,
      details: { image: reference },
    });
  if (ID.test(reference))
    throw refuse(`${reference} may be the id of an image`, 'name it as registry/name:tag');
  const listing = (name: string): string => `\`devcontainer: { from: [${name}] }\``;
  await resolve(images, reference, listed, pull, {
    ...{ isBuilt: false, file: 'a devcontainer.json', listing, refuse },
  });
}
/** An engine takes the first digits of an id as well. */
const ID = /^sha256:|^[0-9a-f]+$/i;

async function resolve(
  images: Images,
  reference: string,
  listed: readonly string[],
  pull: Pull,
  place: Place,
): Promise<ImageFacts> {
  let facts = await images.facts(reference);
  if (facts === null && OWN.test(reference))
    throw place.refuse(
      `${reference} is not on the engine, and it is published nowhere`,
      '`npm start` or `npm run images` builds it',
    );
  if (facts === null) {
    pull.report(`pull ${reference}`);
    await images.pull(reference, ({ status }) => pull.report(`${reference}: ${status}`), pull.signal);
    facts = await images.facts(reference);
  }
  if (facts === null) throw place.refuse(`the engine has no image ${reference}`);
  requireAllowed(reference, facts, listed, place);
  return facts;
}

function requireAllowed(
  reference: string,
  { isPrepared, isPublished, hasTriggers, hasVolumes }: ImageFacts,
  listed: readonly string[],
  { isBuilt, file, listing, refuse }: Place,
): void {
  if (isPrepared) {
    const { why, details } = refuse('it was prepared for a profile, and is for that profile alone');
    throw new HoldfastError('not_supported', `${reference} cannot be used in ${file}`, {
      ...(why === undefined ? {} : { why }),
      next: 'name the image that it was made from',
      ...(details === undefined ? {} : { details }),
    });
  }
  if (!isPublished && !OWN.test(reference) && !listed.includes(reference))
    throw refuse(
      `${reference} is an image of this machine alone, and may hold what is not meant for this profile`,
      `to allow it, list it: ${listing(reference)}`,
    );
  if (isBuilt && hasTriggers)
    throw refuse(
      `${reference} has ONBUILD instructions, which would run unread`,
      'use the variant of the image without them',
    );
  if (isBuilt && hasVolumes)
    throw refuse(
      `${reference} has volumes (VOLUME): what a step writes there is lost, and nothing bounds it`,
      'begin with an image without them, and install the program with RUN',
    );
}
