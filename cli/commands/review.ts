import { resolve } from 'node:path';
import type { SentHead } from '../../handoff/review-head.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import {
  type Decision,
  type Review,
  type ReviewAction,
  type ReviewBase,
  type ReviewFile,
  REVIEW_LIMITS,
  ReviewBaseSchema,
  type Verdict,
} from '../../protocol/review.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import { NO_PAGER } from '../pager.ts';
import type { Registry } from '../registry.ts';
import { formatReviewCounts, formatReviewFiles } from '../render/review.ts';
import { formatSize } from '../render/quantity.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { parseWorkspacePath } from '../workspace-path.ts';
import { registerReviewBlame } from './review-blame.ts';
import { registerReviewComment } from './review-comment.ts';
import { registerReviewDiff } from './review-diff.ts';

/** `review SESSION`, and what decides about the changes that it shows. */
export function registerReview(registry: Registry): void {
  const review = registry
    .command(registry.root, {
      usage: 'review <session>',
      description: 'show what changed since an earlier state, the most dangerous first; go on with decisions',
      operands: ['session'],
      examples: [
        'holdfast review default',
        'holdfast review default --base head       compared with what is checked out here',
        'holdfast review diff default src/main.ts',
        'holdfast review accept default src/main.ts',
        'holdfast review reject default src/debug.ts:3f2a91c0',
        'holdfast review accept default --all',
      ],
    })
    .option(
      '--base <base>',
      'last, start, turn:ID, snapshot:ID or head (your checked out commit); a different base begins a new review',
    )
    .option('--repository <folder>', 'your repository, for --base head (default: the current folder)')
    .option('--no-pager', NO_PAGER)
    .enablePositionalOptions();
  registry.setAction(review, async (context, options: ReviewOptions, session: string) => {
    const { base, repository } = options;
    if (repository !== undefined && base !== 'head')
      throw new UsageError('--repository goes with --base head', 'invalid_params');
    context.usePager(options.pager);
    const chosen =
      base === undefined
        ? {}
        : base === 'head'
          ? await sendOwnHead(context, session, repository)
          : { base: parseBase(base) };
    await context.call('review/open', { session, ...chosen }, { stage: 'Comparing' });
    const { review: opened, files } = await allFiles(context, session);
    if (context.json) await context.printJson({ review: opened, files });
    else {
      const { style, stdout } = context;
      await context.print(...formatReviewFiles(files, { style, width: stdout.columns }));
      if (files.length === 0) await context.print(formatReviewCounts(opened));
      else {
        await context.printHint(formatReviewCounts(opened));
        await hintNextStep(context, session, opened);
      }
    }
    return undefined;
  });
  registerReviewDiff(registry, review);
  for (const verdict of ['accept', 'reject'] as const) registerDecide(registry, review, verdict);
  registerWithdraw(registry, review);
  registerUndo(registry, review);
  registerReviewComment(registry, review);
  registerReviewBlame(registry, review);
}

interface ReviewOptions {
  readonly base?: string;
  readonly repository?: string;
  readonly pager?: boolean;
}

/** What is checked out in the person's repository, which the supervisor may not see. */
async function sendOwnHead(context: Context, session: string, folder: string | undefined): Promise<SentHead> {
  const { Git } = await import('../../handoff/git.ts');
  const { openRepository } = await import('../../handoff/repository.ts');
  const { sendHead } = await import('../../handoff/review-head.ts');
  const chosen = resolve(context.io.cwd, folder ?? '.');
  const git = new Git(chosen, context.io.env, context.interrupted);
  const repository = await openRepository(git, context.home, 'review');
  context.progress.begin('Reading the commit');
  try {
    return await sendHead(
      context.client(),
      { session, repository, folder: chosen },
      {
        signal: context.interrupted,
        onProgress: (stage) => context.progress.update({ stage, done: null, of: null, unit: null }),
        onSend: ({ files, bytes }) =>
          context.printHint(
            `Sending ${pluralize(files, 'file')} (${formatSize(bytes)}) of the commit to ${context.host ?? 'the supervisor on this machine'}`,
          ),
      },
    );
  } finally {
    context.progress.end();
  }
}

function registerDecide(registry: Registry, review: ReturnType<Registry['group']>, verdict: Verdict): void {
  const command = registry
    .command(review, {
      usage: `${verdict} <session> [paths...]`,
      description:
        verdict === 'accept'
          ? 'accept paths, folders or hunks (PATH:HUNK,HUNK)'
          : 'reject paths, folders or hunks (PATH:HUNK,HUNK), and restore their base in the workspace',
      operands: ['session'],
      examples: [
        `holdfast review ${verdict} default src`,
        `holdfast review ${verdict} default src/main.ts:8f8d76af`,
        `holdfast review ${verdict} default --all`,
      ],
    })
    .option('--all', 'all undecided changes');
  registry.setAction(
    command,
    async (context, options: { all?: boolean }, session: string, paths: string[]) => {
      if ((options.all === true) === paths.length > 0) {
        throw new UsageError('name paths or --all, and not both', 'invalid_params');
      }
      const outcome =
        options.all === true
          ? await decideAll(context, session, verdict)
          : await decidePaths(context, session, verdict, paths);
      if (context.json) await context.printJson(outcome);
      else {
        const what = verdict === 'accept' ? 'accepted' : 'rejected';
        await context.print(`${pluralize(outcome.decided, 'path')} ${what}`);
        await context.printHint(formatReviewCounts(outcome.review));
        await context.printHint(`Undo: ${context.command(`review undo ${quoteForShell(session)}`)}`);
        if (outcome.review.counts.toReview === 0) await hintNextStep(context, session, outcome.review);
      }
      return undefined;
    },
  );
}

function registerWithdraw(registry: Registry, review: ReturnType<Registry['group']>): void {
  const command = registry.command(review, {
    usage: 'withdraw <session> <paths...>',
    description: 'withdraw what was decided about paths, folders or hunks; they are to review again',
    operands: ['session'],
    examples: ['holdfast review withdraw default src/main.ts'],
  });
  registry.setAction(command, async (context, _options, session: string, paths: string[]) => {
    const outcome = await decidePaths(context, session, 'withdraw', paths);
    if (context.json) await context.printJson(outcome);
    else {
      await context.print(`${pluralize(outcome.decided, 'path')} to review again`);
      await context.printHint(formatReviewCounts(outcome.review));
    }
    return undefined;
  });
}

/** What a person does next with a review that has changes. */
async function hintNextStep(context: Context, session: string, { counts }: Review): Promise<void> {
  const name = quoteForShell(session);
  if (counts.toReview > 0) await context.printHint(`Read them: ${context.command(`review diff ${name}`)}`);
  else if (counts.accepted + counts.partial > 0)
    await context.printHint(
      `Bring what you accepted into your repository: ${context.command(`handoff ${name}`)}`,
    );
}

interface Outcome {
  readonly review: Review;
  readonly decided: number;
}

async function decideAll(context: Context, session: string, verdict: Verdict): Promise<Outcome> {
  const { review } = await context.call('review/show', { session });
  const all = { review: review.id, revision: review.revision };
  return await context.call(
    'review/decide',
    { session, verdict, all, opId: newOpId() },
    { stage: 'Deciding' },
  );
}

async function decidePaths(
  context: Context,
  session: string,
  verdict: ReviewAction,
  typed: readonly string[],
): Promise<Outcome> {
  const { files } = await allFiles(context, session);
  const decisions = typed.flatMap((text) => decisionsOf(text, files));
  let decided = 0;
  let review: Review | undefined;
  for (let from = 0; from < decisions.length; from += REVIEW_LIMITS.decisions) {
    const part = decisions.slice(from, from + REVIEW_LIMITS.decisions);
    const request = { session, verdict, decisions: part, opId: newOpId() };
    const outcome = await context.call('review/decide', request, { stage: 'Deciding' });
    decided += outcome.decided;
    review = outcome.review;
  }
  return { review: review ?? (await context.call('review/show', { session })).review, decided };
}

const HUNKS = /^(?<path>.+):(?<hunks>[0-9a-f]{8}(?:,[0-9a-f]{8}){0,999})$/s;
/** A path that is followed by something else. */
const FOLLOWED = /^(?<path>.+):[^:/]*$/s;

/** What a word of the command line names: a path, all paths below a folder, or hunks of a path. */
export function decisionsOf(typed: string, files: readonly ReviewFile[]): Decision[] {
  const path = parseWorkspacePath(typed);
  const found = files.filter((file) => file.path === path || file.path.startsWith(`${path}/`));
  if (found.length > 0) return found.map((file) => ({ path: file.path, seen: file.id }));
  const { path: before, hunks } = HUNKS.exec(typed)?.groups ?? {};
  if (before !== undefined && hunks !== undefined) {
    const whole = parseWorkspacePath(before);
    const file = files.find((one) => one.path === whole);
    if (file !== undefined) return [{ path: whole, seen: file.id, hunks: hunks.split(',') }];
  }
  const { path: named } = FOLLOWED.exec(typed)?.groups ?? {};
  const meant = named === undefined ? undefined : parseWorkspacePath(named);
  if (meant !== undefined && files.some((file) => file.path === meant))
    throw new HoldfastError('invalid_params', `${sanitizeLine(typed)} does not name a hunk`, {
      why: 'a hunk is named by the eight characters after its @@, and several by a list with commas',
      next: `see them with \`holdfast review diff SESSION ${quoteForShell(sanitizeLine(named ?? ''))}\``,
    });
  throw new HoldfastError('not_found', `${sanitizeLine(typed)} is not part of the review`, {
    why: 'it does not differ from the base',
    next: 'see `holdfast review SESSION`',
  });
}

const UNDONE: Readonly<Record<ReviewAction, string>> = {
  accept: 'no longer accepted',
  reject: 'no longer rejected',
  withdraw: 'decided as before',
};

function registerUndo(registry: Registry, review: ReturnType<Registry['group']>): void {
  const command = registry.command(review, {
    usage: 'undo <session>',
    description: 'take the last decision back; what it rejected returns into the workspace',
    operands: ['session'],
  });
  registry.setAction(command, async (context, _options, session: string) => {
    const undone = await context.call('review/undo', { session, opId: newOpId() }, { stage: 'Undoing' });
    if (context.json) await context.printJson(undone);
    else {
      await context.print(`${pluralize(undone.paths, 'path')} ${UNDONE[undone.verdict]}`);
      await context.printHint(formatReviewCounts(undone.review));
    }
    return undefined;
  });
}

/** All changed paths of the open review. Errors: `not_found` without one. */
export async function allFiles(
  context: Context,
  session: string,
): Promise<{ review: Review; files: ReviewFile[] }> {
  const files: ReviewFile[] = [];
  for (let cursor: string | undefined; ;) {
    const page = await context.call('review/files', {
      session,
      ...(cursor === undefined ? {} : { cursor }),
    });
    files.push(...page.files);
    if (page.nextCursor === null) return { review: page.review, files };
    cursor = page.nextCursor;
  }
}

function parseBase(text: string): ReviewBase {
  const parsed = ReviewBaseSchema.safeParse(text);
  if (parsed.success) return parsed.data;
  throw new UsageError('--base is last, start, head, turn:ID or snapshot:ID', 'invalid_params');
}
