import type { CachedDirectory } from './cached-directory.ts';

/** Limits a scan to a part of a directory tree. What it hides is not part of the tree, and a restore leaves it alone. */
export interface TreeFilter {
  /** Called before each walk, with a descriptor of the top directory. */
  prepare(root: number): void;
  /** For the names of a directory, except `.` and `..`: whether one is hidden. Null: none is. */
  hiddenIn(directory: CachedDirectory): ((name: Buffer, inode: bigint) => boolean) | null;
  /** The directory only leads to what is scanned: its own mode, times and attributes are not part of the tree. */
  isOnlyOnTheWay(directory: CachedDirectory): boolean;
}
