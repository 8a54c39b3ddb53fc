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

/** A supervisor that is asked to leave finishes the step at hand first. */
const LEAVING_MS = 60_000;

export function registerSupervisor(registry: Registry): void {
  const group = registry.group('supervisor', 'start, stop and look at the process behind everything');
  registerStart(registry, group);
  registerStop(registry, group);
  registerStatus(registry, group);
  registerLogs(registry, group);
}

function registerStart(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'start',
    description: 'start it if it does not run; other commands do this by themselves',
  });
  registry.setAction(command, async (context) => {
    const status = await context.call('supervisor/status', {}, { stage: 'Starting the supervisor' });
    if (context.json) await context.printJson({ running: true, ...status });
    else await context.print(`The supervisor runs: pid ${status.pid}, home ${sanitizeLine(status.home)}`);
    return undefined;
  });
}

function registerStop(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'stop',
      description: 'end the supervisor; sandboxes and turns go on, and the next one takes them up again',
    })
    .option('--sandboxes', 'stop all sandboxes too; workspaces stay');
  registry.setAction(command, async (context, options: { sandboxes?: boolean }) => {
    const peer = await runningPeer(context);
    if (peer === undefined) {
      if (context.json) await context.printJson({ running: false, stopped: 0 });
      else await context.print('The supervisor does not run.');
      if (options.sandboxes === true) {
        await context.printNote(
          'Its sandboxes were not touched: `holdfast supervisor start`, then stop them',
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
      await context.print(`Stopped, with ${pluralize(stopped, 'sandbox', 'sandboxes')}`);
    else await context.print('Stopped; sandboxes and turns go on');
    return undefined;
  });
}

async function ended(closed: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const tooLong = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      reject(
        new HoldfastError('timeout', 'The supervisor has not ended', {
          why: 'it still finishes what it was doing',
          next: 'see `holdfast supervisor logs`',
        }),
      );
    }, LEAVING_MS);
  });
  try {
    await Promise.race([closed, tooLong]);
  } finally {
    clearTimeout(timer);
  }
}

/** Undefined where none runs. */
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
    description: 'whether it runs, on which engine, and how many sessions it has; never starts it',
  });
  registry.setAction(command, async (context) => {
    if ((await runningPeer(context)) === undefined) {
      if (context.json) await context.printJson({ running: false, home: context.home });
      else {
        await context.print(`The supervisor does not run (home ${sanitizeLine(context.home)}).`);
        await context.printHint('The next command that needs it starts it; or: holdfast supervisor start');
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
      ['Turns', `${turns.running} running, ${turns.queued} waiting`],
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
      description: "the supervisor's log, whether it runs or not; with --json its lines as they are",
      examples: ['holdfast supervisor logs --follow', 'holdfast supervisor logs -n 500 --json'],
    })
    .option('-f, --follow', 'go on with what comes, until ^C')
    .option('-n, --lines <n>', 'the last so many lines', positiveInteger(1_000_000), 100);
  registry.setAction(command, async (context, options: { follow?: boolean; lines: number }) => {
    const { showLog } = await import('../log-view.ts');
    return showLog(context, { lines: options.lines, follow: options.follow === true });
  });
}
