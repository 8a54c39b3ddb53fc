import type { FolderUsage, UsageByFolder } from '../../protocol/search.ts';
import { encodeName } from '../../protocol/paths.ts';
import type { Directory } from '../files/directory.ts';
import { usageOf, type UsageOptions, type UsageVisitor } from './usage.ts';

export interface UsageByFolderOptions extends Omit<UsageOptions, 'visitor'> {
  /** Levels below the folder that are listed. Deeper content counts for its ancestor. */
  readonly depth: number;
  /** Only so many of the largest are listed. */
  readonly limit: number;
}

interface Sum {
  readonly path: string;
  bytes: number;
  files: number;
}

/**
 * The usage of a folder and of its subfolders, largest first. Memory is bounded by depth and limit, not by the tree.
 */
export async function usageByFolder(
  folder: Directory,
  base: string,
  { depth, limit, ...options }: UsageByFolderOptions,
): Promise<UsageByFolder> {
  const open: Sum[] = [];
  let level = 0;
  let done: FolderUsage[] = [];
  const visitor: UsageVisitor = {
    entered(name) {
      level += 1;
      if (level <= depth) {
        open.push({ path: `${open.at(-1)?.path ?? base}/${encodeName(name)}`, bytes: 0, files: 0 });
      }
    },
    counted(bytes) {
      for (const sum of open) {
        sum.bytes = Math.min(sum.bytes + bytes, Number.MAX_SAFE_INTEGER);
        sum.files += 1;
      }
    },
    left() {
      if (level <= depth) {
        const sum = open.pop();
        if (sum !== undefined) done.push(sum);
        if (done.length >= limit * 2 + 100) done = biggest(done, limit);
      }
      level -= 1;
    },
  };
  const total = await usageOf(folder, { ...options, visitor });
  return { ...total, folders: biggest(done, limit) };
}

function biggest(folders: FolderUsage[], limit: number): FolderUsage[] {
  return folders
    .sort((a, b) => b.bytes - a.bytes || (a.path < b.path ? -1 : a.path > b.path ? 1 : 0))
    .slice(0, limit);
}
