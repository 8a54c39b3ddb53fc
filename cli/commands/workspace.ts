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
  const group = registry.group('workspace', 'where a workspace lives and how large it is; empty it');
  const info = registry.command(group, {
    usage: 'info <session>',
    description:
      'where the workspace lives, its size, files and last use; a persistent profile stands for its session default',
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
      description: 'empty the workspace; the session stays',
      operands: ['session'],
    })
    .option('--force', 'do not ask');
  registry.setAction(clean, async (context, options: { force?: boolean }, reference: string) => {
    const session = await confirmSessionDeletion(context, reference, options.force, async ({ id, name }) => {
      const found = await context.call('workspace/info', { session: id }, { stage: 'Measuring' });
      return {
        what: `Empty the workspace of ${sanitizeLine(name)}`,
        consequences: [`${pluralize(found.files, 'file')} (${formatSize(found.bytes)}) go`],
      };
    });
    const params = { session: session.id, force: true, opId: newOpId() };
    const removed = await context.call('workspace/clean', params, { stage: 'Emptying' });
    if (context.json) await context.printJson(removed);
    else
      await context.print(
        `Removed ${pluralize(removed.removedFiles, 'file')} (${formatSize(removed.removedBytes)})`,
      );
    return undefined;
  });
  registerWorkspaceFiles(registry, group);
  registerWorkspaceSearch(registry, group);
}

/** `12 snapshots, 3.4 MiB on disk`, and how much of it is this session's alone where it shares with forks. */
function snapshotsOf({ snapshots, bytes, uniqueBytes }: SnapshotUsage): string {
  const own =
    uniqueBytes === null
      ? ' with its forks; its own share is being counted'
      : uniqueBytes === bytes
        ? ''
        : `, ${formatSize(uniqueBytes)} of it for this session alone`;
  return `${pluralize(snapshots, 'snapshot')}, ${formatSize(bytes)} on disk${own}`;
}
