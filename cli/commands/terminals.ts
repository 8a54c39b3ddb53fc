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
  'keys that detach: ctrl-],d (default), ctrl-a,d, …, or none; HOLDFAST_DETACH_KEYS changes the default';

export function registerTerminals(registry: Registry): void {
  const group = registry.group(
    'terminal',
    'open and attach to terminals in a sandbox; they keep running after you detach',
  );
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
        "open a terminal in the agent's container, in /workspace, and attach to it; the default command is the image's shell",
      operands: ['session', 'none'],
      examples: [
        'holdfast terminal open default',
        'holdfast terminal open default -- npm run watch',
        'holdfast terminal open default --detach        prints its id and does not attach',
      ],
    })
    .option('-d, --detach', 'do not attach')
    .option('--detach-keys <keys>', DETACH_KEYS_HELP)
    .option('--env <name=value>', 'set an environment variable; repeatable', environment)
    .option('--cwd <dir>', 'working directory (default: /workspace)');
  registry.setAction(command, async (context, options: OpenOptions, session: string, words: string[]) => {
    const { attach, windowSize } = await import('../terminal/attach.ts');
    // Check the keys before opening the terminal.
    const detachKeys = await detachKeysOf(context, options.detachKeys);
    // Without COLORTERM the sandbox assumes 24-bit colour. An empty value says that this terminal may not have it.
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
      { stage: 'Starting the sandbox' },
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
    description: 'list the terminals of a session, or of all sessions, newest first',
    operands: ['session'],
  });
  registry.setAction(command, async (context, _options, session: string | undefined) => {
    const { terminals } = await context.call('terminal/list', session === undefined ? {} : { session });
    if (context.json) await context.printJson({ terminals });
    else if (terminals.length === 0) await context.print('There are no terminals.');
    else await context.print(...terminalTable(context, terminals));
    return undefined;
  });
}

function registerAttach(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'attach <terminal>',
      description:
        'attach to a terminal: shows its recent output and sends your keys; exits with its exit code when it ends',
      withoutJson: true,
    })
    .option('--detach-keys <keys>', DETACH_KEYS_HELP)
    .option('--hold', 'if something other than its program ended it, wait for a key before exiting');
  registry.setAction(command, async (context, options: AttachCommandOptions, terminal: string) => {
    const { attach } = await import('../terminal/attach.ts');
    const detachKeys = await detachKeysOf(context, options.detachKeys);
    return attach(context, { terminal: checkedId(terminal), detachKeys, hold: options.hold ?? false });
  });
}

function registerClose(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'close <terminal>',
    description: 'end everything that runs in a terminal, or discard the output of an ended one',
  });
  registry.setAction(command, async (context, _options, id: string) => {
    const { terminal } = await context.call(
      'terminal/close',
      { terminal: checkedId(id) },
      { stage: 'Closing the terminal' },
    );
    if (context.json) await context.printJson({ terminal });
    else await context.print(`${terminal.terminalId} was closed`);
    return undefined;
  });
}

/** Without the option, detach keys work only if standard input is a terminal. Piped input is passed through. */
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
      `${sanitizeLine(terminal)} is not a terminal id; see \`holdfast terminal list\``,
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
  return exitCode === null ? (why ?? 'ended') : `exited with ${String(exitCode)}`;
}
