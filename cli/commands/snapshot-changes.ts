import type { Command } from 'commander';
import type { Params } from '../../protocol/methods.ts';
import { filled, tellMade, WAIT } from '../filling.ts';
import { newOpId } from '../opid.ts';
import type { Registry } from '../registry.ts';
import { size } from '../render/quantity.ts';
import { lackingNote } from '../render/snapshot.ts';
import { shellWord, visible } from '../render/text.ts';
import { previewChanges } from './snapshot-looks.ts';
import { snapshotId } from '../snapshot-id.ts';
import { workspacePath } from '../workspace-path.ts';

/** What makes one tree another: bringing a snapshot back, beginning a session with one. */
export function registerSnapshotChanges(registry: Registry, group: Command): void {
  registerRestore(registry, group);
  registerFork(registry, group);
}

interface RestoreOptions {
  path?: string;
  cancel?: boolean;
  force?: boolean;
  preview?: boolean;
}

function registerRestore(registry: Registry, group: Command): void {
  const command = registry
    .leaf(group, {
      usage: 'restore <session> <snapshot>',
      description:
        'make the workspace, or a part of it, what a snapshot has; what it was is kept as a snapshot',
      operands: ['session'],
      examples: [
        'holdfast snapshot restore default snp-…',
        'holdfast snapshot restore default snp-… --path src/main.py',
      ],
    })
    .option('--path <path>', 'only what is there')
    .option('--cancel', 'end the turns, execs and terminals that are live instead of refusing')
    .option('--force', 'even where no snapshot can be taken before it')
    .option('--preview', 'only say what it would change');
  registry.act(command, async (context, options: RestoreOptions, session: string, snapshot: string) => {
    const { path, cancel, force } = options;
    if (options.preview === true) {
      const from = `snapshot:${snapshotId(snapshot)}`;
      const only = path === undefined ? {} : { path: workspacePath(path) };
      await previewChanges(context, { session, from, ...only });
      return undefined;
    }
    const params: Params<'snapshot/restore'> = {
      session,
      snapshot: snapshotId(snapshot),
      opId: newOpId(),
      ...(path === undefined ? {} : { path: workspacePath(path) }),
      ...(cancel === true ? { cancel } : {}),
      ...(force === true ? { force } : {}),
    };
    const restored = await context.call('snapshot/restore', params, { stage: 'Restoring' });
    if (context.json) {
      await context.document(restored);
      return undefined;
    }
    const { created, replaced, removed, touched, bytes, undo } = restored;
    await context.print(
      `${path === undefined ? 'The workspace' : visible(path)} is as in ${context.style.bold(snapshot)}`,
      `${created} made, ${replaced} replaced, ${removed} removed, ${touched} with other attributes; ${size(bytes)} written`,
    );
    const lacking = lackingNote(snapshot, restored, 'stay as they are in the workspace');
    if (lacking !== null) await context.note(lacking);
    if (undo !== null) await context.hint(`Undo it: holdfast snapshot restore ${shellWord(session)} ${undo}`);
    return undefined;
  });
}

function registerFork(registry: Registry, group: Command): void {
  const command = registry
    .leaf(group, {
      usage: 'fork <snapshot>',
      description: 'make a session with its files, and the history of its session up to there',
      examples: ['holdfast snapshot fork snp-… --name another-way'],
    })
    .option('--name <name>', 'unique within the profile')
    .option(...WAIT);
  registry.act(command, async (context, options: { name?: string; wait?: boolean }, id: string) => {
    const { name } = options;
    const params = {
      snapshot: snapshotId(id),
      opId: newOpId(),
      ...(name === undefined ? {} : { name }),
    };
    const made = await context.call('snapshot/fork', params, { stage: 'Making the session' });
    const session = options.wait === true ? await filled(context, made.session) : made.session;
    const { id: sessionId, name: called, filling } = session;
    const { missing, missingPaths } = made;
    if (context.json) await context.document({ sessionId, name: called, filling, missing, missingPaths });
    else {
      await tellMade(context, session);
      const lacking = lackingNote(snapshotId(id), made, 'are not in this session');
      if (lacking !== null) await context.note(lacking);
    }
    return undefined;
  });
}
