import type { Check, Garbage } from '../../protocol/entities.ts';
import { confirmDeletion } from '../confirm.ts';
import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { pluralize, padEnd, textWidth, sanitizeLine } from '../render/text.ts';
import { withHost } from '../suggested-commands.ts';

export function registerMaintenance(registry: Registry): void {
  const { root } = registry;
  const doctor = registry.command(root, {
    usage: 'doctor',
    description: 'check the engine, the Holdfast home and the images; exits with 1 if there is a problem',
  });
  registry.setAction(doctor, async (context) => {
    const { checks } = await context.call('supervisor/doctor', {}, { stage: 'Checking' });
    if (context.json) await context.printJson({ checks });
    else await context.print(...checkLines(context, checks, context.host));
    return checks.some((check) => check.status === 'problem') ? EXIT.failed : EXIT.done;
  });

  const gc = registry
    .command(root, { usage: 'gc', description: 'remove unused containers, volumes, files and snapshot data' })
    .option('--dry-run', 'only show what would be removed');
  registry.setAction(gc, async (context, options: { dryRun?: boolean }) => {
    const result = await context.call(
      'gc',
      { dryRun: options.dryRun === true },
      { stage: 'Collecting garbage' },
    );
    if (context.json) {
      await context.printJson(result);
      return undefined;
    }
    if (result.retained.length > 0) {
      await context.print(...garbageTable(context, result.retained));
      await context.print(
        `Kept ${totalOf(result.retained)}, which may be somebody's work: check it and remove it manually if nobody needs it`,
      );
    }
    if (result.removed.length === 0) await context.print('There is nothing to remove.');
    else {
      await context.print(...garbageTable(context, result.removed));
      await context.print(`${result.dryRun ? 'Would remove' : 'Removed'} ${totalOf(result.removed)}`);
    }
    if (result.dryRun && result.removed.length > 0)
      await context.printHint(`Remove it: ${context.command('gc')}`);
    return undefined;
  });

  const purge = registry
    .command(root, {
      usage: 'purge',
      description:
        'delete everything of this installation (containers, volumes, files, workspaces) and stop the supervisor',
    })
    .option('--force', 'do not ask for confirmation');
  registry.setAction(purge, async (context, options: { force?: boolean }) => {
    if (options.force !== true) await confirmPurge(context);
    const { removed } = await context.call(
      'purge',
      { force: true },
      { stage: `Deleting everything of ${placeOf(context)}` },
    );
    if (context.json) await context.printJson({ removed });
    else await context.print(`Deleted ${totalOf(removed)} of ${placeOf(context)}`);
    return undefined;
  });
}

/** Whose data is meant, for messages. */
function placeOf(context: Context): string {
  return context.host === null ? sanitizeLine(context.home) : `the host ${context.host}`;
}

async function confirmPurge(context: Context): Promise<void> {
  const { sessions } = await context.call('supervisor/status', {});
  const { profiles } = await context.call('profile/list', {});
  await confirmDeletion(context, {
    what: `Delete everything of ${placeOf(context)}`,
    consequences: [
      `${pluralize(sessions.total, 'session')} with their workspaces and history will be deleted`,
      `${pluralize(profiles.length, 'profile')} will be deleted`,
      ...(sessions.live === 0 ? [] : [`${pluralize(sessions.live, 'sandbox', 'sandboxes')} will be stopped`]),
    ],
  });
}

function totalOf(removed: readonly Garbage[]): string {
  const bytes = removed.reduce((sum, one) => sum + (one.bytes ?? 0), 0);
  return `${pluralize(removed.length, 'object')}${bytes === 0 ? '' : `, ${formatSize(bytes)}`}`;
}

/** A line for each check, and a verdict. */
/** `host`: the machine that was checked, for the commands that the advice names. */
export function checkLines(context: Context, checks: readonly Check[], host: string | null): string[] {
  const { style } = context;
  const sign: Record<Check['status'], string> = {
    ok: style.green('ok     '),
    warning: style.yellow('warning'),
    problem: style.red('problem'),
  };
  const width = Math.max(0, ...checks.map((check) => textWidth(sanitizeLine(check.name))));
  const lines = checks.flatMap((check) => {
    const name = style.bold(padEnd(sanitizeLine(check.name), width));
    const line = `${sign[check.status]}  ${name}  ${sanitizeLine(check.found)}`;
    if (check.next === null || check.status === 'ok') return [line];
    return [line, `${' '.repeat(width + 11)}${style.dim('→')} ${sanitizeLine(withHost(check.next, host))}`];
  });
  const those = (status: Check['status']) => checks.filter((check) => check.status === status).length;
  const [problems, warnings] = [those('problem'), those('warning')];
  const verdict = problems === 0 ? 'No problems found' : `${pluralize(problems, 'problem')} found`;
  return [...lines, '', warnings === 0 ? `${verdict}.` : `${verdict}, ${pluralize(warnings, 'warning')}.`];
}

function garbageTable(context: Context, removed: readonly Garbage[]): string[] {
  return formatTable<Garbage>(
    removed,
    [
      { title: 'WHAT', value: (one) => one.kind },
      { title: 'NAME', value: (one) => one.name, shrinkPriority: 1 },
      { title: 'SIZE', value: (one) => (one.bytes === null ? '' : formatSize(one.bytes)), align: 'right' },
      { title: 'WHY', value: (one) => one.why, shrinkPriority: 2 },
    ],
    { width: context.stdout.columns, header: context.style.dim },
  );
}
