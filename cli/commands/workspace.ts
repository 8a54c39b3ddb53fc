import { confirmedSession } from '../confirm.ts';
import { newOpId } from '../opid.ts';
import type { Registry } from '../registry.ts';
import { relativeTime, size } from '../render/quantity.ts';
import { facts } from '../render/table.ts';
import type { SnapshotUsage } from '../../protocol/snapshots.ts';
import { count, visible } from '../render/text.ts';
import { registerWorkspaceFiles } from './workspace-files.ts';
import { registerWorkspaceSearch } from './workspace-search.ts';

export function registerWorkspace(registry: Registry): void {
  const group = registry.group('workspace', 'where a workspace lives and how large it is; empty it');
  const info = registry.leaf(group, {
    usage: 'info <session>',
    description:
      'where the workspace lives, its size, files and last use; a persistent profile stands for its session default',
    operands: ['session'],
    examples: ['holdfast workspace info counter', 'holdfast workspace info counter/user-123'],
  });
  registry.act(info, async (context, _options, session: string) => {
    const found = await context.call('workspace/info', { session }, { stage: 'Measuring' });
    if (context.json) {
      await context.document(found);
      return undefined;
    }
    await context.print(
      ...facts(
        [
          ['Path', found.path ?? (found.volume === null ? null : `volume ${found.volume}`)],
          ['Size', size(found.bytes)],
          ['Files', `${count(found.files, 'file')} in ${count(found.directories, 'folder')}`],
          ['Limit', found.limit === null ? 'none' : size(found.limit)],
          ['Snapshots', snapshotsOf(found.snapshots)],
          ['Last used', `${relativeTime(found.lastUsedAt, context.io.now())} (${found.lastUsedAt})`],
        ],
        context.style.dim,
      ),
    );
    return undefined;
  });

  const clean = registry
    .leaf(group, {
      usage: 'clean <session>',
      description: 'empty the workspace; the session stays',
      operands: ['session'],
    })
    .option('--force', 'do not ask');
  registry.act(clean, async (context, options: { force?: boolean }, reference: string) => {
    const session = await confirmedSession(context, reference, options.force, async ({ id, name }) => {
      const found = await context.call('workspace/info', { session: id }, { stage: 'Measuring' });
      return {
        what: `Empty the workspace of ${visible(name)}`,
        lines: [`${count(found.files, 'file')} (${size(found.bytes)}) go`],
      };
    });
    const params = { session: session.id, force: true, opId: newOpId() };
    const removed = await context.call('workspace/clean', params, { stage: 'Emptying' });
    if (context.json) await context.document(removed);
    else
      await context.print(`Removed ${count(removed.removedFiles, 'file')} (${size(removed.removedBytes)})`);
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
        : `, ${size(uniqueBytes)} of it for this session alone`;
  return `${count(snapshots, 'snapshot')}, ${size(bytes)} on disk${own}`;
}
