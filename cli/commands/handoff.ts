import { resolve } from 'node:path';
import { Option } from 'commander';
import type { Command } from 'commander';
import type { HandoffResult } from '../../handoff/handoff.ts';
import type { HandoffPlan } from '../../handoff/plan.ts';
import type { Repository } from '../../handoff/repository.ts';
import { HANDOFF_TARGETS, type HandoffTarget } from '../../protocol/handoff.ts';
import { readable } from '../../project/raw-path.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import { writeNewFile } from '../new-file.ts';
import { MAX_LISTED, describeStayedBehind, printStayedBehind } from '../left-out.ts';
import type { Registry } from '../registry.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';

interface HandoffOptions {
  readonly to: HandoffTarget;
  readonly paths?: readonly string[];
  readonly message?: string;
  readonly branch?: string;
  readonly dir?: string;
  readonly output?: string;
  readonly onto?: string;
  readonly includeQuarantined?: readonly string[];
  readonly repository?: string;
  readonly unreviewed?: boolean;
  readonly preview?: boolean;
}

export function registerHandoff(registry: Registry): void {
  const command = registry
    .command(registry.root, {
      usage: 'handoff <session>',
      description:
        'hand off the changes that you accepted to your git repository, as a commit on a new branch',
      operands: ['session'],
      examples: [
        'holdfast handoff default                     a new branch in a new worktree',
        'holdfast handoff default --preview           show what would be handed off, and what would not',
        'holdfast handoff default --to tree --paths src',
        'holdfast handoff default --to patch | git am --keep-cr',
        'holdfast handoff undo',
      ],
    })
    .addOption(
      new Option('--to <target>', 'where the changes go').choices([...HANDOFF_TARGETS]).default('worktree'),
    )
    .option('--paths <pattern...>', 'only these files and folders of the workspace; * and ** match names')
    .option('--message <text>', "the commit's message (default: from the session's last prompt)")
    .option('--branch <name>', 'the new branch (default: holdfast/SESSION)')
    .option('--dir <folder>', 'the folder of the worktree, or of --to dir')
    .option('--output <file>', 'the file of the patch (default: standard output)')
    .option(
      '--onto <revision>',
      'apply the changes to this commit instead of the one that the session began with',
    )
    .option('--include-quarantined <pattern...>', 'include files that would run on your machine')
    .option('--repository <folder>', 'your repository (default: the current folder)')
    .option('--unreviewed', 'all changes, although the session has a review')
    .option('--preview', 'only show what would happen')
    .enablePositionalOptions();
  registry.setAction(command, handOff);
  registerUndo(registry, command);
}

async function handOff(context: Context, options: HandoffOptions, session: string): Promise<undefined> {
  requireFitting(context, options);
  const { Git } = await import('../../handoff/git.ts');
  const { planHandoff } = await import('../../handoff/plan.ts');
  const { applyHandoff } = await import('../../handoff/handoff.ts');
  const git = new Git(context.io.cwd, context.io.env, context.interrupted);
  const repository =
    options.to === 'dir' ? null : await openOwn(context, options.repository, options.preview);
  const onProgress = (stage: string): void =>
    context.progress.update({ stage, done: null, of: null, unit: null });
  context.progress.begin('Scanning the workspace');
  let plan: HandoffPlan | undefined;
  try {
    plan = await planHandoff(context.client(), {
      session,
      to: options.to,
      opId: newOpId(),
      repository,
      paths: options.paths ?? [],
      released: options.includeQuarantined ?? [],
      onto: options.onto,
      unreviewed: options.unreviewed,
      signal: context.interrupted,
      onProgress,
    });
    await printReviewed(context, plan);
    if (options.preview === true) {
      await printPlan(context, plan, options);
      return undefined;
    }
    const folder = options.dir === undefined ? undefined : resolve(context.io.cwd, options.dir);
    const result = await applyHandoff(context.client(), plan, {
      to: options.to,
      repository,
      git,
      message: options.message,
      branch: options.branch,
      folder,
      signal: context.interrupted,
      onProgress,
      now: () => context.io.now(),
    });
    await printResult(context, plan, result, options);
    return undefined;
  } finally {
    context.progress.end();
    await plan?.contents.close();
  }
}

function requireFitting(context: Context, options: HandoffOptions): void {
  const { to, dir, branch, output, onto, message } = options;
  const refuse = (option: string): never => {
    throw new UsageError(`${option} does not go with --to ${to}`);
  };
  if (to === 'dir' && dir === undefined) throw new UsageError('--to dir needs --dir FOLDER');
  if (dir !== undefined && to !== 'dir' && to !== 'worktree') refuse('--dir');
  if (branch !== undefined && to !== 'branch' && to !== 'worktree') refuse('--branch');
  if (output !== undefined && to !== 'patch') refuse('--output');
  if (onto !== undefined && (to === 'tree' || to === 'dir')) refuse('--onto');
  if (message !== undefined && (to === 'tree' || to === 'dir')) refuse('--message');
  if (to === 'patch' && context.json && output === undefined && options.preview !== true)
    throw new UsageError('--json needs --output FILE for a patch');
  for (const pattern of [...(options.paths ?? []), ...(options.includeQuarantined ?? [])])
    if (pattern.trim() === '') throw new UsageError('a pattern must not be empty; `**` means everything');
}

/**
 * The repository in which the person stands, or that the person named. Never one in which agents write. Handoffs that were
 * interrupted are finished or taken back; a preview only names them.
 */
async function openOwn(context: Context, named: string | undefined, isPreview = false): Promise<Repository> {
  const { Git } = await import('../../handoff/git.ts');
  const { openRepository } = await import('../../handoff/repository.ts');
  const folder = named === undefined ? context.io.cwd : resolve(context.io.cwd, named);
  const git = new Git(folder, context.io.env, context.interrupted);
  const repository = await openRepository(git, context.home, 'handoff');
  await (isPreview ? nameUnfinished(context, repository) : finishUnfinished(context, repository));
  return repository;
}

async function nameUnfinished(context: Context, repository: Repository): Promise<void> {
  const { unfinishedHandoffs } = await import('../../handoff/undo.ts');
  for (const { handoff } of await unfinishedHandoffs(repository))
    await context.printNote(`${handoff} was interrupted; the next handoff takes back what it had made`);
}

async function finishUnfinished(context: Context, repository: Repository): Promise<void> {
  const { recoverHandoffs } = await import('../../handoff/undo.ts');
  const { recordRecovered } = await import('../../handoff/record.ts');
  const { recovered, failed } = await recoverHandoffs(repository);
  for (const { handoff } of recovered)
    await context.printNote(`${handoff} was interrupted; its changes were undone`);
  for (const { handoff, why } of failed)
    await context.printNote(`warning: ${sanitizeLine(handoff)} could not be undone: ${sanitizeLine(why)}`);
  for (const { handoff } of await recordRecovered(context.client(), repository))
    await context.printNote(`${handoff} was complete; the session's history says so now`);
}

async function printReviewed(context: Context, { begun: { review } }: HandoffPlan): Promise<void> {
  if (context.json || review === null) return;
  const rest =
    review.notAccepted === 0
      ? ''
      : `; ${pluralize(review.notAccepted, 'change')} not accepted ${review.notAccepted === 1 ? 'stays' : 'stay'} behind`;
  await context.printNote(`Handing off what you accepted${rest}`);
}

function describePlan(plan: HandoffPlan) {
  const { begun, travels, ignored, notChosen, onto, baseCommit } = plan;
  return {
    session: begun.sessionId,
    base: { kind: begun.base.kind, commit: baseCommit },
    review: begun.review,
    onto,
    snapshot: begun.target.snapshot,
    running: begun.running,
    files: travels.map(({ path, change }) => ({
      path: readable(path),
      kind: change.before === null ? 'added' : change.after === null ? 'deleted' : 'modified',
    })),
    ...describeStayedBehind(plan),
    ignored: ignored.length,
    notChosen,
  };
}

async function printPlan(context: Context, plan: HandoffPlan, { to }: HandoffOptions): Promise<void> {
  const described = describePlan(plan);
  if (context.json) {
    await context.printJson({ to, preview: true, ...described });
    return;
  }
  const sign = { added: '+', deleted: '-', modified: '~' };
  await context.print(
    `${pluralize(described.files.length, 'file')} would be handed off:`,
    ...described.files.map(({ path, kind }) => `  ${sign[kind as keyof typeof sign]} ${sanitizeLine(path)}`),
  );
  await printLeftOut(context, plan);
}

async function printResult(
  context: Context,
  plan: HandoffPlan,
  result: HandoffResult,
  { output }: HandoffOptions,
): Promise<void> {
  const { patch, merged, deleted, unrecorded, ...made } = result;
  if (patch !== null) {
    if (output === undefined) await context.stdout.write(patch);
    else await writeNewFile(resolve(context.io.cwd, output), patch);
  }
  if (context.json) {
    const { files: _files, ...described } = describePlan(plan);
    await context.printJson({
      ...described,
      ...made,
      merged: merged.map(readable),
      deleted: deleted.map(readable),
      recorded: unrecorded === null,
    });
    return;
  }
  if (patch === null || output !== undefined) await context.print(summary(context, result, output));
  if (merged.length > 0)
    await context.printNote(`Merged with your own changes: ${listPaths(merged.map(readable))}`);
  if (deleted.length > 0)
    await context.printNote(
      `Deleted by the agent, and so not in the folder: ${listPaths(deleted.map(readable))}`,
    );
  await printLeftOut(context, plan);
  if (unrecorded !== null)
    await context.printNote(
      `warning: the session's history does not say so: ${sanitizeLine(unrecorded)}${result.to === 'patch' || result.to === 'dir' ? '' : '; the next handoff or undo in this repository adds it'}`,
    );
  else if (plan.begun.review !== null)
    await context.printNote(
      result.endedReview === null
        ? 'The review continues: a later handoff brings everything that is accepted'
        : 'The review has ended: the next one begins with what you accepted',
    );
  if (result.to === 'branch' || result.to === 'worktree' || result.to === 'tree')
    await context.printHint(`Undo: ${context.command('handoff undo')}`);
}

function summary(context: Context, result: HandoffResult, output: string | undefined): string {
  const files = pluralize(result.files, 'file');
  const commit = result.commit?.slice(0, 12) ?? '';
  const branch = context.style.bold(sanitizeLine(result.branch ?? ''));
  switch (result.to) {
    case 'worktree':
      return `${files} handed off: commit ${commit} on the new branch ${branch} in ${sanitizeLine(result.folder ?? '')}`;
    case 'branch':
      return `${files} handed off: commit ${commit} on the new branch ${branch}`;
    case 'tree':
      return `${files} handed off into ${sanitizeLine(result.folder ?? '')}`;
    case 'patch':
      return `${files} handed off: apply with git am --keep-cr ${quoteForShell(output ?? '')}`;
    case 'dir':
      return `${files} handed off into ${sanitizeLine(result.folder ?? '')}`;
  }
}

/** What stays behind, and why. */
async function printLeftOut(context: Context, plan: HandoffPlan): Promise<void> {
  const { ignored, notChosen, begun, prefix } = plan;
  await printStayedBehind(context, plan, 'run on your machine or lead out of the tree', prefix.length);
  if (ignored.length > 0) await context.printNote(`${pluralize(ignored.length, 'ignored file')} left out`);
  if (notChosen > 0) await context.printNote(`${pluralize(notChosen, 'file')} not chosen by --paths`);
  if (begun.base.kind === 'snapshot')
    await context.printNote(
      'warning: what the workspace began with is not known; compared with its oldest snapshot instead',
    );
  if (begun.running > 0)
    await context.printNote('The agent is still running: its later changes are not part of this handoff');
  if (begun.target.missing > 0)
    await context.printNote(
      `warning: ${pluralize(begun.target.missing, 'file')} could not be read and stayed behind`,
    );
}

function listPaths(paths: readonly string[]): string {
  const more = paths.length > MAX_LISTED ? ` and ${paths.length - MAX_LISTED} more` : '';
  return paths.slice(0, MAX_LISTED).map(sanitizeLine).join(', ') + more;
}

interface UndoOptions {
  readonly force?: boolean;
  readonly repository?: string;
}

function registerUndo(registry: Registry, parent: Command): void {
  const command = registry
    .command(parent, {
      usage: 'undo [handoff]',
      description: 'take back the last handoff into this repository, or the one with this id',
    })
    .option('--force', 'undo even if work was added since; that work is kept under a reference')
    .option('--repository <folder>', 'your repository (default: the current folder)');
  registry.setAction(command, async (context, options: UndoOptions, handoff: string | undefined) => {
    const { undoHandoff } = await import('../../handoff/undo.ts');
    const { recordUndone } = await import('../../handoff/record.ts');
    const repository = await openOwn(context, options.repository);
    const { journal, keptRef } = await undoHandoff(repository, { handoff, force: options.force === true });
    // The history has no handoff that was interrupted.
    let isRecorded = journal.state === 'made';
    try {
      if (isRecorded) await recordUndone(context.client(), journal);
    } catch (error) {
      isRecorded = false;
      if (!context.json)
        await context.printNote(
          `warning: the session's history does not say so: ${sanitizeLine(error instanceof Error ? error.message : '')}`,
        );
    }
    if (context.json) {
      const { to, session } = journal;
      await context.printJson({
        handoff: journal.handoff,
        to,
        session,
        undone: true,
        recorded: isRecorded,
        keptRef,
      });
      return undefined;
    }
    await context.print(`${journal.handoff} was undone`);
    if (keptRef !== null) await context.print(`Work that was added since is kept in ${keptRef}`);
    return undefined;
  });
}
