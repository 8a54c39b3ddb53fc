import type { Command } from 'commander';
import type { Terminal } from '../../protocol/terminals.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import { environment } from '../option-values.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { sanitizeLine } from '../render/text.ts';
import type { DetachKeys } from '../terminal/detach-keys.ts';
import { terminalEnvironment } from '../terminal/terminal-environment.ts';

interface OpenOptions {
  detach?: boolean;
  detachKeys?: string;
  env?: Record<string, string>;
  cwd?: string;
}

interface AttachCommandOptions {
  detachKeys?: string;
  hold?: boolean;
}

const DETACH_KEYS_HELP =
  'the keys that leave it: ctrl-],d (default), ctrl-a,d, …, or none; HOLDFAST_DETACH_KEYS sets them for all';

export function registerTerminals(registry: Registry): void {
  const group = registry.group('terminal', 'terminals in a sandbox, which go on without you');
  registerOpen(registry, group);
  registerList(registry, group);
  registerAttach(registry, group);
  registerClose(registry, group);
}

function registerOpen(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'open <session> [command...]',
      description:
        'open one beside the agent, in /workspace, and join it; without a command the shell of the image',
      operands: ['session', 'none'],
      examples: [
        'holdfast terminal open default',
        'holdfast terminal open default -- npm run watch',
        'holdfast terminal open default --detach        prints its id and leaves it to itself',
      ],
    })
    .option('-d, --detach', 'do not join it')
    .option('--detach-keys <keys>', DETACH_KEYS_HELP)
    .option('--env <name=value>', 'a variable of its environment; may be repeated', environment)
    .option('--cwd <dir>', 'where it runs (default: /workspace)');
  registry.setAction(command, async (context, options: OpenOptions, session: string, words: string[]) => {
    const { attach, windowSize } = await import('../terminal/attach.ts');
    // A mistake in them is found before a terminal is opened.
    const detachKeys = await detachKeysOf(context, options.detachKeys);
    // Without COLORTERM a sandbox takes 24 bits of colour for granted; an empty one says that this terminal promises less.
    const shown = context.stdout.isTTY ? { COLORTERM: '', ...terminalEnvironment(context.io.env) } : {};
    const env = { ...shown, ...options.env };
    const { terminal, sandbox } = await context.call(
      'terminal/open',
      {
        session,
        ...windowSize(context),
        ...(words.length === 0 ? {} : { command: words }),
        ...(Object.keys(env).length === 0 ? {} : { env }),
        ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
        opId: newOpId(),
      },
      { stage: 'Bringing the sandbox up' },
    );
    if (context.json) await context.printJson({ terminal, sandbox });
    else if (options.detach === true) await context.print(terminal.terminalId);
    else return attach(context, { terminal: terminal.terminalId, detachKeys });
    return undefined;
  });
}

function registerList(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'list [session]',
    description: 'the terminals of a session, or of all, newest first',
    operands: ['session'],
  });
  registry.setAction(command, async (context, _options, session: string | undefined) => {
    const { terminals } = await context.call('terminal/list', session === undefined ? {} : { session });
    if (context.json) await context.printJson({ terminals });
    else if (terminals.length === 0) await context.print('No terminal is open.');
    else await context.print(...terminalTable(context, terminals));
    return undefined;
  });
}

function registerAttach(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'attach <terminal>',
      description:
        'join one: shows its last output and passes keys on; its exit code is passed on when it ends',
      withoutJson: true,
    })
    .option('--detach-keys <keys>', DETACH_KEYS_HELP)
    .option('--hold', 'where it was not its program that ended it, stay until a key is pressed');
  registry.setAction(command, async (context, options: AttachCommandOptions, terminal: string) => {
    const { attach } = await import('../terminal/attach.ts');
    const detachKeys = await detachKeysOf(context, options.detachKeys);
    return attach(context, { terminal: checkedId(terminal), detachKeys, hold: options.hold ?? false });
  });
}

function registerClose(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'close <terminal>',
    description: 'end all that runs in it; forget the output of one that has ended',
  });
  registry.setAction(command, async (context, _options, id: string) => {
    const { terminal } = await context.call(
      'terminal/close',
      { terminal: checkedId(id) },
      { stage: 'Closing the terminal' },
    );
    if (context.json) await context.printJson({ terminal });
    else await context.print(`${terminal.terminalId} is closed`);
    return undefined;
  });
}

/** Without the option, keys leave only where a person types them: what comes from a pipe goes through as it is. */
async function detachKeysOf(context: Context, option: string | undefined): Promise<DetachKeys | null> {
  const { DEFAULT_DETACH_KEYS, DETACH_KEYS_VARIABLE, parseDetachKeys } =
    await import('../terminal/detach-keys.ts');
  if (option !== undefined) return parseDetachKeys(option);
  if (context.io.stdin.isTTY !== true) return null;
  const { [DETACH_KEYS_VARIABLE]: chosen = '' } = context.io.env;
  return parseDetachKeys(chosen === '' ? DEFAULT_DETACH_KEYS : chosen);
}

function checkedId(terminal: string): string {
  if (!/^term-[a-z2-7]{16}$/.test(terminal)) {
    throw new UsageError(
      `${sanitizeLine(terminal)} is not the id of a terminal; \`holdfast terminal list\` shows them`,
      'invalid_params',
    );
  }
  return terminal;
}

function terminalTable(context: Context, terminals: readonly Terminal[]): string[] {
  const now = context.io.now();
  const { style } = context;
  return formatTable(
    terminals,
    [
      { title: 'TERMINAL', value: ({ terminalId }) => terminalId },
      { title: 'SESSION', value: ({ sessionId }) => sessionId, shrinkPriority: 2 },
      { title: 'STATUS', value: statusOf },
      { title: 'COMMAND', value: ({ command }) => command.join(' ') || 'shell', shrinkPriority: 3 },
      { title: 'OPENED', value: ({ createdAt }) => formatRelativeTime(createdAt, now), shrinkPriority: 1 },
    ],
    { width: context.stdout.columns, header: style.dim },
  );
}

function statusOf({ status, exitCode, why }: Terminal): string {
  if (status === 'running') return 'running';
  return exitCode === null ? (why ?? 'ended') : `ended with ${String(exitCode)}`;
}
