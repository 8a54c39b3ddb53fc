import { Option } from 'commander';
import type { Command } from 'commander';
import type { Caveat, Change, ChangeTotals } from '../../protocol/snapshots.ts';
import type { Params } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';
import { EXIT, UsageError } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import { formatCaveat, formatChange, formatTotals } from '../render/snapshot.ts';
import { pluralize, sanitizeLine } from '../render/text.ts';
import { parseSnapshotId } from '../snapshot-id.ts';
import { parseWorkspacePath } from '../workspace-path.ts';

/** Commands that only read snapshots. */
export function registerSnapshotQueries(registry: Registry, group: Command): void {
  registerDiff(registry, group);
  registerVerify(registry, group);
}

interface DiffOptions {
  path?: string;
  session?: string;
  stat?: boolean;
  patch?: boolean;
}

function registerDiff(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'diff <a> <b>',
      description: 'compare two snapshots, or a snapshot with the current workspace (`now`)',
      examples: [
        'holdfast snapshot diff snp-… snp-…',
        'holdfast snapshot diff snp-… now --path src',
        'holdfast snapshot diff snp-… now --patch | git apply',
      ],
    })
    .option('--path <path>', 'only this file or folder')
    .option('--session <session>', 'the session that `now` refers to (default: the session of the snapshot)')
    .addOption(new Option('--stat', 'only show totals').conflicts('patch'))
    .option('--patch', 'print a unified diff for `git apply`, including binary files');
  registry.setAction(command, async (context, options: DiffOptions, a: string, b: string) => {
    const params = {
      a: side(a),
      b: side(b),
      ...(options.path === undefined ? {} : { path: parseWorkspacePath(options.path) }),
      ...(options.session === undefined ? {} : { session: options.session }),
    };
    if (options.patch === true) {
      if (context.json) throw new UsageError('--patch prints raw bytes and cannot be combined with --json');
      await writePatch(context, params);
      return undefined;
    }
    await showChanges(context, options.stat === true, (cursor, limit) =>
      context.call(
        'snapshot/diff',
        { ...params, ...(cursor === undefined ? {} : { cursor }), ...(limit === undefined ? {} : { limit }) },
        { stage: 'Comparing' },
      ),
    );
    return undefined;
  });
}

function registerVerify(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'verify <snapshot>',
    description: 'read and check all data of a snapshot; exits with 1 if something is damaged',
  });
  registry.setAction(command, async (context, _options, id: string) => {
    const snapshot = parseSnapshotId(id);
    const result = await context.call('snapshot/verify', { snapshot }, { stage: 'Checking' });
    if (context.json) await context.printJson(result);
    else if (result.ok) {
      await context.print(
        `${context.style.bold(id)} is intact: ${pluralize(result.objects, 'object')}, ${formatSize(result.bytes)}`,
      );
    } else {
      for (const { what, pack, object, path } of result.damages) {
        const where = [path, object === null ? null : `object ${object}`, pack].filter(
          (part) => part !== null,
        );
        await context.print(
          `${context.style.red('damaged')} ${sanitizeLine(where.join(', '))}: ${sanitizeLine(what)}`,
        );
      }
      const unlisted = result.damaged - result.damages.length;
      if (unlisted > 0) await context.print(`and ${unlisted} more`);
      await context.printHint(
        `Undamaged files can still be read: ${context.command('workspace cat SESSION PATH --snapshot ID')}`,
      );
    }
    return result.ok ? EXIT.done : EXIT.failed;
  });
}

interface Page {
  readonly changes: readonly Change[];
  readonly totals: ChangeTotals;
  readonly caveats: readonly Caveat[];
  readonly nextCursor: string | null;
}

/** Prints a comparison page by page, or only its totals. With --json prints one document. */
async function showChanges(
  context: Context,
  onlyTotals: boolean,
  get: (cursor: string | undefined, limit: number | undefined) => Promise<Page>,
): Promise<void> {
  let page = await get(undefined, onlyTotals ? 1 : undefined);
  const { totals, caveats } = page;
  if (onlyTotals) {
    if (context.json) await context.printJson({ totals, caveats });
    else {
      await context.print(formatTotals(totals));
      await noteCaveats(context, caveats);
    }
    return;
  }
  const all: Change[] = [];
  for (;;) {
    if (context.json) all.push(...page.changes);
    else if (page.changes.length > 0) {
      await context.print(...page.changes.map((change) => formatChange(change, context.style)));
    }
    if (page.nextCursor === null) break;
    page = await get(page.nextCursor, undefined);
  }
  if (context.json) await context.printJson({ changes: all, totals, caveats });
  else {
    await context.printHint(formatTotals(totals));
    await noteCaveats(context, caveats);
  }
}

async function noteCaveats(context: Context, caveats: readonly Caveat[]): Promise<void> {
  for (const caveat of caveats) await context.printNote(formatCaveat(caveat));
}

/** Prints what resuming from `params.from` would change. */
export async function previewChanges(context: Context, params: Params<'snapshot/preview'>): Promise<void> {
  await showChanges(context, false, (cursor, limit) =>
    context.call(
      'snapshot/preview',
      { ...params, ...(cursor === undefined ? {} : { cursor }), ...(limit === undefined ? {} : { limit }) },
      { stage: 'Comparing' },
    ),
  );
}

async function writePatch(context: Context, params: Params<'snapshot/patch'>): Promise<void> {
  let leftOut = 0;
  const caveats: Caveat[] = [];
  const paths: string[] = [];
  for (let cursor: string | undefined; ;) {
    const { result, bytes, release } = await context
      .client()
      .callWithBytes(
        'snapshot/patch',
        { ...params, ...(cursor === undefined ? {} : { cursor }) },
        { signal: context.interrupted },
      );
    if (cursor === undefined) caveats.push(...result.caveats);
    await context.stdout.write(bytes);
    await context.stdout.flush();
    release();
    leftOut += result.omitted;
    paths.push(...result.omittedPaths.slice(0, 10 - paths.length));
    if (result.nextCursor === null) break;
    cursor = result.nextCursor;
  }
  await noteCaveats(context, caveats);
  if (leftOut === 0) return;
  const more = leftOut > paths.length ? ', …' : '';
  await context.printHint(
    `Not in the patch, because git would refuse them or they are too large: ${paths.map(sanitizeLine).join(', ')}${more}`,
  );
}

function side(text: string): string {
  return text === 'now' ? text : parseSnapshotId(text);
}
