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

/**
 * The facts of each image, by its name. An engine's own images may hold anything, also of other profiles: those that are in no registry
 * have to be listed by the profile. Missing ones are pulled. Errors: `profile_invalid`, `not_supported`, those of a pull.
 */
export async function resolveImages(
  images: Pick<EngineImages, 'facts' | 'pull'>,
  dockerfile: Dockerfile,
  listed: readonly string[],
  pull: { readonly report: (stage: string) => void; readonly signal: AbortSignal },
): Promise<ReadonlyMap<string, ImageFacts>> {
  const found = new Map<string, ImageFacts>();
  for (const { reference, line } of imagesOf(dockerfile)) {
    let facts = await images.facts(reference);
    if (facts === null && OWN.test(reference))
      throw dockerfileError(
        line,
        `${reference} is not on the engine, and it is published nowhere`,
        '`npm start` or `npm run images` builds it',
      );
    if (facts === null) {
      pull.report(`pull ${reference}`);
      await images.pull(reference, ({ status }) => pull.report(`${reference}: ${status}`), pull.signal);
      facts = await images.facts(reference);
    }
    if (facts === null) throw dockerfileError(line, `the engine has no image ${reference}`);
    requireAllowed(reference, facts, line, listed);
    found.set(reference, facts);
  }
  return found;
}

function requireAllowed(
  reference: string,
  { isPrepared, isPublished, hasTriggers }: ImageFacts,
  line: number,
  listed: readonly string[],
): void {
  if (isPrepared)
    throw new HoldfastError('not_supported', `${reference} cannot be used in a Dockerfile`, {
      why: `line ${line}: it was prepared for a profile, and is for that profile alone`,
      next: 'name the image that it was made from',
      details: { line },
    });
  if (!isPublished && !OWN.test(reference) && !listed.includes(reference))
    throw dockerfileError(
      line,
      `${reference} is an image of this machine alone, and may hold what is not meant for this profile`,
      `to allow it, list it: \`dockerfile: { path: …, from: [${reference}] }\``,
    );
  if (hasTriggers)
    throw dockerfileError(
      line,
      `${reference} has ONBUILD instructions, which would run unread`,
      'use the variant of the image without them',
    );
}
