import type { Git } from './git.ts';

export interface Worktree {
  /** Absolute. */
  readonly path: string;
  /** Null while its head is detached. */
  readonly branch: string | null;
}

/** The main work tree and all others that the repository knows. */
export async function worktrees(git: Git): Promise<Worktree[]> {
  const listing = await git.text(['worktree', 'list', '--porcelain', '-z']);
  return listing.split('\0\0').flatMap((block) => {
    const lines = block.split('\0');
    const path = lines.find((line) => line.startsWith('worktree '))?.slice('worktree '.length);
    const branch = lines
      .find((line) => line.startsWith('branch refs/heads/'))
      ?.slice('branch refs/heads/'.length);
    return path === undefined ? [] : [{ path, branch: branch ?? null }];
  });
}
