import type { Command } from 'commander';
import type { Session } from '../../protocol/entities.ts';
import type { Params } from '../../protocol/methods.ts';
import type { ResumeSource } from '../../protocol/snapshots.ts';
import { confirmSessionDeletion } from '../confirm.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { waitForFiles, printCreated, WAIT_OPTION } from '../hydration.ts';
import { oneOf, positiveInteger, repeated } from '../option-values.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatDuration, formatSize } from '../render/quantity.ts';
import { formatSession, formatSessionList } from '../render/session.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { parseSnapshotId } from '../snapshot-id.ts';
import { previewChanges } from './snapshot-queries.ts';
import { Option } from 'commander';

const STATUSES = ['created', 'active', 'idle', 'paused', 'resumable', 'expired', 'deleted'] as const;

export function registerSessions(registry: Registry): Command {
  const group = registry.group('session', 'create, find, pause, stop, resume and delete sessions');
  registerCreate(registry, group);
  registerList(registry, group);
  registerShow(registry, group);
  registerRest(registry, group);
  registerResume(registry, group);
  registerReset(registry, group);
  registerUpdate(registry, group);
  registerDelete(registry, group);
  return group;
}

interface CreateOptions {
  name?: string;
  from?: string;
  wait?: boolean;
}

function registerCreate(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'create <profile>',
      description: 'make a session with a workspace of its own, which begins with the files of its project',
      operands: ['profile'],
      examples: ['holdfast session create counter --name user-123'],
    })
    .option('--name <name>', 'unique within the profile')
    .option('--from <snapshot>', 'begin with the files of snapshot:ID instead of the project')
    .option(...WAIT_OPTION);
  registry.setAction(command, async (context, options: CreateOptions, profile: string) => {
    const params: Params<'session/create'> = {
      profile,
      opId: newOpId(),
      ...(options.name === undefined ? {} : { name: options.name }),
      ...(options.from === undefined ? {} : { from: snapshotSource(options.from) }),
    };
    const made = await context.call('session/create', params, { stage: 'Making the session' });
    const session = options.wait === true ? await waitForFiles(context, made.session) : made.session;
    if (context.json) await context.printJson({ session });
    else await printCreated(context, session);
    return undefined;
  });
}

interface ListOptions {
  status?: (typeof STATUSES)[number];
  search?: string;
  profile?: string;
  pinned?: boolean;
  archived?: boolean;
  tag?: string;
  limit?: number;
  cursor?: string;
}

function registerList(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'list',
      description:
        'list sessions: active ones first, then those to come back to; pinned ones at the top of each, archived ones left out',
      examples: ['holdfast session list --search invoice', 'holdfast session list --status resumable --json'],
    })
    .option('--status <status>', STATUSES.join(', '), oneOf(STATUSES))
    .option('--search <text>', 'in names and first requests; archived ones too')
    .option('--profile <profile>', 'of one profile')
    .option('--pinned', 'only pinned ones')
    .option('--archived', 'only archived ones')
    .option('--tag <tag>', 'only with this tag')
    .option('--limit <n>', 'at most so many (1 to 1000)', positiveInteger(1000))
    .option('--cursor <cursor>', 'go on where an earlier page ended');
  registry.setAction(command, async (context, options: ListOptions) => {
    const { status, search, profile, tag, limit, cursor } = options;
    const page = await context.call('session/list', {
      ...(status === undefined ? {} : { status }),
      ...(search === undefined ? {} : { search }),
      ...(profile === undefined ? {} : { profile }),
      ...(options.pinned === true ? { pinned: true } : {}),
      // Out of the everyday list; who searches wants to find them.
      ...(options.archived === true ? { archived: true } : search === undefined ? { archived: false } : {}),
      ...(tag === undefined ? {} : { tag }),
      ...(limit === undefined ? {} : { limit }),
      ...(cursor === undefined ? {} : { cursor }),
    });
    if (context.json) {
      await context.printJson(page);
      return undefined;
    }
    const filtered = Object.keys(options).some((name) => name !== 'home' && name !== 'limit');
    if (page.sessions.length === 0) {
      const isAnyArchived =
        !filtered && (await context.call('session/list', { archived: true, limit: 1 })).sessions.length > 0;
      if (isAnyArchived) {
        await context.print('All sessions are archived.');
        await context.printHint('See them: holdfast session list --archived');
        return undefined;
      }
      await context.print(filtered ? 'No sessions match.' : 'There are no sessions yet.');
      if (!filtered)
        await context.printHint(`Start one with a turn: holdfast run PROFILE '{}' (see holdfast profiles)`);
      return undefined;
    }
    const { style } = context;
    await context.print(
      ...formatSessionList(page.sessions, { style, now: context.io.now(), width: context.stdout.columns }),
    );
    if (page.nextCursor !== null)
      await context.printHint(`There are more: --cursor ${quoteForShell(page.nextCursor)}`);
    return undefined;
  });
}

function registerShow(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'show <session>',
    description: 'everything about one session',
    operands: ['session'],
  });
  registry.setAction(command, async (context, _options, reference: string) => {
    const { session } = await context.call('session/show', { session: reference });
    if (context.json) await context.printJson({ session });
    else await context.print(...formatSession(session, context.style, context.io.now()));
    return undefined;
  });
}

function registerRest(registry: Registry, group: Command): void {
  const pause = registry.command(group, {
    usage: 'pause <session>',
    description: 'freeze the sandbox: memory is kept, no CPU is used',
    operands: ['session'],
  });
  registry.setAction(pause, async (context, _options, reference: string) => {
    const { session } = await context.call('session/pause', { session: reference }, { stage: 'Pausing' });
    await showState(context, session, 'The next turn wakes it up.');
    return undefined;
  });

  const stop = registry
    .command(group, {
      usage: 'stop <session>',
      description: 'end the containers; the workspace stays',
      operands: ['session'],
    })
    .option('--force', 'even while a turn, an exec or a terminal is live');
  registry.setAction(stop, async (context, options: { force?: boolean }, reference: string) => {
    const params = { session: reference, ...(options.force === true ? { force: true } : {}) };
    const { session } = await context.call('session/stop', params, { stage: 'Stopping' });
    await showState(context, session, 'Its workspace stays; the next turn gets a new sandbox with it.');
    return undefined;
  });
}

async function showState(context: Context, session: Session, next: string): Promise<void> {
  if (context.json) {
    await context.printJson({ session });
    return;
  }
  await context.print(`${context.style.bold(sanitizeLine(session.name))} is ${session.status}`);
  await context.printHint(next);
}

interface ResumeOptions {
  from?: string;
  preview?: boolean;
  cancel?: boolean;
  force?: boolean;
}

function registerResume(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'resume <session>',
      description: 'bring the sandbox back without giving it work yet',
      operands: ['session'],
      examples: [
        'holdfast session resume user-123',
        'holdfast session resume user-123 --from snapshot:snp-…',
        'holdfast session resume user-123 --from clean --preview',
      ],
    })
    .option('--from <what>', 'files (default), clean, or snapshot:ID; memory comes with a later version')
    .option('--cancel', CANCEL)
    .option('--force', FORCE)
    .option('--preview', 'only say what it would change in the workspace');
  registry.setAction(command, async (context, options: ResumeOptions, reference: string) => {
    const from = options.from === undefined ? 'files' : resumeSource(options.from);
    if (options.preview === true) {
      await previewChanges(context, { session: reference, from });
      return undefined;
    }
    await resume(context, reference, from, options);
    return undefined;
  });
}

function registerReset(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'reset <session>',
      description: 'begin with a clean workspace again; what it was is kept as a snapshot',
      operands: ['session'],
    })
    .option('--cancel', CANCEL)
    .option('--force', FORCE)
    .option('--preview', 'only say what it would change in the workspace');
  registry.setAction(command, async (context, options: ResumeOptions, reference: string) => {
    if (options.preview === true) await previewChanges(context, { session: reference, from: 'clean' });
    else await resume(context, reference, 'clean', options);
    return undefined;
  });
}

const CANCEL = 'end the turns, execs and terminals that are live instead of refusing';
const FORCE = 'even where no snapshot can be taken before it';

async function resume(
  context: Context,
  reference: string,
  from: ResumeSource,
  { cancel, force }: ResumeOptions,
): Promise<void> {
  const params: Params<'session/resume'> = {
    session: reference,
    ...(from === 'files' ? {} : { from, opId: newOpId() }),
    ...(cancel === true ? { cancel } : {}),
    ...(force === true ? { force } : {}),
  };
  const result = await context.call('session/resume', params, { stage: 'Bringing the sandbox back' });
  if (context.json) {
    await context.printJson(result);
    return;
  }
  const { session, sandbox, timings, undo } = result;
  const how = `${sandbox.case}, ${formatDuration(timings.dispatchMs)}`;
  await context.print(`${context.style.bold(sanitizeLine(session.name))} is ${session.status} (${how})`);
  const name = quoteForShell(session.name);
  if (undo === null) await context.printHint(`Look inside: holdfast exec ${name} -- ls -la`);
  else await context.printHint(`Its files from before: holdfast snapshot restore ${name} ${undo}`);
}

function resumeSource(from: string): ResumeSource {
  if (from === 'files' || from === 'clean' || from === 'memory') return from;
  if (/^snapshot:./.test(from)) return snapshotSource(from);
  throw new UsageError(`--from is ${sanitizeLine(from)}; it is one of files, clean, snapshot:ID, memory`);
}

/** `snapshot:ID`. */
function snapshotSource(from: string): ResumeSource {
  if (!from.startsWith('snapshot:'))
    throw new UsageError(`--from is ${sanitizeLine(from)}; it is snapshot:ID`);
  return `snapshot:${parseSnapshotId(from.slice('snapshot:'.length))}`;
}

interface UpdateOptions {
  name?: string;
  pin?: boolean;
  unpin?: boolean;
  star?: boolean;
  unstar?: boolean;
  archive?: boolean;
  unarchive?: boolean;
  tag?: string[];
  untag?: boolean;
  model?: string;
}

function registerUpdate(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'update <session>',
      description: 'rename, pin, star, archive or tag a session, or note the model that it is to use',
      operands: ['session'],
      examples: ['holdfast session update default --name invoices --pin --tag q3'],
    })
    .option('--name <name>', 'its new name')
    .addOption(new Option('--pin', 'keep it at the top of lists').conflicts('unpin'))
    .option('--unpin')
    .addOption(new Option('--star', 'mark it').conflicts('unstar'))
    .option('--unstar')
    .addOption(
      new Option(
        '--archive',
        'leave it out of lists, except with `session list --archived` or `--search`',
      ).conflicts('unarchive'),
    )
    .option('--unarchive')
    .addOption(
      new Option('--tag <tag>', 'its tags from now on; may be repeated')
        .argParser(repeated)
        .conflicts('untag'),
    )
    .option('--untag', 'no tags any more')
    .option(
      '--model <model>',
      "the model that it is to use ('' for the profile's own); stored, and not given to agents by this version",
    );
  registry.setAction(command, async (context, options: UpdateOptions, reference: string) => {
    const either = (on: boolean | undefined, off: boolean | undefined) =>
      on === true ? true : off === true ? false : undefined;
    const pinned = either(options.pin, options.unpin);
    const starred = either(options.star, options.unstar);
    const archived = either(options.archive, options.unarchive);
    const tags = options.untag === true ? [] : options.tag;
    const change = {
      ...(options.name === undefined ? {} : { name: options.name }),
      ...(pinned === undefined ? {} : { pinned }),
      ...(starred === undefined ? {} : { starred }),
      ...(archived === undefined ? {} : { archived }),
      ...(tags === undefined ? {} : { tags }),
      ...(options.model === undefined ? {} : { model: options.model === '' ? null : options.model }),
    };
    if (Object.keys(change).length === 0)
      throw new UsageError('nothing to change was given; see `holdfast session update --help`');
    const { session } = await context.call('session/update', { session: reference, ...change });
    if (context.json) await context.printJson({ session });
    else await context.print(...formatSession(session, context.style, context.io.now()));
    if (typeof change.model === 'string')
      await context.printNote('warning: the model is stored, but this version does not give it to agents');
    return undefined;
  });
}

function registerDelete(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'delete <session>',
      description: 'delete a session and its workspace; what its files were last is kept for a week',
      operands: ['session'],
    })
    .option('--force', 'do not ask');
  registry.setAction(command, async (context, options: { force?: boolean }, reference: string) => {
    const session = await confirmSessionDeletion(context, reference, options.force, (found) => ({
      what: `Delete session ${sanitizeLine(found.name)} of ${sanitizeLine(found.profile)}`,
      consequences: [
        `its workspace (${found.workspaceBytes === null ? 'whatever is in it' : formatSize(found.workspaceBytes)}) goes`,
        ...(found.autoRemove ? [] : ['a snapshot of it stays for a week']),
        ...(found.runningTurn === null ? [] : ['the turn that runs now is ended']),
        ...(found.queuedTurns === 0 ? [] : [`${pluralize(found.queuedTurns, 'waiting turn')} never run`]),
      ],
    }));
    await context.call(
      'session/delete',
      { session: session.id, force: true, opId: newOpId() },
      { stage: 'Deleting' },
    );
    if (context.json) await context.printJson({ sessionId: session.id, deleted: true });
    else {
      await context.print(`${sanitizeLine(session.name)} is gone`);
      if (!session.autoRemove)
        await context.printHint(`For a week, what its files were last: holdfast snapshot list ${session.id}`);
    }
    return undefined;
  });
}
