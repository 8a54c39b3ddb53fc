import type { Command } from 'commander';
import { Option } from 'commander';
import { entriesOf } from '../../protocol/snapshot-tree.ts';
import { SNAPSHOT_REASONS, type SnapshotReason } from '../../protocol/snapshots.ts';
import { confirmDeletion } from '../confirm.ts';
import { UsageError } from '../failure.ts';
import { oneOf, positiveInteger } from '../option-values.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatDuration, formatRelativeTime, formatSize } from '../render/quantity.ts';
import { incompleteSnapshotNote, formatSnapshot, formatSnapshotTable } from '../render/snapshot.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { formatSnapshotGraph } from '../render/snapshot-graph.ts';
import { parseSnapshotId } from '../snapshot-id.ts';
import { registerSnapshotBundles } from './snapshot-bundles.ts';
import { registerSnapshotChanges } from './snapshot-changes.ts';
import { registerSnapshotQueries } from './snapshot-queries.ts';

export function registerSnapshots(registry: Registry): void {
  const group = registry.group('snapshot', 'create, compare, restore and fork snapshots of a workspace');
  registerCreate(registry, group);
  registerList(registry, group);
  registerShow(registry, group);
  registerUpdate(registry, group);
  registerDelete(registry, group);
  registerSnapshotChanges(registry, group);
  registerSnapshotQueries(registry, group);
  registerSnapshotBundles(registry, group);
}

function registerCreate(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'create <session>',
      description: 'create a snapshot of the workspace; works while a turn runs',
      operands: ['session'],
      examples: ['holdfast snapshot create default --label "before the rewrite"'],
    })
    .option('--label <text>', 'a description')
    .option('--pin', 'never delete it automatically');
  registry.setAction(
    command,
    async (context, options: { label?: string; pin?: boolean }, session: string) => {
      const { label, pin } = options;
      const params = {
        session,
        opId: newOpId(),
        ...(label === undefined ? {} : { label }),
        ...(pin === true ? { pinned: true } : {}),
      };
      const result = await context.call('snapshot/create', params, { stage: 'Scanning the workspace' });
      if (context.json) {
        await context.printJson(result);
        return undefined;
      }
      const { id, created, files, bytes, changedFiles, newBytes, scanMs, frozenMs } = result;
      const lacking = incompleteSnapshotNote(id, result, 'are not in it');
      if (lacking !== null) await context.printNote(lacking);
      if (!created) {
        await context.print(`Nothing has changed since ${context.style.bold(id)}`);
        return undefined;
      }
      const paused = frozenMs === 0 ? '' : `, the agent was paused for ${formatDuration(frozenMs)}`;
      await context.print(
        `${context.style.bold(id)}: ${pluralize(files, 'file')}, ${formatSize(bytes)} (${formatDuration(scanMs)}${paused})`,
        `${pluralize(changedFiles, 'file')} changed, ${formatSize(newBytes)} more on disk`,
      );
      await context.printHint(
        `Restore it: ${context.command(`snapshot restore ${quoteForShell(session)} ${id}`)}`,
      );
      return undefined;
    },
  );
}

interface ListOptions {
  reason?: SnapshotReason;
  limit?: number;
  cursor?: string;
  graph?: boolean;
}

function registerList(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'list <session>',
      description: 'list the snapshots of a session, newest first; use the id for a deleted session',
      operands: ['session'],
    })
    .option('--reason <reason>', SNAPSHOT_REASONS.join(', '), oneOf(SNAPSHOT_REASONS))
    .option('--limit <n>', 'maximum number of results (1 to 1000)', positiveInteger(1000))
    .option('--cursor <cursor>', 'continue after an earlier page')
    .addOption(
      new Option(
        '--graph',
        'draw what follows what: restores, forks and what the session began with',
      ).conflicts(['reason', 'cursor']),
    );
  registry.setAction(command, async (context, options: ListOptions, session: string) => {
    const { reason, limit, cursor } = options;
    const graph = options.graph === true ? await context.call('snapshot/graph', { session }) : undefined;
    const page = await context.call('snapshot/list', {
      session,
      ...(reason === undefined ? {} : { reason }),
      ...(limit === undefined ? {} : { limit }),
      ...(cursor === undefined ? {} : { cursor }),
    });
    const { snapshots, nextCursor, usage } = page;
    if (context.json) {
      await context.printJson(graph === undefined ? page : { ...page, graph });
      return undefined;
    }
    if (snapshots.length === 0) {
      await context.print('No snapshots match.');
      return undefined;
    }
    const shown = { style: context.style, now: context.io.now(), width: context.stdout.columns };
    await context.print(
      ...(graph === undefined
        ? formatSnapshotTable(snapshots, shown)
        : formatSnapshotGraph(entriesOf(snapshots, graph, nextCursor === null), shown)),
    );
    await context.printHint(
      `${pluralize(usage.snapshots, 'snapshot')}; together with those of its forks they use ${formatSize(usage.bytes)}`,
    );
    if (nextCursor !== null) {
      const more = graph === undefined ? `--cursor ${quoteForShell(nextCursor)}` : 'a higher --limit';
      await context.printHint(`More results: ${more}`);
    }
    return undefined;
  });
}

function registerShow(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'show <snapshot>',
    description: 'show the details of a snapshot',
  });
  registry.setAction(command, async (context, _options, id: string) => {
    const { snapshot } = await context.call('snapshot/show', { snapshot: parseSnapshotId(id) });
    if (context.json) await context.printJson({ snapshot });
    else await context.print(...formatSnapshot(snapshot, context.style, context.io.now()));
    return undefined;
  });
}

interface UpdateOptions {
  label?: string;
  pin?: boolean;
  unpin?: boolean;
}

function registerUpdate(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'update <snapshot>',
      description: 'pin a snapshot, or change its label',
      examples: ['holdfast snapshot update snp-… --pin --label "first that works"'],
    })
    .option('--label <text>', "a description; '' removes it")
    .addOption(new Option('--pin', 'never delete it automatically').conflicts('unpin'))
    .option('--unpin');
  registry.setAction(command, async (context, options: UpdateOptions, id: string) => {
    const { label, pin, unpin } = options;
    const change = {
      ...(label === undefined ? {} : { label: label === '' ? null : label }),
      ...(pin === true ? { pinned: true } : unpin === true ? { pinned: false } : {}),
    };
    if (Object.keys(change).length === 0)
      throw new UsageError('no change was given; see `holdfast snapshot update --help`');
    const { snapshot } = await context.call('snapshot/update', { snapshot: parseSnapshotId(id), ...change });
    if (context.json) await context.printJson({ snapshot });
    else await context.print(...formatSnapshot(snapshot, context.style, context.io.now()));
    return undefined;
  });
}

function registerDelete(registry: Registry, group: Command): void {
  const command = registry
    .command(group, { usage: 'delete <snapshot>', description: 'permanently delete a snapshot' })
    .option('--force', 'do not ask for confirmation');
  registry.setAction(command, async (context, options: { force?: boolean }, id: string) => {
    const { snapshot } = await context.call('snapshot/show', { snapshot: parseSnapshotId(id) });
    if (options.force !== true) {
      const { label, createdAt, files, bytes } = snapshot;
      await confirmDeletion(context, {
        what: `Permanently delete snapshot ${id}${label === null ? '' : ` (${sanitizeLine(label)})`}`,
        consequences: [
          `created ${formatRelativeTime(createdAt, context.io.now())}`,
          `${pluralize(files, 'file')}, ${formatSize(bytes)}`,
        ],
      });
    }
    await context.call('snapshot/delete', { snapshot: id, force: true, opId: newOpId() });
    if (context.json) await context.printJson({ snapshotId: id, deleted: true });
    else {
      await context.print(`${id} was deleted`);
      await context.printHint(`Free its disk space now: ${context.command('gc')}`);
    }
    return undefined;
  });
}
