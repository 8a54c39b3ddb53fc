import type { Command } from 'commander';
import type { EngineStatus } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Result } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';
import { positiveInteger } from '../option-values.ts';
import type { Registry } from '../registry.ts';
import { formatDuration, formatSize } from '../render/quantity.ts';
import { formatFields } from '../render/table.ts';
import { pluralize, sanitizeLine } from '../render/text.ts';

/** A supervisor that is told to stop finishes its current step first. */
const STOP_TIMEOUT_MS = 60_000;

export function registerSupervisor(registry: Registry): void {
  const group = registry.group(
    'supervisor',
    'start, stop and inspect the background process that runs all sessions',
  );
  registerStart(registry, group);
  registerStop(registry, group);
  registerStatus(registry, group);
  registerLogs(registry, group);
}

function registerStart(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'start',
    description: 'start the supervisor if it is not running; other commands do this automatically',
  });
  registry.setAction(command, async (context) => {
    const status = await context.call('supervisor/status', {}, { stage: 'Starting the supervisor' });
    if (context.json) await context.printJson({ running: true, ...status });
    else
      await context.print(`The supervisor is running: pid ${status.pid}, home ${sanitizeLine(status.home)}`);
    return undefined;
  });
}

function registerStop(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'stop',
      description:
        'stop the supervisor; sandboxes and turns keep running, and the next supervisor takes over',
    })
    .option('--sandboxes', 'also stop all sandboxes; workspaces are kept');
  registry.setAction(command, async (context, options: { sandboxes?: boolean }) => {
    const peer = await runningPeer(context);
    if (peer === undefined) {
      if (context.json) await context.printJson({ running: false, stopped: 0 });
      else await context.print('The supervisor is not running.');
      if (options.sandboxes === true) {
        await context.printNote(
          'Its sandboxes were not stopped. Run `holdfast supervisor start`, then stop again',
        );
      }
      return undefined;
    }
    const stage = options.sandboxes === true ? 'Stopping all sandboxes' : 'Stopping';
    const params = { sandboxes: options.sandboxes === true };
    const { stopped } = await context.call('supervisor/stop', params, { stage, start: 'never' });
    await ended(peer.closed);
    if (context.json) await context.printJson({ running: false, stopped });
    else if (options.sandboxes === true)
      await context.print(`Stopped the supervisor and ${pluralize(stopped, 'sandbox', 'sandboxes')}`);
    else await context.print('Stopped the supervisor; sandboxes and turns keep running');
    return undefined;
  });
}

async function ended(closed: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const tooLong = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      reject(
        new HoldfastError('timeout', 'The supervisor has not stopped', {
          why: 'it is still finishing its current step',
          next: 'see `holdfast supervisor logs`',
        }),
      );
    }, STOP_TIMEOUT_MS);
  });
  try {
    await Promise.race([closed, tooLong]);
  } finally {
    clearTimeout(timer);
  }
}

/** Undefined if no supervisor is running. */
async function runningPeer(context: Context) {
  try {
    return await context.client('never').peer();
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'not_found') return undefined;
    throw error;
  }
}

function registerStatus(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'status',
    description: 'show whether the supervisor is running, its engine and its sessions; never starts it',
  });
  registry.setAction(command, async (context) => {
    if ((await runningPeer(context)) === undefined) {
      if (context.json) await context.printJson({ running: false, home: context.home });
      else {
        await context.print(
          context.host === null
            ? `The supervisor is not running (home ${sanitizeLine(context.home)}).`
            : `The supervisor is not running on ${context.host}.`,
        );
        await context.printHint(
          `The next command that needs it starts it. To start it now: ${context.command('supervisor start')}`,
        );
      }
      return undefined;
    }
    const status = await context.call('supervisor/status', {}, { start: 'never' });
    if (context.json) await context.printJson({ running: true, ...status });
    else await context.print(...statusFacts(context, status));
    return undefined;
  });
}

function statusFacts(context: Context, status: Result<'supervisor/status'>): string[] {
  const { engine, sessions, turns } = status;
  const uptime = formatDuration(Math.max(0, context.io.now() - Date.parse(status.startedAt)));
  const states = Object.entries(sessions)
    .filter(([state, number]) => number > 0 && state !== 'total' && state !== 'live' && state !== 'deleted')
    .map(([state, number]) => `${number} ${state}`);
  return formatFields(
    [
      ['Supervisor', `pid ${status.pid}, ${status.version} (build ${status.build}), up ${uptime}`],
      ['Home', status.home],
      ['Engine', engineText(engine)],
      ['', engine.next === null ? null : `→ ${engine.next}`],
      [
        'Sessions',
        `${sessions.total}${states.length === 0 ? '' : ` (${states.join(', ')})`}, ${sessions.live} live`,
      ],
      ['Turns', `${turns.running} running, ${turns.queued} queued`],
      ['Clients', String(status.connections)],
      ['Memory', formatSize(status.rssBytes)],
      ['Log', status.logFile],
    ],
    context.style.dim,
  );
}

function engineText(engine: EngineStatus): string {
  if (!engine.reachable)
    return `unreachable at ${engine.endpoint}${engine.why === null ? '' : `: ${engine.why}`}`;
  return `${engine.version ?? 'unknown version'} at ${engine.endpoint} (from ${engine.source})`;
}

function registerLogs(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'logs',
      description: "print the supervisor's log; --json prints its lines unchanged",
      examples: ['holdfast supervisor logs --follow', 'holdfast supervisor logs -n 500 --json'],
    })
    .option('-f, --follow', 'keep printing new lines until ^C')
    .option('-n, --lines <n>', 'number of lines to print from the end', positiveInteger(1_000_000), 100);
  registry.setAction(command, async (context, options: { follow?: boolean; lines: number }) => {
    const { showLog } = await import('../log-view.ts');
    return showLog(context, { lines: options.lines, follow: options.follow === true });
  });
}
