import { statfs } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';
import { LABEL } from './labels.ts';
import type { BuildImagesReply } from './replies.ts';

/** What a setup leaves free on the engine's disk, where that can be seen. */
const FREE_BYTES = 2 ** 30;

/**
 * What the finished steps of a build have written, whatever later ones removed again: each is an image on the one before it. `images`:
 * all of the engine.
 */
export function bytesOfSteps(images: z.infer<typeof BuildImagesReply>, setupId: string): number {
  const sizes = new Map(images.map(({ Id, Size }) => [Id, Size]));
  return images
    .filter(({ Labels }) => Labels?.[LABEL.session] === setupId)
    .reduce((sum, { Size, ParentId }) => sum + Math.max(0, Size - (sizes.get(ParentId) ?? 0)), 0);
}

export interface DiskWatchOptions {
  /** The engine's data, where they are on this machine; null: elsewhere. */
  readonly folder: string | null;
  /** Bytes so far. */
  readonly written: () => Promise<number>;
  readonly limitBytes: number;
  readonly everyMs: number;
  /** Ends the watch. */
  readonly signal: AbortSignal;
}

/** Why a setup has to end: it wrote more than the limit, or the engine's disk is nearly full. Null: the signal came first. */
export async function watchDisk({
  folder,
  written,
  limitBytes,
  everyMs,
  signal,
}: DiskWatchOptions): Promise<HoldfastError | null> {
  while (!signal.aborted) {
    const full = await fullDiskError(folder);
    if (full !== null) return full;
    // What cannot be measured now is measured again, and at the end.
    if ((await written().catch(() => 0)) > limitBytes) return diskLimitError(limitBytes);
    await sleep(everyMs, undefined, { signal, ref: false }).catch(() => undefined);
  }
  return null;
}

export async function fullDiskError(
  folder: string | null,
  measure: (folder: string) => Promise<number | null> = freeBytes,
): Promise<HoldfastError | null> {
  const free = folder === null ? null : await measure(folder);
  if (free === null || free >= FREE_BYTES) return null;
  return new HoldfastError('setup_failed', 'The disk of the engine is nearly full', {
    why: `${folder ?? ''} has ${Math.floor(free / 2 ** 20)} MiB left, and a setup leaves ${FREE_BYTES / 2 ** 20} MiB free`,
    next: 'remove what the engine does not need (`holdfast gc`, `docker image prune`)',
    details: { freeBytes: free },
  });
}

export function diskLimitError(limitBytes: number): HoldfastError {
  return new HoldfastError('setup_failed', 'The setup wrote too much', {
    why: `it may write ${limitBytes >= 2 ** 30 ? `${limitBytes / 2 ** 30} GiB` : `${limitBytes} bytes`}, all its steps together`,
    details: { limitBytes },
  });
}

/** Null if this user may not read it. */
async function freeBytes(folder: string): Promise<number | null> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch {
    return null;
  }
}
