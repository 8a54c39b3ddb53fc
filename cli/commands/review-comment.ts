import type { Command } from 'commander';
import { CommentIdSchema, type ReviewComment } from '../../protocol/review-comments.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { parseWorkspacePath } from '../workspace-path.ts';

interface CommentOptions {
  readonly side?: string;
  readonly send?: boolean;
  readonly remove?: string;
}

const PLACE = /^(?<path>.+):(?<first>[1-9]\d{0,8})(?:-(?<last>[1-9]\d{0,8}))?$/;

/** `review comment SESSION [PATH:LINE [TEXT]]`: without a place, the comments of the session. */
export function registerReviewComment(registry: Registry, review: Command): void {
  const command = registry
    .command(review, {
      usage: 'comment <session> [place] [text]',
      description:
        'comment on lines (PATH:LINE or PATH:FIRST-LAST), list the comments, or send them as a prompt',
      operands: ['session'],
      examples: [
        "holdfast review comment default src/main.ts:12-14 'this loses the error'",
        'holdfast review comment default',
        'holdfast review comment default --send',
      ],
    })
    .option('--side <side>', 'base: lines of the base, which were removed or changed (default: target)')
    .option('--send', 'send the unsent comments as the next prompt')
    .option('--remove <comment>', 'remove a comment');
  registry.setAction(
    command,
    async (
      context,
      options: CommentOptions,
      session: string,
      place: string | undefined,
      text: string | undefined,
    ) => {
      requireOne(options, place, text);
      if (place !== undefined && text !== undefined) await add(context, session, place, text, options.side);
      else if (options.remove !== undefined) await remove(context, session, options.remove);
      else if (options.send === true) await send(context, session);
      else await list(context, session);
      return undefined;
    },
  );
}

function requireOne({ side, send, remove }: CommentOptions, place?: string, text?: string): void {
  if (place !== undefined && text === undefined)
    throw new UsageError('give the text of the comment', 'invalid_params');
  const asked = [place !== undefined, send === true, remove !== undefined].filter(Boolean).length;
  if (asked > 1) throw new UsageError('a comment, --send and --remove cannot be combined');
  if (side === undefined) return;
  if (place === undefined) throw new UsageError('--side goes with a comment');
  if (side !== 'base' && side !== 'target')
    throw new UsageError('--side is base or target', 'invalid_params');
}

async function add(
  context: Context,
  session: string,
  place: string,
  text: string,
  side: string | undefined,
): Promise<void> {
  const found = PLACE.exec(place)?.groups;
  const first = Number(found?.['first']);
  const last = Number(found?.['last'] ?? first);
  if (found === undefined || last < first) {
    throw new UsageError(
      `${sanitizeLine(place)} is no place; write PATH:LINE or PATH:FIRST-LAST`,
      'invalid_params',
    );
  }
  const { comment } = await context.call('review/comment', {
    session,
    path: parseWorkspacePath(found['path'] ?? ''),
    ...(side === 'base' ? { side } : {}),
    lines: { start: first - 1, end: last },
    text,
    opId: newOpId(),
  });
  if (context.json) await context.printJson({ comment });
  else {
    await context.print(comment.id);
    await context.printHint(`Send: ${context.command(`review comment ${quoteForShell(session)} --send`)}`);
  }
}

async function remove(context: Context, session: string, comment: string): Promise<void> {
  if (!CommentIdSchema.safeParse(comment).success)
    throw new UsageError(`${sanitizeLine(comment)} is not the id of a comment`, 'invalid_params');
  const { removed } = await context.call('review/uncomment', { session, comment });
  if (context.json) await context.printJson({ comment, removed });
  else await context.print(removed ? `${comment} removed` : `There was no ${comment}`);
}

async function send(context: Context, session: string): Promise<void> {
  const outcome = await context.call('review/send', { session });
  if (context.json) {
    await context.printJson(outcome);
    return;
  }
  const { turnId, sent, left } = outcome;
  await context.print(`${pluralize(sent, 'comment')} sent: ${turnId}`);
  if (left > 0) await context.printNote(`${pluralize(left, 'comment')} left for the next prompt`);
  await context.printHint(`Answer: ${context.command(`turn wait ${turnId}`)}`);
}

async function list(context: Context, session: string): Promise<void> {
  const { comments } = await context.call('review/comments', { session });
  if (context.json) await context.printJson({ comments });
  else if (comments.length === 0) await context.print('There are no comments.');
  else await context.print(...comments.flatMap((comment) => describe(context, comment)));
}

function describe(context: Context, comment: ReviewComment): string[] {
  const { id, path, side, lines, now, quote, text, sent, addressed } = comment;
  const { style } = context;
  const at = now?.lines ?? lines;
  const range = at.end - at.start === 1 ? `${at.start + 1}` : `${at.start + 1}-${at.end}`;
  const isOutdated = now !== null && now.lines === null;
  const state = [
    side === 'base' ? 'base' : '',
    addressed ? 'addressed' : isOutdated ? 'outdated' : '',
    sent === null ? 'not sent' : `sent with ${sent.turnId}`,
  ].filter((word) => word !== '');
  const name = path.startsWith('/workspace/') ? path.slice('/workspace/'.length) : path;
  const quoted = quote.replace(/\n$/, '').split('\n');
  return [
    `${style.bold(`${sanitizeLine(name)}:${range}`)}  ${style.dim(`${id}  ${state.join(', ')}`)}`,
    ...quoted.slice(0, 4).map((line) => style.dim(`  > ${sanitizeLine(line)}`)),
    ...(quoted.length > 4 ? [style.dim(`  > … ${quoted.length - 4} more lines`)] : []),
    ...text.split('\n').map((line) => `  ${sanitizeLine(line)}`),
  ];
}
