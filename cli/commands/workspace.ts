import { confirmSessionDeletion } from '../confirm.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime, formatSize } from '../render/quantity.ts';
import { formatFields } from '../render/table.ts';
import type { SnapshotUsage } from '../../protocol/snapshots.ts';
import { pluralize, sanitizeLine } from '../render/text.ts';
import { registerWorkspaceFiles } from './workspace-files.ts';
import { registerWorkspaceSearch } from './workspace-search.ts';

export function registerWorkspace(registry: Registry): void {
  const group = registry.group('workspace', 'inspect, search, change and empty a workspace');
  const info = registry.command(group, {
    usage: 'info <session>',
    description:
      "show the workspace's path, size, number of files and last use; a profile name means its session `default`",
    operands: ['session'],
    examples: ['holdfast workspace info counter', 'holdfast workspace info counter/user-123'],
  });
  registry.setAction(info, async (context, _options, session: string) => {
    const found = await context.call('workspace/info', { session }, { stage: 'Measuring' });
    if (context.json) {
      await context.printJson(found);
      return undefined;
    }
    await context.print(
      ...formatFields(
        [
          ['Path', found.path ?? (found.volume === null ? null : `volume ${found.volume}`)],
          ['Size', formatSize(found.bytes)],
          ['Files', `${pluralize(found.files, 'file')} in ${pluralize(found.directories, 'folder')}`],
          ['Limit', found.limit === null ? 'none' : formatSize(found.limit)],
          ['Snapshots', snapshotsOf(found.snapshots)],
          ['Last used', `${formatRelativeTime(found.lastUsedAt, context.io.now())} (${found.lastUsedAt})`],
        ],
        context.style.dim,
      ),
    );
    return undefined;
  });

  const clean = registry
    .command(group, {
      usage: 'clean <session>',
      description: 'delete all files of the workspace and keep the session',
      operands: ['session'],
    })
    .option('--force', 'do not ask');
  registry.setAction(clean, async (context, options: { force?: boolean }, reference: string) => {
    const session = await confirmSessionDeletion(context, reference, options.force, async ({ id, name }) => {
      const found = await context.call('workspace/info', { session: id }, { stage: 'Measuring' });
      return {
        what: `Delete all files in the workspace of ${sanitizeLine(name)}`,
        consequences: [`${pluralize(found.files, 'file')} (${formatSize(found.bytes)}) will be deleted`],
      };
    });
    const params = { session: session.id, force: true, opId: newOpId() };
    const removed = await context.call('workspace/clean', params, { stage: 'Deleting files' });
    if (context.json) await context.printJson(removed);
    else
      await context.print(
        `Deleted ${pluralize(removed.removedFiles, 'file')} (${formatSize(removed.removedBytes)})`,
      );
    return undefined;
  });
  registerWorkspaceFiles(registry, group);
  registerWorkspaceSearch(registry, group);
}

/** `12 snapshots, 3.4 MiB on disk`, and how much of it only this session uses if it shares data with forks. */
function snapshotsOf({ snapshots, bytes, uniqueBytes }: SnapshotUsage): string {
  const own =
    uniqueBytes === null
      ? ' shared with its forks; its own share is being measured'
      : uniqueBytes === bytes
        ? ''
        : `, ${formatSize(uniqueBytes)} of it used by this session only`;
  return `${pluralize(snapshots, 'snapshot')}, ${formatSize(bytes)} on disk${own}`;
}
