import { namingFullDisk } from './full-disk.ts';
import { lstat, realpath } from 'node:fs/promises';
import { resolve } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { fromBytes, type RawPath } from '../project/raw-path.ts';
import { releaseFolder } from './branch.ts';
import { withoutFilters } from './filters.ts';
import { forgottenCommits } from './forgotten-commits.ts';
import type { Git } from './git.ts';
import { isBeingMade, type Journal, type JournalOf, Journals } from './journal.ts';
import { keepCommits, keepWork, keptRefOf } from './kept-work.ts';
import { listed } from './listed.ts';
import type { Repository } from './repository.ts';
import { dropUndoRef, revertTree } from './working-tree.ts';
import { WorkingFiles } from './working-files.ts';
import { changesIn, isMissing } from './worktree-changes.ts';
import { worktrees } from './worktrees.ts';

export interface Undone {
  readonly journal: Journal;
  /** The reference that keeps work that was added since, with `force`; null for none. */
  readonly keptRef: string | null;
}

export interface UndoOptions {
  /** Default: the newest handoff of the repository. */
  readonly handoff?: string | undefined;
  /** Take it back although work was added since, and keep that under a reference. */
  readonly force: boolean;
}

/** Takes back what a handoff made. The journal says whether it had been finished. Errors: `not_found`, `conflict` when work was added since. */
export async function undoHandoff(repository: Repository, options: UndoOptions): Promise<Undone> {
  const there = await undoableHandoffs(repository);
  const journal =
    options.handoff === undefined ? there.at(-1) : there.find(({ handoff }) => handoff === options.handoff);
  if (journal === undefined) {
    throw new HoldfastError('not_found', 'There is no handoff to undo in this repository', {
      next: 'a patch or a folder is yours to delete',
    });
  }
  return await namingFullDisk('The handoff was not undone', async () => {
    const keptRef = await takeBack(repository, journal, options.force);
    await new Journals(repository.commonDirectory).remove(journal.handoff);
    return { journal, keptRef };
  });
}

/** The oldest first. What an interrupted handoff made can be undone as well, if it could not be taken back by itself. */
export async function undoableHandoffs(repository: Repository): Promise<Journal[]> {
  const { journals } = await new Journals(repository.commonDirectory).list();
  return journals.filter((journal) => journal.state === 'made' || !isBeingMade(journal));
}

/** Handoffs whose client was killed before their end, and which nobody has taken back yet. Writes nothing. */
export async function unfinishedHandoffs(repository: Repository): Promise<Journal[]> {
  const { journals } = await new Journals(repository.commonDirectory).list();
  return journals.filter((journal) => journal.state === 'making' && !isBeingMade(journal));
}

export interface Recovery {
  readonly recovered: readonly Journal[];
  /** Handoffs that could not be taken back, and why. */
  readonly failed: readonly { readonly handoff: string; readonly why: string }[];
}

/** Takes back handoffs whose client was killed before their end. One that cannot be taken back does not stop the others. */
export async function recoverHandoffs(repository: Repository): Promise<Recovery> {
  const journals = new Journals(repository.commonDirectory);
  const { journals: all, damaged } = await journals.list();
  const recovered: Journal[] = [];
  const failed = damaged.map((handoff) => ({ handoff, why: 'its journal cannot be read' }));
  for (const journal of all) {
    if (journal.state === 'made' || isBeingMade(journal)) continue;
    try {
      if (await isComplete(repository.git, journal)) {
        await journals.write({ ...journal, state: 'made' });
        continue;
      }
      await takeBackUnfinished(repository, journal);
      await journals.remove(journal.handoff);
      recovered.push(journal);
    } catch (error) {
      failed.push({ handoff: journal.handoff, why: HoldfastError.from(error).sentence });
    }
  }
  return { recovered, failed };
}

/** Resolves with the reference that keeps later work. */
async function takeBack(repository: Repository, journal: Journal, force: boolean): Promise<string | null> {
  const { git } = repository;
  switch (journal.to) {
    case 'tree':
      await takeBackTree(repository, journal, force);
      return null;
    case 'branch':
      return await takeBackBranch(git, journal, force);
    case 'worktree':
      if (journal.state === 'made' || force) return await takeBackWorktree(git, journal, force);
      await takeBackUnfinishedWorktree(git, journal);
      return null;
  }
}

async function takeBackTree(
  repository: Repository,
  journal: JournalOf<'tree'>,
  force: boolean,
): Promise<void> {
  const { git } = repository;
  await requireOwnTree(repository, journal);
  const { kept } = await revertTree(git, journal);
  if (kept.length > 0 && !force) {
    throw new HoldfastError('conflict', 'The handoff was undone in part', {
      why: `${listed(kept)} changed since, and stayed as they are`,
      next: `the earlier files are kept in ${journal.undoRef}; \`holdfast handoff undo --force\` only forgets the handoff`,
    });
  }
  // With later changes, the reference is all that is left of the earlier content.
  if (kept.length === 0) await dropUndoRef(git, journal);
}

/** Errors: `conflict` for a journal that came with a copy of another repository, or that somebody else wrote. */
async function requireOwnTree(repository: Repository, journal: JournalOf<'tree'>): Promise<void> {
  const { git, commonDirectory } = repository;
  const { root, undoRef, handoff } = journal;
  const isKnown = root === repository.root || (await worktrees(git)).some(({ path }) => path === root);
  const common = isKnown
    ? await git
        .in(root)
        .ask(['rev-parse', '--git-common-dir'])
        .catch(() => null)
    : null;
  const isSame =
    common !== null && (await realpath(resolve(root, common))) === (await realpath(commonDirectory));
  if (isSame && undoRef === `refs/holdfast/undo/${handoff}`) return;
  throw new HoldfastError('conflict', 'The handoff was not undone', {
    why: `it went into ${root}, which is no work tree of this repository, or its note was changed`,
    next: 'undo it in the repository that it went into',
  });
}

async function takeBackBranch(
  git: Git,
  journal: JournalOf<'branch'>,
  force: boolean,
): Promise<string | null> {
  await requireNotCheckedOut(git, journal, null);
  return await deleteBranch(git, journal, force);
}

async function takeBackWorktree(
  git: Git,
  journal: JournalOf<'worktree'>,
  force: boolean,
): Promise<string | null> {
  await requireNotCheckedOut(git, journal, journal.worktree);
  let keptRef: string | null = null;
  if (await isWorktreeOf(git, journal)) {
    const inside = await withoutFilters(git.in(journal.worktree));
    await requireNoSubmodules(inside);
    const head = await inside.text(['rev-parse', '--verify', 'HEAD']);
    const { changes, intact } = await changesIn(inside);
    const changed = changes.map(({ path }) => path);
    const forgotten = await forgottenIn(git, journal, inside, head);
    if (changed.length > 0 || head !== journal.commit || forgotten.length > 0) {
      if (!force) {
        const what =
          changed.length > 0
            ? `work that was added since: ${listed(changed)}`
            : forgotten.length > 0
              ? saidOf(forgotten)
              : 'commits that were added since';
        throw new HoldfastError('conflict', 'The handoff was not undone', {
          why: `the worktree ${journal.worktree} has ${what}`,
          next: 'move that work away, or repeat with --force, which keeps it under a reference',
        });
      }
      keptRef = keptRefOf(journal);
      await keepWork(inside, keptRef, { head, forgotten, intact });
    }
    // Git has locked one whose making was interrupted.
    const all = journal.state === 'making' ? ['--force', '--force'] : ['--force'];
    await git.run(['worktree', 'remove', ...all, '--', journal.worktree], {
      what: `The worktree ${journal.worktree} could not be removed`,
    });
  }
  if (journal.state === 'making') await releaseFolder(journal.worktree);
  const ofBranch = await deleteBranch(git, journal, force);
  return keptRef ?? ofBranch;
}

/** Commits that are gone with the worktree and its branch, although nothing has them checked out. */
async function forgottenIn(
  git: Git,
  journal: BranchJournal,
  inside: Git | null,
  ...kept: readonly string[]
): Promise<string[]> {
  const branch = (await ownBranch(git, journal)) === null ? null : `refs/heads/${journal.branch}`;
  return await forgottenCommits(git, { branch, worktree: inside, kept: [journal.commit, ...kept] });
}

function saidOf(forgotten: readonly string[]): string {
  const names = listed(forgotten.map((commit) => commit.slice(0, 12)));
  return `commits that were made since and that no branch has any more: ${names}`;
}

/** Whether the folder is still the worktree that the handoff made: something else of that name is the person's. */
async function isWorktreeOf(git: Git, { worktree }: JournalOf<'worktree'>): Promise<boolean> {
  const known = (await worktrees(git)).some(({ path }) => path === worktree);
  return known && ((await lstat(worktree).catch(() => null))?.isDirectory() ?? false);
}

type BranchJournal = JournalOf<'branch'> | JournalOf<'worktree'>;

/**
 * The commit of the branch that the handoff made; null if it made none. A client may be killed between making it and noting that:
 * then the commit, which nobody else has, tells.
 */
async function ownBranch(git: Git, { branch, hasBranch, commit }: BranchJournal): Promise<string | null> {
  const now = await git.ask(['rev-parse', '--verify', '--quiet', `refs/heads/${branch}`]);
  return hasBranch || now === commit ? now : null;
}

async function deleteBranch(git: Git, journal: BranchJournal, force: boolean): Promise<string | null> {
  const now = await ownBranch(git, journal);
  if (now === null) return null;
  const forgotten = await forgottenIn(git, journal, null, now);
  let keptRef: string | null = null;
  if (now !== journal.commit || forgotten.length > 0) {
    if (!force) {
      const what = forgotten.length > 0 ? saidOf(forgotten) : 'commits that were added since';
      throw new HoldfastError('conflict', 'The handoff was not undone', {
        why: `the branch ${journal.branch} has ${what}`,
        next: 'move them to another branch, or repeat with --force, which keeps them under a reference',
      });
    }
    keptRef = keptRefOf(journal);
    await keepCommits(git, keptRef, now, forgotten);
  }
  await git.run(['update-ref', '-d', `refs/heads/${journal.branch}`, now], {
    what: `The branch ${journal.branch} could not be deleted`,
  });
  await git.ask(['config', '--local', '--remove-section', `branch.${journal.branch}`]);
  return keptRef;
}

/**
 * Errors: `conflict` with submodules that were checked out: git removes their commits, branches and ignored files with the
 * worktree, and nothing of them can be kept under a reference.
 */
async function requireNoSubmodules(inside: Git): Promise<void> {
  const modules = await inside.text(['rev-parse', '--path-format=absolute', '--git-path', 'modules']);
  const index = fromBytes(await inside.bytes(['ls-files', '--stage', '-z'])).split('\0');
  const files = new WorkingFiles(inside.folder, '');
  const found: RawPath[] = [];
  for (const line of index.filter((one) => one.startsWith('160000 '))) {
    const path = line.slice(line.indexOf('\t') + 1);
    if ((await lstat(files.at(`${path}/.git`)).catch(() => null)) !== null) found.push(path);
  }
  if (found.length === 0 && (await lstat(modules).catch(() => null)) === null) return;
  throw new HoldfastError('conflict', 'The handoff was not undone', {
    why: `submodules were checked out in the worktree ${inside.folder}, and their work cannot be kept${found.length === 0 ? '' : `: ${listed(found)}`}`,
    next: `look at them, then remove the worktree with \`git worktree remove --force ${inside.folder}\` and repeat`,
  });
}

async function takeBackUnfinished(repository: Repository, journal: Journal): Promise<void> {
  const { git } = repository;
  switch (journal.to) {
    case 'tree':
      await takeBackTree(repository, journal, false);
      return;
    case 'branch':
      await takeBackBranch(git, journal, false);
      return;
    case 'worktree':
      await takeBackUnfinishedWorktree(git, journal);
  }
}

/** Whether nothing was missing but the note of its end: the person may work in that worktree since. */
async function isComplete(git: Git, journal: Journal): Promise<boolean> {
  if (journal.to !== 'worktree' || !(await isWorktreeOf(git, journal))) return false;
  const inside = await withoutFilters(git.in(journal.worktree));
  const head = await inside.ask(['symbolic-ref', '--quiet', 'HEAD']);
  const commit = await inside.ask(['rev-parse', '--verify', '--quiet', 'HEAD']);
  if (head !== `refs/heads/${journal.branch}` || commit !== journal.commit) return false;
  const isIndexed = (await inside.ask(['diff-index', '--cached', '--quiet', 'HEAD', '--'])) !== null;
  return isIndexed && !(await changesIn(inside)).changes.some(isMissing);
}

/** A worktree whose files were being written: files are missing, but nothing may have been added, changed or committed. */
async function takeBackUnfinishedWorktree(git: Git, journal: JournalOf<'worktree'>): Promise<void> {
  await requireNotCheckedOut(git, journal, journal.worktree);
  if (await isWorktreeOf(git, journal)) {
    const inside = await withoutFilters(git.in(journal.worktree));
    const refuse = (why: string): HoldfastError =>
      new HoldfastError('conflict', 'An interrupted handoff was not undone', {
        why: `the worktree ${journal.worktree} has ${why}`,
        next: 'look at it, then undo it with `holdfast handoff undo --force`, which keeps that work under a reference',
      });
    const head = await inside.ask(['symbolic-ref', '--quiet', 'HEAD']);
    const commit = await inside.ask(['rev-parse', '--verify', '--quiet', 'HEAD']);
    if (head !== `refs/heads/${journal.branch}` || commit !== journal.commit)
      throw refuse('something else checked out, or commits that were added since');
    const added = (await changesIn(inside)).changes.filter(
      (one) => !isMissing(one) && !/(?:^|\/)\.gitattributes$/.test(one.path),
    );
    if (added.length > 0) throw refuse(`other files: ${listed(added.map(({ path }) => path))}`);
    const forgotten = await forgottenIn(git, journal, inside);
    if (forgotten.length > 0) throw refuse(saidOf(forgotten));
    await git.run(['worktree', 'remove', '--force', '--force', '--', journal.worktree]);
  }
  await releaseFolder(journal.worktree);
  await deleteBranch(git, journal, false);
}

/** Errors: `conflict` while a worktree other than `own` is on the branch. */
async function requireNotCheckedOut(git: Git, journal: BranchJournal, own: string | null): Promise<void> {
  const { branch } = journal;
  if ((await ownBranch(git, journal)) === null) return;
  const other = (await worktrees(git)).find((one) => one.branch === branch && one.path !== own);
  if (other === undefined) return;
  throw new HoldfastError('conflict', 'The handoff was not undone', {
    why: `the branch ${branch} is checked out in ${other.path}`,
    next: 'check out another branch there first',
  });
}
