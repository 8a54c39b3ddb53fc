import { type Command, Option } from 'commander';
import type { Params } from '../../protocol/methods.ts';
import { registerAgentSettings } from './agent-settings.ts';
import { showConversation } from './conversation.ts';
import { confirmSessionDeletion } from '../confirm.ts';
import { UsageError } from '../failure.ts';
import { waitForFiles, printCreated, WAIT_OPTION } from '../hydration.ts';
import { oneOf, positiveInteger, repeated } from '../option-values.ts';
import { newOpId } from '../op-id.ts';
import { NO_PAGER } from '../pager.ts';
import type { Registry } from '../registry.ts';
import { formatSize } from '../render/quantity.ts';
import { formatSession, formatSessionList } from '../render/session.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { parseSnapshotSource } from '../snapshot-id.ts';
import { registerSandboxCommands } from './session-sandboxes.ts';

const STATUSES = ['created', 'active', 'idle', 'paused', 'resumable', 'expired', 'deleted'] as const;

export function registerSessions(registry: Registry): Command {
  const group = registry.group('session', 'create, find, pause, stop, resume and delete sessions');
  registerCreate(registry, group);
  registerList(registry, group);
  registerShow(registry, group);
  registerSandboxCommands(registry, group);
  registerUpdate(registry, group);
  registerAgentSettings(registry, group);
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
      description: 'create a session; its workspace starts with the files of the project',
      operands: ['profile'],
      examples: ['holdfast session create counter --name user-123'],
    })
    .option('--name <name>', 'unique within the profile')
    .option('--from <snapshot>', 'start with the files of a snapshot (snapshot:ID) instead of the project')
    .option(...WAIT_OPTION);
  registry.setAction(command, async (context, options: CreateOptions, profile: string) => {
    const params: Params<'session/create'> = {
      profile,
      opId: newOpId(),
      ...(options.name === undefined ? {} : { name: options.name }),
      ...(options.from === undefined ? {} : { from: parseSnapshotSource(options.from) }),
    };
    const made = await context.call('session/create', params, { stage: 'Creating the session' });
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
        'list sessions: active ones first, then earlier ones; pinned ones come first in each group, archived ones are hidden',
      examples: ['holdfast session list --search invoice', 'holdfast session list --status resumable --json'],
    })
    .option('--status <status>', STATUSES.join(', '), oneOf(STATUSES))
    .option('--search <text>', 'search in names and first prompts; includes archived sessions')
    .option('--profile <profile>', 'only sessions of this profile')
    .option('--pinned', 'only pinned sessions')
    .option('--archived', 'only archived sessions')
    .option('--tag <tag>', 'only sessions with this tag')
    .option('--limit <n>', 'maximum number of results (1 to 1000)', positiveInteger(1000))
    .option('--cursor <cursor>', 'continue after an earlier page');
  registry.setAction(command, async (context, options: ListOptions) => {
    const { status, search, profile, tag, limit, cursor } = options;
    const page = await context.call('session/list', {
      ...(status === undefined ? {} : { status }),
      ...(search === undefined ? {} : { search }),
      ...(profile === undefined ? {} : { profile }),
      ...(options.pinned === true ? { pinned: true } : {}),
      // Archived sessions are hidden, unless the user searches.
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
        await context.printHint(`Show them: ${context.command('session list --archived')}`);
        return undefined;
      }
      await context.print(filtered ? 'No sessions match.' : 'There are no sessions yet.');
      if (!filtered)
        await context.printHint(
          `Start one with a turn: ${context.command("run PROFILE '{}'")} (see ${context.command('profiles')})`,
        );
      return undefined;
    }
    const { style } = context;
    await context.print(
      ...formatSessionList(page.sessions, { style, now: context.io.now(), width: context.stdout.columns }),
    );
    if (page.nextCursor !== null)
      await context.printHint(`More results: --cursor ${quoteForShell(page.nextCursor)}`);
    return undefined;
  });
}

interface ShowOptions {
  readonly conversation?: boolean;
  readonly pager?: boolean;
}

function registerShow(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'show <session>',
      description: 'show the details of a session, or its conversation',
      operands: ['session'],
    })
    .option('--conversation', 'print the conversation; with --json one item per line')
    .option('--no-pager', NO_PAGER);
  registry.setAction(command, async (context, options: ShowOptions, reference: string) => {
    if (options.conversation === true) {
      context.usePager(options.pager);
      await showConversation(context, reference);
      return undefined;
    }
    const { session } = await context.call('session/show', { session: reference });
    if (context.json) await context.printJson({ session });
    else await context.print(...formatSession(session, context.style, context.io.now()));
    return undefined;
  });
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
      description: 'rename, pin, star, archive or tag a session, or store the model that it should use',
      operands: ['session'],
      examples: ['holdfast session update default --name invoices --pin --tag q3'],
    })
    .option('--name <name>', 'the new name')
    .addOption(new Option('--pin', 'show it at the top of lists').conflicts('unpin'))
    .option('--unpin')
    .addOption(new Option('--star', 'add a star').conflicts('unstar'))
    .option('--unstar')
    .addOption(
      new Option(
        '--archive',
        'hide it in lists, except with `session list --archived` or `--search`',
      ).conflicts('unarchive'),
    )
    .option('--unarchive')
    .addOption(
      new Option('--tag <tag>', 'replace its tags; repeatable').argParser(repeated).conflicts('untag'),
    )
    .option('--untag', 'remove all tags')
    .option(
      '--model <model>',
      "the model that its agent should use ('' for the default), if the agent supports it",
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
      throw new UsageError('no change was given; see `holdfast session update --help`');
    const { session } = await context.call('session/update', { session: reference, ...change });
    if (context.json) await context.printJson({ session });
    else await context.print(...formatSession(session, context.style, context.io.now()));
    return undefined;
  });
}

function registerDelete(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'delete <session>',
      description: 'delete a session and its workspace; a snapshot of its files is kept for a week',
      operands: ['session'],
    })
    .option('--force', 'do not ask for confirmation');
  registry.setAction(command, async (context, options: { force?: boolean }, reference: string) => {
    const session = await confirmSessionDeletion(context, reference, options.force, (found) => ({
      what: `Delete session ${sanitizeLine(found.name)} of ${sanitizeLine(found.profile)}`,
      consequences: [
        `its workspace${found.workspaceBytes === null ? '' : ` (${formatSize(found.workspaceBytes)})`} will be deleted`,
        ...(found.autoRemove ? [] : ['a snapshot of it is kept for a week']),
        ...(found.runningTurn === null ? [] : ['its running turn will be cancelled']),
        ...(found.queuedTurns === 0 ? [] : [`${pluralize(found.queuedTurns, 'queued turn')} will not run`]),
      ],
    }));
    await context.call(
      'session/delete',
      { session: session.id, force: true, opId: newOpId() },
      { stage: 'Deleting' },
    );
    if (context.json) await context.printJson({ sessionId: session.id, deleted: true });
    else {
      await context.print(`${sanitizeLine(session.name)} was deleted`);
      if (!session.autoRemove)
        await context.printHint(
          `Its files are kept for a week: ${context.command(`snapshot list ${session.id}`)}`,
        );
    }
    return undefined;
  });
}
