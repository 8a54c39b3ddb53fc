import type { Command } from 'commander';
import type { Blame, BlameOrigin } from '../../protocol/blame.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Context } from '../context.ts';
import { NO_PAGER } from '../pager.ts';
import type { Registry } from '../registry.ts';
import { formatBlame, formatOrigin } from '../render/blame.ts';
import { quoteForShell } from '../render/text.ts';
import { parseWorkspacePath } from '../workspace-path.ts';

const PLACE = /^(?<path>.+):(?<first>[1-9]\d{0,8})(?:-(?<last>[1-9]\d{0,8}))?$/s;

/** `review blame SESSION FILE[:LINE[-LINE]]`: what changed each line last. */
export function registerReviewBlame(registry: Registry, review: Command): void {
  const command = registry
    .command(review, {
      usage: 'blame <session> <file>',
      description: 'show what changed each line last: a turn, with its shell too, or you (FILE or FILE:LINE)',
      operands: ['session'],
      examples: ['holdfast review blame default src/main.ts', 'holdfast review blame default src/main.ts:12'],
    })
    .option('--no-pager', NO_PAGER);
  registry.setAction(
    command,
    async (context, options: { pager?: boolean }, session: string, file: string) => {
      context.usePager(options.pager);
      const place = PLACE.exec(file)?.groups;
      const first = Number(place?.['first'] ?? 1);
      const last = Number(place?.['last'] ?? place?.['first'] ?? Infinity);
      const path = parseWorkspacePath(place?.['path'] ?? file);
      const blame = await readBlame(context, session, path, first - 1, last);
      if (place !== undefined && blame.ranges.length === 0) {
        throw new HoldfastError('not_found', `${path} has no line ${first}`, {
          why: `it has ${blame.lines} lines`,
        });
      }
      if (context.json) {
        const { nextLine: _all, ...printed } = blame;
        await context.printJson(printed);
        return undefined;
      }
      const view = { style: context.style, now: Date.now() };
      if (place === undefined) {
        const text = await textOf(context, session, path, blame.version);
        await context.print(...formatBlame(blame, text, view));
        if (blame.ranges.length > 0) {
          const line = `${quoteForShell(session)} ${quoteForShell(`${file}:1`)}`;
          await context.printHint(`More about a line: ${context.command(`review blame ${line}`)}`);
        }
        return undefined;
      }
      for (const { start, end, origin } of blame.ranges) {
        const of = blame.origins[origin];
        if (of !== undefined) await context.print(...formatOrigin({ path, start, end }, of, view));
      }
      const [turn] = blame.origins.flatMap(({ turns }) => turns);
      if (turn !== undefined) await context.printHint(`The turn: ${context.command(`turn show ${turn.id}`)}`);
      return undefined;
    },
  );
}

/** All pages of one version. `end` is exclusive. */
async function readBlame(
  context: Context,
  session: string,
  path: string,
  start: number,
  end: number,
): Promise<Blame> {
  const upTo = Number.isFinite(end) ? { end } : {};
  const call = (from: number, ifVersion?: string): Promise<Blame> =>
    context.call(
      'review/blame',
      { session, path, start: from, ...upTo, ...(ifVersion === undefined ? {} : { ifVersion }) },
      { stage: 'Comparing' },
    );
  const first = await call(start);
  const origins: BlameOrigin[] = [...first.origins];
  const ranges = [...first.ranges];
  for (let next = first.nextLine; next !== null;) {
    const page = await call(next, first.version);
    const offset = origins.length;
    origins.push(...page.origins);
    ranges.push(...page.ranges.map((range) => ({ ...range, origin: range.origin + offset })));
    next = page.nextLine;
  }
  return { ...first, origins, ranges, nextLine: null };
}

/** The lines of the file, without their ends. Errors: `conflict` if it has changed since. */
async function textOf(context: Context, session: string, path: string, version: string): Promise<string[]> {
  const { bytes, release } = await context
    .client()
    .callWithBytes('files/read', { session, path, ifVersion: version }, { signal: context.interrupted });
  const text = Buffer.from(bytes).toString('utf8');
  release();
  return text.split('\n');
}
