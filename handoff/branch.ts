import { lstat, mkdir, realpath, rmdir, unlink } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import type { RawPath } from '../project/raw-path.ts';
import { withLfsAlone, withoutFilters } from './filters.ts';
import type { Git } from './git.ts';
import type { Repository } from './repository.ts';
import { WorkingFiles, writeNew } from './working-files.ts';

const MAX_SUFFIX = 1000;
const NO_COMMIT = '0'.repeat(40);

/** The name of a new branch: as wanted, or `holdfast/SESSION` with the next free number. Errors: `already_exists`, `invalid_params`. */
export async function chooseBranch(
  git: Git,
  wanted: string | undefined,
  sessionName: string,
): Promise<string> {
  const isFree = async (branch: string): Promise<boolean> =>
    (await git.ask(['rev-parse', '--verify', '--quiet', `refs/heads/${branch}`])) === null;
  if (wanted !== undefined) {
    const isName = (await git.ask(['check-ref-format', `refs/heads/${wanted}`])) !== null;
    if (!isName || wanted.startsWith('-'))
      throw new HoldfastError('invalid_params', `${JSON.stringify(wanted)} is not a valid name for a branch`);
    if (await isFree(wanted)) return wanted;
    throw new HoldfastError('already_exists', `The branch ${wanted} exists already`, {
      next: 'choose another name with --branch',
    });
  }
  const slug =
    sessionName
      .replaceAll(/[^A-Za-z0-9_-]+/g, '-')
      .replaceAll(/^-+|-+$/g, '')
      .slice(0, 60) || 'session';
  for (let suffix = 1; suffix < MAX_SUFFIX; suffix += 1) {
    const branch = `holdfast/${slug}${suffix === 1 ? '' : `-${suffix}`}`;
    if (await isFree(branch)) return branch;
  }
  throw new HoldfastError('already_exists', 'No free name for a branch was found', {
    next: 'choose one with --branch',
  });
}

/** Errors: `conflict` if the branch came to exist meanwhile. */
export async function createBranch(git: Git, branch: string, commit: string): Promise<void> {
  await git.run(['update-ref', '-m', 'holdfast: handoff', `refs/heads/${branch}`, commit, NO_COMMIT], {
    what: `The branch ${branch} could not be created`,
  });
}

/** Where the worktree goes: as wanted, or beside the repository. Errors: `already_exists`. */
export async function chooseWorktree(
  { root, git }: Repository,
  wanted: string | undefined,
  branch: string,
): Promise<string> {
  const top = root ?? git.folder;
  const name = `${basename(top).replace(/\.git$/, '')}-${branch.split('/').at(-1) ?? 'handoff'}`;
  const folder = wanted ?? join(dirname(top), name);
  for (let suffix = 1; suffix < MAX_SUFFIX; suffix += 1) {
    const path = suffix === 1 ? folder : `${folder}-${suffix}`;
    const isFree = (await lstat(path).catch(() => null)) === null;
    if (isFree) return join(await realpath(dirname(resolve(path))), basename(path));
    if (wanted !== undefined) {
      throw new HoldfastError('already_exists', `${wanted} exists already`, {
        next: 'choose another folder with --dir',
      });
    }
  }
  throw new HoldfastError('already_exists', 'No free folder for a worktree was found', {
    next: 'choose one with --dir',
  });
}

/** Makes the worktree's folder, empty: whoever makes it owns it. Errors: `already_exists` if somebody made it meanwhile. */
export async function claimFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder);
  } catch (error) {
    const isTaken = error instanceof Error && 'code' in error && error.code === 'EEXIST';
    throw new HoldfastError(isTaken ? 'already_exists' : 'invalid_params', 'The worktree could not be made', {
      why: isTaken ? `${folder} came to exist meanwhile` : error instanceof Error ? error.message : undefined,
      next: 'hand off again, or choose another folder with --dir',
      cause: error,
    });
  }
}

/** Gives a claimed folder back if it is still empty: what else is in it is not ours. */
export async function releaseFolder(folder: string): Promise<void> {
  await rmdir(folder).catch(() => undefined);
}

export interface Attributes {
  readonly path: RawPath;
  /** The blob in the commit that the handoff starts from; null if it has none. */
  readonly from: string | null;
  /** The entry in the new commit; null if it has none. */
  readonly to: { readonly mode: string; readonly blob: string } | null;
}

export interface NewWorktree {
  /** Absolute path of its folder. */
  readonly worktree: string;
  readonly branch: string;
  readonly tree: string;
  /** The attribute files that the handoff changes. */
  readonly attributes: readonly Attributes[];
  /** All files that it changes. */
  readonly changed: readonly RawPath[];
}

/**
 * Checks out the branch into a new worktree. No filter but Git LFS runs, for files that the attributes of the commit choose which
 * the handoff starts from: they are written while those are in the index, and the agent's attributes come last, as plain bytes.
 */
export async function addWorktree(
  git: Git,
  { worktree, branch, tree, attributes, changed }: NewWorktree,
): Promise<void> {
  await git.run(['worktree', 'add', '--no-checkout', '--quiet', '--', worktree, branch], {
    what: 'The worktree could not be made',
  });
  const inside = await withLfsAlone(git.in(worktree), changed);
  await inside.run(['read-tree', tree]);
  if (attributes.length > 0)
    await setIndex(inside, attributes, ({ from }) => (from === null ? null : { mode: '100644', blob: from }));
  await inside.run(['-c', 'checkout.workers=0', 'checkout-index', '--all', '--index', '--quiet'], {
    what: 'The files of the worktree could not be written',
  });
  if (attributes.length === 0) return;
  const files = new WorkingFiles(worktree, branch);
  for (const { path, from, to } of attributes) {
    if (from !== null) await unlink(files.at(path));
    if (to === null) continue;
    // The file may be the only one of its folder.
    await files.makeParents(path);
    await writeNew(files.at(path), to.mode, await inside.bytes(['cat-file', 'blob', to.blob]));
  }
  // Git reads files again that are as new as its index, by the attributes that are there now.
  await setIndex(await withoutFilters(inside), attributes, ({ to }) => to);
}

async function setIndex(
  git: Git,
  attributes: readonly Attributes[],
  entryOf: (one: Attributes) => Attributes['to'],
): Promise<void> {
  const lines = attributes.map((one) => {
    const { mode, blob } = entryOf(one) ?? { mode: '0', blob: NO_COMMIT };
    return `${mode} ${blob}\t${one.path}\0`;
  });
  await git.run(['update-index', '-z', '--index-info'], { input: Buffer.from(lines.join(''), 'latin1') });
}
