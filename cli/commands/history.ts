import type { HistoryCut } from '../../protocol/history.ts';
import { confirmDeletion } from '../confirm.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import { positiveInteger } from '../option-values.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import { pluralize } from '../render/text.ts';

const MOST_KEPT = 1_000_000_000;

interface CutOptions {
  readonly before?: string;
  readonly keep?: number;
  readonly dryRun?: boolean;
  readonly force?: boolean;
}

export function registerHistory(registry: Registry): void {
  const group = registry.group('history', 'how much of its history a session keeps');
  const cut = registry
    .command(group, {
      usage: 'cut <session>',
      description:
        'remove the oldest events of a session, with prompts and outputs that only they name; a signed checkpoint stays',
      operands: ['session'],
      examples: [
        'holdfast history cut default --before 2026-01-31 --dry-run',
        'holdfast history cut default --keep 1000',
      ],
    })
    .option('--before <date>', 'remove events from before this date or time', pastTime)
    .option('--keep <n>', 'keep the newest n events', positiveInteger(MOST_KEPT))
    .option('--dry-run', 'only show what would be removed')
    .option('--force', 'do not ask for confirmation');
  registry.setAction(cut, async (context, options: CutOptions, reference: string) => {
    const { before, keep, dryRun = false, force = false } = options;
    if ((before === undefined) === (keep === undefined))
      throw new UsageError('say which events to remove: either --before or --keep');
    const { session } = await context.call('session/show', { session: reference });
    const which = { session: session.id, ...(before === undefined ? { keep } : { before }) };
    // What is removed is decided once, by a time: between the question and the answer other events arrive.
    const planned = await context.call(
      'history/cut',
      { ...which, dryRun: true },
      { stage: 'Reading the history' },
    );
    if (dryRun || planned.events === 0) {
      await show(context, { ...planned, dryRun }, dryRun ? 'Would remove' : 'Removed');
      return undefined;
    }
    if (!force)
      await confirmDeletion(context, {
        what: `Remove ${pluralize(planned.events, 'event')} of ${session.name}`,
        consequences: consequencesOf(planned),
      });
    const done = await context.call(
      'history/cut',
      { ...which, opId: newOpId() },
      { stage: 'Removing events' },
    );
    await show(context, { ...done, dryRun }, 'Removed');
    return undefined;
  });
}

async function show(context: Context, cut: HistoryCut & { dryRun: boolean }, verb: string): Promise<void> {
  if (context.json) {
    await context.printJson(cut);
    return;
  }
  if (cut.events === 0) await context.print('There is nothing to remove');
  else {
    await context.print(`${verb} ${pluralize(cut.events, 'event')} up to event ${cut.seq}`);
    for (const line of consequencesOf(cut)) await context.print(`  ${line}`);
  }
  if (cut.limitedBy !== null) await context.printHint(`Not more: ${cut.limitedBy}`);
}

function consequencesOf({ turns, contents, bytes, kept, snapshots }: HistoryCut): string[] {
  return [
    `the prompts and outputs of ${pluralize(turns, 'turn')} (${pluralize(contents, 'content')}, ${formatSize(bytes)})`,
    ...(kept > 0 ? [`${pluralize(kept, 'event')} from before stay, because something needs them`] : []),
    ...(snapshots > 0
      ? [`a fork of ${pluralize(snapshots, 'snapshot')} from before begins without this history`]
      : []),
  ];
}

/** A date (its beginning, in UTC) or a time, as ISO 8601. */
function pastTime(value: string): string {
  const time = /^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?$/.test(value) ? Date.parse(value) : NaN;
  if (Number.isNaN(time)) throw new UsageError(`"${value}" is not a date such as 2026-01-31`);
  return new Date(time).toISOString();
}
