import { HoldfastError } from '../../protocol/errors.ts';
import type { FolderUsage } from '../../protocol/search.ts';

/** Shares of the limit at which it is near, and below which it is far again. */
const NEAR = 0.9;
const FAR = 0.85;

export type StorageState = 'far' | 'near' | 'over';

/** How a workspace stands to its limit. Between far and near it stays what it was, so that one file does not warn again and again. */
export function storageState(bytes: number, limit: number, before: StorageState): StorageState {
  if (bytes > limit) return 'over';
  if (bytes >= limit * NEAR) return 'near';
  if (bytes >= limit * FAR && before !== 'far') return 'near';
  return 'far';
}

/** What is refused once a workspace is larger than it may be; `folders` are the biggest. */
export function storageLimitError(
  what: string,
  bytes: number,
  limit: number,
  folders: readonly FolderUsage[],
): HoldfastError {
  return new HoldfastError('storage_limit', what, {
    why: `the workspace holds ${String(bytes)} bytes and may hold ${String(limit)}`,
    next: 'see what is big with `holdfast workspace du SESSION`, remove some of it, or raise `workspace.limit`',
    details: {
      bytes,
      limit,
      folders: folders.map(({ path, bytes: size, files }) => ({ path, bytes: size, files })),
    },
  });
}
