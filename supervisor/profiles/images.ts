import { HoldfastError } from '../../protocol/errors.ts';
import { HOW_TO_GET_HOLDFAST_IMAGES } from '../engine/holdfast-images.ts';
import type { EngineImages } from '../engine/port.ts';
import { requireDevcontainerImage } from '../setup/dockerfile/base-images.ts';
import type { ImageSource } from './image-source.ts';

/** Reports the progress of a long request: stage, done, total, unit. */
export type ReportProgress = (stage: string, done?: number, of?: number, unit?: string) => void;

/**
 * Ensures that the engine has the image. Errors: `image_not_found`, `image_pull_failed`, `engine_unavailable`,
 * `cancelled`.
 */
export async function requireImage(
  images: EngineImages,
  reference: string,
  isDefault: boolean,
  reportProgress: ReportProgress,
  signal: AbortSignal,
): Promise<void> {
  if (await images.has(reference)) return;
  if (isDefault) {
    // It is built on this machine and published nowhere: a pull would fetch whatever somebody has put into a registry
    // under this name.
    throw new HoldfastError('image_not_found', `The image ${reference} is not on the engine`, {
      why: 'profiles without an `image` use it, and it is built on this machine',
      next: `${HOW_TO_GET_HOLDFAST_IMAGES}; or name another in \`image\``,
      details: { image: reference },
    });
  }
  reportProgress(`pull ${reference}`);
  await images.pull(
    reference,
    ({ status, doneBytes, totalBytes }) =>
      reportProgress(status, doneBytes, totalBytes ?? undefined, 'bytes'),
    signal,
  );
}

/**
 * Ensures that the engine has the image of the source, and that a file of the project may name it; a build looks after its own images.
 * Errors: those of `requireImage`, `profile_invalid`, `not_supported`.
 */
export async function requireSource(
  images: EngineImages,
  { build, image, isDefault, listed }: ImageSource,
  reportProgress: ReportProgress,
  signal: AbortSignal,
): Promise<void> {
  if (build !== null) return;
  if (listed === null) await requireImage(images, image, isDefault, reportProgress, signal);
  else await requireDevcontainerImage(images, image, listed, { report: reportProgress, signal });
}
