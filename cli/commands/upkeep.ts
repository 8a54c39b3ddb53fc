import type { Check, Garbage } from '../../protocol/entities.ts';
import { confirmDeletion } from '../confirm.ts';
import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { size } from '../render/quantity.ts';
import { table } from '../render/table.ts';
import { count, padEnd, textWidth, visible } from '../render/text.ts';

export function registerUpkeep(registry: Registry): void {
  const { root } = registry;
  const doctor = registry.leaf(root, {
    usage: 'doctor',
    description:
      'check the engine, the home and the images, and say what to do; exits 1 if there is a problem',
  });
  registry.act(doctor, async (context) => {
    const { checks } = await context.call('supervisor/doctor', {}, { stage: 'Looking' });
    if (context.json) await context.document({ checks });
    else await context.print(...checkLines(context, checks));
    return checks.some((check) => check.status === 'problem') ? EXIT.failed : EXIT.done;
  });

  const gc = registry
    .leaf(root, { usage: 'gc', description: 'remove what belongs to nothing any more' })
    .option('--dry-run', 'only say what would go');
  registry.act(gc, async (context, options: { dryRun?: boolean }) => {
    const result = await context.call('gc', { dryRun: options.dryRun === true }, { stage: 'Collecting' });
    if (context.json) {
      await context.document(result);
      return undefined;
    }
    if (result.kept.length > 0) {
      await context.print(...garbageTable(context, result.kept));
      await context.print(`Kept ${totalOf(result.kept)}: look into it, and remove by hand what nobody needs`);
    }
    if (result.removed.length === 0) await context.print('There is nothing to remove.');
    else {
      await context.print(...garbageTable(context, result.removed));
      await context.print(`${result.dryRun ? 'Would remove' : 'Removed'} ${totalOf(result.removed)}`);
    }
    if (result.dryRun && result.removed.length > 0) await context.hint('Remove it: holdfast gc');
    return undefined;
  });

  const purge = registry
    .leaf(root, {
      usage: 'purge',
      description:
        'remove every container, volume and file of this installation, workspaces too, and stop the supervisor',
    })
    .option('--force', 'do not ask');
  registry.act(purge, async (context, options: { force?: boolean }) => {
    if (options.force !== true) await confirmPurge(context);
    const { removed } = await context.call(
      'purge',
      { force: true },
      { stage: `Removing everything of ${context.home}` },
    );
    if (context.json) await context.document({ removed });
    else await context.print(`Removed ${totalOf(removed)} of ${visible(context.home)}`);
    return undefined;
  });
}

async function confirmPurge(context: Context): Promise<void> {
  const { sessions } = await context.call('supervisor/status', {});
  const { profiles } = await context.call('profile/list', {});
  await confirmDeletion(context, {
    what: `Remove everything of ${visible(context.home)}`,
    lines: [
      `${count(sessions.total, 'session')} with all workspaces and history go`,
      `${count(profiles.length, 'profile')} go`,
      ...(sessions.live === 0 ? [] : [`${count(sessions.live, 'sandbox', 'sandboxes')} that run now end`]),
    ],
  });
}

function totalOf(removed: readonly Garbage[]): string {
  const bytes = removed.reduce((sum, one) => sum + (one.bytes ?? 0), 0);
  return `${count(removed.length, 'thing')}${bytes === 0 ? '' : `, ${size(bytes)}`}`;
}

function checkLines(context: Context, checks: readonly Check[]): string[] {
  const { style } = context;
  const sign: Record<Check['status'], string> = {
    ok: style.green('ok     '),
    warning: style.yellow('warning'),
    problem: style.red('problem'),
  };
  const width = Math.max(0, ...checks.map((check) => textWidth(visible(check.name))));
  const lines = checks.flatMap((check) => {
    const name = style.bold(padEnd(visible(check.name), width));
    const line = `${sign[check.status]}  ${name}  ${visible(check.found)}`;
    if (check.next === null || check.status === 'ok') return [line];
    return [line, `${' '.repeat(width + 11)}${style.dim('→')} ${visible(check.next)}`];
  });
  const those = (status: Check['status']) => checks.filter((check) => check.status === status).length;
  const [problems, warnings] = [those('problem'), those('warning')];
  const verdict = problems === 0 ? 'No problem' : `${count(problems, 'problem')} to solve`;
  return [...lines, '', warnings === 0 ? `${verdict}.` : `${verdict}, ${count(warnings, 'warning')}.`];
}

function garbageTable(context: Context, removed: readonly Garbage[]): string[] {
  return table<Garbage>(
    removed,
    [
      { title: 'WHAT', value: (one) => one.kind },
      { title: 'NAME', value: (one) => one.name, giveWay: 1 },
      { title: 'SIZE', value: (one) => (one.bytes === null ? '' : size(one.bytes)), align: 'right' },
      { title: 'WHY', value: (one) => one.why, giveWay: 2 },
    ],
    { width: context.stdout.columns, header: context.style.dim },
  );
}
