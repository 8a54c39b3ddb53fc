import type { Git } from './git.ts';

/** Parents of one commit: each is a word of a command. */
const MOST_PARENTS = 500;

export interface Logs {
  /** Full name of a branch that is about to be deleted, with its log; null where there is none. */
  readonly branch: string | null;
  /** Git in a worktree that is about to be removed, with the log of its head and its own references; null for none. */
  readonly worktree: Git | null;
  /** Commits that stay, and their ancestors. */
  readonly kept: readonly string[];
}

/**
 * Commits that are gone with a branch and a worktree, although they are checked out nowhere: somebody made them there, and reset
 * or rebased since. Only the tips, the newest first; no reference that stays reaches them. Errors: `conflict` if git cannot read a
 * log.
 */
export async function forgottenCommits(git: Git, { branch, worktree, kept }: Logs): Promise<string[]> {
  const logOf = ['log', '--walk-reflogs', '--format=%H'];
  const own = ['refs/worktree', 'refs/bisect', 'refs/rewritten'];
  const known = new Set([
    ...(branch === null ? [] : await lines(git, [...logOf, branch, '--'])),
    ...(worktree === null ? [] : await lines(worktree, [...logOf, 'HEAD', '--'])),
    ...(worktree === null ? [] : await lines(worktree, ['for-each-ref', '--format=%(objectname)', ...own])),
  ]);
  if (known.size === 0) return [];
  // Otherwise git would count what other worktrees have checked out, that of the removed one too.
  const others = ['--single-worktree', ...(branch === null ? [] : [`--exclude=${branch}`]), '--all'];
  const staying = ['--not', ...others, ...kept];
  const found = await lines(git, ['rev-list', '--parents', ...staying, '--stdin'], [...known].join('\n'));
  const commits = found.map((line) => line.split(' '));
  const parents = new Set(commits.flatMap(([, ...rest]) => rest));
  return commits.flatMap(([commit = '']) => (parents.has(commit) ? [] : [commit]));
}

/** A commit with this tree that all of these are ancestors of. */
export async function commitOver(
  git: Git,
  {
    tree,
    parent,
    others,
  }: { readonly tree: string; readonly parent: string; readonly others: readonly string[] },
): Promise<string> {
  const input = Buffer.from('Work that was there when a handoff was undone\n');
  let newest = parent;
  let at = 0;
  do {
    const parents = [newest, ...others.slice(at, at + MOST_PARENTS)].flatMap((one) => ['-p', one]);
    newest = await git.text(['commit-tree', tree, ...parents, '-F', '-'], { input });
    at += MOST_PARENTS;
  } while (at < others.length);
  return newest;
}

async function lines(git: Git, command: readonly string[], input?: string): Promise<string[]> {
  const options = { what: 'The logs of the repository cannot be read' };
  const output = await git.text(
    command,
    input === undefined ? options : { ...options, input: Buffer.from(`${input}\n`) },
  );
  return output.split('\n').filter((line) => line !== '');
}
