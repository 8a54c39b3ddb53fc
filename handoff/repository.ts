import { realpath } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { fromBytes, type RawPath } from '../project/raw-path.ts';
import type { Git } from './git.ts';

/** The person's repository. It is where the person stands or what the person named, never what a session's record names. */
export interface Repository {
  /** Runs in the work tree's top folder; in a bare repository, in its folder. */
  readonly git: Git;
  /** Top folder of the work tree; null for a bare repository. */
  readonly root: string | null;
  /** The folder that worktrees share. */
  readonly commonDirectory: string;
  /** The commit that is checked out; null before the first. */
  readonly head: string | null;
  /** Null for a detached HEAD. */
  readonly branch: string | null;
}

/** What a repository is opened for, as errors say it: what failed, and what works without this repository. */
const USES = {
  handoff: { failed: 'The changes were not handed off', instead: 'hand off with --to dir' },
  review: { failed: 'The commit that is checked out cannot be the base', instead: 'use --base start' },
} as const;
export type RepositoryUse = keyof typeof USES;

/**
 * `home`: of this machine's installation. Agents write there, so git is not even started in it. Errors: `not_found` outside a
 * repository, `not_supported` for one that a handoff cannot write to, or a review cannot read.
 */
export async function openRepository(git: Git, home: string, use: RepositoryUse): Promise<Repository> {
  await requireOutside(home, git.folder, use);
  const [bare, workTree] = await Promise.all([
    git.ask(['rev-parse', '--is-bare-repository']),
    git.ask(['rev-parse', '--show-toplevel']),
  ]);
  if (bare === null) {
    throw new HoldfastError('not_found', `${git.folder} is not in a git repository`, {
      next: `run the command in your repository, name it with --repository, or ${USES[use].instead}`,
    });
  }
  const isBare = bare === 'true';
  const top = isBare ? await git.text(['rev-parse', '--absolute-git-dir']) : workTree;
  if (top === null || top === '') {
    throw new HoldfastError('not_found', `${git.folder} is inside a git directory`, {
      next: 'run the command in the work tree',
    });
  }
  await requireOutside(home, top, use);
  const inTop = git.in(top);
  // Nothing of this writes, so it need not wait for each other.
  const [common, head, branch] = await Promise.all([
    inTop.text(['rev-parse', '--git-common-dir']),
    inTop.ask(['rev-parse', '--verify', '--quiet', 'HEAD^{commit}']),
    inTop.ask(['symbolic-ref', '--quiet', '--short', 'HEAD']),
    requireSupported(inTop, use),
  ]);
  return {
    git: inTop,
    root: isBare ? null : top,
    commonDirectory: resolve(top, common),
    head,
    branch,
  };
}

async function requireOutside(homeRoot: string, folder: string, use: RepositoryUse): Promise<void> {
  // A client of a supervisor on another machine may have no home.
  const home = await realpath(homeRoot).catch(() => homeRoot);
  const real = await realpath(folder).catch(() => folder);
  if (real !== home && !real.startsWith(join(home, '/'))) return;
  throw new HoldfastError('not_supported', USES[use].failed, {
    why: `${folder} is in the home of this installation, where agents can write`,
    next: 'use a repository outside it',
  });
}

async function requireSupported(git: Git, use: RepositoryUse): Promise<void> {
  const refuse = (why: string): never => {
    throw new HoldfastError('not_supported', USES[use].failed, { why, next: USES[use].instead });
  };
  const [format, sparse, partial] = await Promise.all([
    git.text(['rev-parse', '--show-object-format']),
    git.ask(['config', '--type=bool', '--get', 'core.sparseCheckout']),
    git.ask(['config', '--get-regexp', '^(extensions\\.partialclone|remote\\..*\\.promisor)$']),
  ]);
  if (format !== 'sha1') refuse('the repository names objects by SHA-256');
  if (sparse === 'true') refuse('the repository has a sparse checkout');
  if (partial !== null)
    refuse('the repository is a partial clone, and some of its files are not on this machine');
}

/** An entry of a commit. */
export interface CommittedEntry {
  readonly mode: string;
  readonly blob: string;
}

/** Every entry of a commit by its path. Submodules have the mode 160000. */
export async function readCommit(git: Git, commit: string): Promise<Map<RawPath, CommittedEntry>> {
  const listing = await git.bytes(['ls-tree', '-r', '-z', '--full-tree', commit], {
    what: 'The base commit cannot be read',
  });
  const entries = new Map<RawPath, CommittedEntry>();
  for (const line of fromBytes(listing).split('\0')) {
    const match = /^(\d{6}) (?:blob|commit) ([0-9a-f]{40})\t([^]+)$/.exec(line);
    if (match !== null) entries.set(match[3] ?? '', { mode: match[1] ?? '', blob: match[2] ?? '' });
  }
  return entries;
}
