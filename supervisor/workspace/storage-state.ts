import { HoldfastError } from '../../protocol/errors.ts';
import type { FolderUsage } from '../../protocol/search.ts';

/** Shares of the limit: at `NEAR` a warning is due, and below `FAR` the next one can come. */
const NEAR = 0.9;
const FAR = 0.85;

export type StorageState = 'far' | 'near' | 'over';

/** How full a workspace is. Between `FAR` and `NEAR` the state stays as it was, so that one file does not warn repeatedly. */
export function storageState(bytes: number, limit: number, before: StorageState): StorageState {
  if (bytes > limit) return 'over';
  if (bytes >= limit * NEAR) return 'near';
  if (bytes >= limit * FAR && before !== 'far') return 'near';
  return 'far';
}

/** The error for a workspace over its limit; `folders` are the largest ones. */
export function storageLimitError(
  what: string,
  bytes: number,
  limit: number,
  folders: readonly FolderUsage[],
): HoldfastError {
  return new HoldfastError('storage_limit', what, {
    why: `the workspace holds ${String(bytes)} bytes and may hold ${String(limit)}`,
    next: 'find large folders with `holdfast workspace du SESSION`, remove some files, or raise `workspace.limit`',
    details: {
      bytes,
      limit,
      folders: folders.map(({ path, bytes: size, files }) => ({ path, bytes: size, files })),
    },
  });
}

/** The error for a run directory that the agent filled: requests, outputs and whatever else it put there. */
export function runLimitError(what: string, bytes: number, limit: number): HoldfastError {
  return new HoldfastError('storage_limit', what, {
    why: `the agent has put ${String(bytes)} bytes into /run/holdfast, which may hold ${String(limit)}`,
    next: 'run `holdfast session stop SESSION`, which removes them with the sandbox',
    details: { bytes, limit, directory: 'run' },
  });
}

/** The error for a HOME over `limits.home`. */
export function homeLimitError(what: string, bytes: number, limit: number): HoldfastError {
  return new HoldfastError('storage_limit', what, {
    why: `the agent's HOME holds ${String(bytes)} bytes and may hold ${String(limit)}`,
    next:
      'run `holdfast session stop SESSION`: the next sandbox keeps only `agent.state` and `agent.caches`; ' +
      'if that is not enough, remove files with `holdfast exec`, or raise `limits.home`',
    details: { bytes, limit, directory: 'home' },
  });
}

/** Bytes beyond the output of turns: notes, requests, terminals, outputs that the supervisor has not removed yet. */
const RUN_DIRECTORY_EXTRA = 2 ** 30;

/** What a run directory may hold, in bytes; `output`: the limit of one turn's output. */
export function runDirectoryLimit(output: number): number {
  return 2 * output + RUN_DIRECTORY_EXTRA;
}
