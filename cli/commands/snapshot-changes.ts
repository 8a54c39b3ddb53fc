import type { Command } from 'commander';
import type { Params } from '../../protocol/methods.ts';
import { waitForFiles, printCreated, WAIT_OPTION } from '../hydration.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import { incompleteSnapshotNote } from '../render/snapshot.ts';
import { quoteForShell, sanitizeLine } from '../render/text.ts';
import { previewChanges } from './snapshot-queries.ts';
import { parseSnapshotId } from '../snapshot-id.ts';
import { parseWorkspacePath } from '../workspace-path.ts';

/** Commands that use the files of a snapshot: `restore` and `fork`. */
export function registerSnapshotChanges(registry: Registry, group: Command): void {
  registerRestore(registry, group);
  registerFork(registry, group);
}

interface RestoreOptions {
  withState?: boolean;
  path?: string;
  cancel?: boolean;
  force?: boolean;
  preview?: boolean;
}

function registerRestore(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'restore <session> <snapshot>',
      description:
        'restore the workspace, or a part of it, from a snapshot; the current files are kept as a snapshot',
      operands: ['session'],
      examples: [
        'holdfast snapshot restore default snp-…',
        'holdfast snapshot restore default snp-… --path src/main.py',
      ],
    })
    .option('--path <path>', 'only this file or folder')
    .option('--with-state', "restore the agent's state too (`agent.state` in HOME)")
    .option('--cancel', 'end running turns, execs and terminals instead of failing')
    .option('--force', 'continue even if the snapshot of the current files fails')
    .option('--preview', 'only show what would change');
  registry.setAction(command, async (context, options: RestoreOptions, session: string, snapshot: string) => {
    const { path, cancel, force } = options;
    if (options.preview === true) {
      const from = `snapshot:${parseSnapshotId(snapshot)}`;
      const only = path === undefined ? {} : { path: parseWorkspacePath(path) };
      await previewChanges(context, { session, from, ...only });
      return undefined;
    }
    const params: Params<'snapshot/restore'> = {
      session,
      snapshot: parseSnapshotId(snapshot),
      opId: newOpId(),
      ...(path === undefined ? {} : { path: parseWorkspacePath(path) }),
      ...(options.withState === true ? { withState: true } : {}),
      ...(cancel === true ? { cancel } : {}),
      ...(force === true ? { force } : {}),
    };
    const restored = await context.call('snapshot/restore', params, { stage: 'Restoring' });
    if (context.json) {
      await context.printJson(restored);
      return undefined;
    }
    const { created, replaced, removed, touched, bytes, undo } = restored;
    await context.print(
      `${restoredName(path, restored.stateRoot !== null)} was restored from ${context.style.bold(snapshot)}`,
      `${created} created, ${replaced} replaced, ${removed} deleted, ${touched} with changed attributes; ${formatSize(bytes)} written`,
    );
    const lacking = incompleteSnapshotNote(snapshot, restored, 'were left unchanged in the workspace');
    if (lacking !== null) await context.printNote(lacking);
    if (undo !== null)
      await context.printHint(
        `Undo: ${context.command(`snapshot restore ${quoteForShell(session)} ${undo}${restored.stateRoot === null ? '' : ' --with-state'}`)}`,
      );
    return undefined;
  });
}

function restoredName(path: string | undefined, hasState: boolean): string {
  if (path !== undefined) return sanitizeLine(path);
  return hasState ? "The workspace, with the agent's memory," : 'The workspace';
}

function registerFork(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'fork <snapshot>',
      description:
        'create a session with the files of the snapshot and the history of its session up to that point',
      examples: ['holdfast snapshot fork snp-… --name another-way'],
    })
    .option('--name <name>', 'unique within the profile')
    .option(...WAIT_OPTION);
  registry.setAction(command, async (context, options: { name?: string; wait?: boolean }, id: string) => {
    const { name } = options;
    const params = {
      snapshot: parseSnapshotId(id),
      opId: newOpId(),
      ...(name === undefined ? {} : { name }),
    };
    const made = await context.call('snapshot/fork', params, { stage: 'Creating the session' });
    const session = options.wait === true ? await waitForFiles(context, made.session) : made.session;
    const { id: sessionId, name: called, hydration } = session;
    const { missing, missingPaths } = made;
    if (context.json) await context.printJson({ sessionId, name: called, hydration, missing, missingPaths });
    else {
      await printCreated(context, session);
      const lacking = incompleteSnapshotNote(parseSnapshotId(id), made, 'are not in this session');
      if (lacking !== null) await context.printNote(lacking);
    }
    return undefined;
  });
}
