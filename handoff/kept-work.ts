import { HoldfastError } from '../protocol/errors.ts';
import { fromBytes, type RawPath } from '../project/raw-path.ts';
import { commitOver } from './forgotten-commits.ts';
import type { Git } from './git.ts';
import type { Journal } from './journal.ts';
import { listed } from './listed.ts';
import { withIndexOf } from './temporary-index.ts';

const NO_COMMIT = '0'.repeat(40);

export function keptRefOf({ handoff }: Pick<Journal, 'handoff'>): string {
  return `refs/holdfast/kept/${handoff}`;
}

/**
 * All files of a worktree, ignored ones too, and the forgotten commits, as a commit that the reference names, over what it keeps
 * already. `intact`: files under Git LFS that stay what they are in the commit `head`. Errors: `conflict` with a repository inside
 * the worktree.
 */
export async function keepWork(
  inside: Git,
  reference: string,
  {
    head,
    forgotten,
    intact,
  }: {
    readonly head: string;
    readonly forgotten: readonly string[];
    readonly intact: readonly RawPath[];
  },
): Promise<void> {
  const tree = await withIndexOf(inside, head, async (env) => {
    const input = Buffer.from(intact.map((path) => `${path}\0`).join(''), 'latin1');
    await inside.run(['update-index', '-z', '--assume-unchanged', '--stdin'], { env, input });
    await inside.run(['add', '--all', '--force', '.'], { env });
    return await inside.text(['write-tree'], { env });
  });
  await requireNoNested(inside, head, tree);
  const earlier = await earlierIn(inside, reference);
  if (earlier !== null && (await holdsAll(inside, earlier, { head, forgotten, tree }))) return;
  const others = earlier === null ? forgotten : [earlier, ...forgotten];
  await move(inside, reference, earlier, await commitOver(inside, { tree, parent: head, others }));
}

/** Keeps commits of a branch. What the reference keeps already stays what it shows. */
export async function keepCommits(
  git: Git,
  reference: string,
  head: string,
  forgotten: readonly string[],
): Promise<void> {
  const earlier = await earlierIn(git, reference);
  if (earlier !== null) {
    const tree = `${earlier}^{tree}`;
    if (await holdsAll(git, earlier, { head, forgotten, tree })) return;
    const others = [head, ...forgotten];
    await move(git, reference, earlier, await commitOver(git, { tree, parent: earlier, others }));
    return;
  }
  const tree = `${head}^{tree}`;
  const isAlone = forgotten.length === 0;
  const commit = isAlone ? head : await commitOver(git, { tree, parent: head, others: forgotten });
  await move(git, reference, null, commit);
}

/** What the reference keeps since an undo that died half-way; null for nothing. */
async function earlierIn(git: Git, reference: string): Promise<string | null> {
  return await git.ask(['rev-parse', '--verify', '--quiet', `${reference}^{commit}`]);
}

/** Whether nothing is new: the undo that was interrupted may have removed files since. */
async function holdsAll(
  git: Git,
  earlier: string,
  {
    head,
    forgotten,
    tree,
  }: { readonly head: string; readonly forgotten: readonly string[]; readonly tree: string },
): Promise<boolean> {
  if (forgotten.length > 0 || (await git.ask(['merge-base', '--is-ancestor', head, earlier])) === null)
    return false;
  const newer = await git.bytes([
    'diff-tree',
    '-r',
    '--name-only',
    '--no-renames',
    '--diff-filter=d',
    earlier,
    tree,
  ]);
  return newer.length === 0;
}

/** Never drops what the reference keeps: `commit` is over `earlier`. */
async function move(git: Git, reference: string, earlier: string | null, commit: string): Promise<void> {
  await git.run(['update-ref', reference, commit, earlier ?? NO_COMMIT], {
    what: 'The work that was added since could not be kept',
  });
}

/** Errors: `conflict` with a repository inside the worktree: git keeps only its name, and not what is in it. */
async function requireNoNested(inside: Git, head: string, tree: string): Promise<void> {
  const linksOf = async (of: string): Promise<string[]> =>
    fromBytes(await inside.bytes(['ls-tree', '-r', '-z', '--full-tree', of]))
      .split('\0')
      .filter((line) => line.startsWith('160000 '));
  const known = new Set(await linksOf(head));
  const nested = (await linksOf(tree)).filter((line) => !known.has(line));
  if (nested.length === 0) return;
  throw new HoldfastError('conflict', 'The handoff was not undone', {
    why: `repositories of their own inside the worktree cannot be kept: ${listed(nested.map((line) => line.slice(line.indexOf('\t') + 1)))}`,
    next: 'move them away, and repeat',
  });
}
