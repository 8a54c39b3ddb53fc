import { HoldfastError } from '../../protocol/errors.ts';
import { HOW_TO_GET_HOLDFAST_IMAGES } from '../engine/holdfast-images.ts';
import type { EngineImages } from '../engine/port.ts';

/** Tells how far a long request is: stage, done, of, unit. */
export type ReportProgress = (stage: string, done?: number, of?: number, unit?: string) => void;

/**
 * The image is on the engine when this returns. Errors: `image_not_found`, `image_pull_failed`, `engine_unavailable`,
 * `cancelled`.
 */
export async function requireImage(
  images: EngineImages,
  reference: string,
  isDefault: boolean,
  tell: ReportProgress,
  signal: AbortSignal,
): Promise<void> {
  if (await images.has(reference)) return;
  if (isDefault) {
    // It is built here and published nowhere: asking a registry for it would bring whatever somebody put there.
    throw new HoldfastError('image_not_found', `The image ${reference} is not on the engine`, {
      why: 'it is what profiles without an `image` run in, and it is built on this machine',
      next: `${HOW_TO_GET_HOLDFAST_IMAGES}; or name another in \`image\``,
      details: { image: reference },
    });
  }
  tell(`pull ${reference}`);
  await images.pull(
    reference,
    ({ status, doneBytes, totalBytes }) => tell(status, doneBytes, totalBytes ?? undefined, 'bytes'),
    signal,
  );
}
