import type { Command } from 'commander';
import type { Turn } from '../../protocol/entities.ts';
import { errorFromWire } from '../../protocol/error-data.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { TurnKind } from '../../protocol/turn-kinds.ts';
import { attach, collected } from '../attachments.ts';
import type { Context } from '../context.ts';
import { showAgentTurn } from '../conversation/agent-turn.ts';
import { UsageError } from '../failure.ts';
import { followTurn, TurnInterrupts } from '../follow-turn.ts';
import { durationValue, positiveInteger } from '../option-values.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatJson } from '../render/json.ts';
import { formatDuration, formatRelativeTime, formatSize } from '../render/quantity.ts';
import { formatTurnSnapshot } from '../render/snapshot.ts';
import { formatFields, formatTable } from '../render/table.ts';
import { sanitizeLine, sanitizeLines } from '../render/text.ts';
import { formatTurnChanges, formatTurnPaths } from '../render/turn-changes.ts';
import { readInput } from '../turn-input.ts';
import { createSinks, fetchAgentKind, runnerOf } from '../turn-output.ts';
import { printResult } from '../turn-result.ts';

export function registerTurns(registry: Registry): void {
  const group = registry.group('turn', 'show, edit, wait for and cancel turns');
  registerShow(registry, group);
  registerList(registry, group);
  registerChanges(registry, group);
  registerEdit(registry, group);
  registerCancel(registry, group);
  registerWait(registry, group);
}

function checkedId(turn: string): string {
  if (!/^turn-[a-z2-7]{16}$/.test(turn)) {
    throw new UsageError(
      `${sanitizeLine(turn)} is not a turn id; see \`holdfast turn list SESSION\``,
      'invalid_params',
    );
  }
  return turn;
}

function registerShow(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'show <turn>',
    description: 'show the details of a turn',
  });
  registry.setAction(command, async (context, _options, id: string) => {
    const { turn } = await context.call('turn/show', { turn: checkedId(id) });
    if (context.json) await context.printJson({ turn });
    else await context.print(...turnFacts(context, turn));
    return undefined;
  });
}

function registerList(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'list <session>',
      description: 'list the turns of a session, newest first',
      operands: ['session'],
    })
    .option('--limit <n>', 'maximum number of results (1 to 1000)', positiveInteger(1000));
  registry.setAction(command, async (context, options: { limit?: number }, session: string) => {
    const limit = options.limit === undefined ? {} : { limit: options.limit };
    const { turns } = await context.call('turn/list', { session, ...limit });
    if (context.json) await context.printJson({ turns });
    else if (turns.length === 0) await context.print('This session has no turns yet.');
    else await context.print(...turnTable(context, turns));
    return undefined;
  });
}

function registerChanges(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'changes <turn>',
    description: 'list what a turn changed on disk',
  });
  registry.setAction(command, async (context, _options, id: string) => {
    const changed = await context.call('turn/changes', { turn: checkedId(id) });
    if (context.json) await context.printJson(changed);
    else await context.print(...formatTurnPaths(changed, context.style));
    return undefined;
  });
}

interface EditOptions {
  attach?: string[];
  withoutAttachments?: boolean;
}

async function sessionOf(context: Context, turnId: string): Promise<string> {
  return (await context.call('turn/show', { turn: turnId })).turn.sessionId;
}

function registerEdit(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'edit <turn> <prompt>',
    description: 'replace the prompt of a turn that waits in the queue; - reads standard input',
    examples: [
      "holdfast turn edit turn-… 'Run the tests and fix what fails'",
      "holdfast turn edit turn-… 'Like this' --attach sketch.png",
    ],
  });
  command
    .option('--attach <file>', 'replace the files of the prompt by this one; repeatable', collected)
    .option('--without-attachments', 'remove the files of the prompt');
  registry.setAction(command, async (context, options: EditOptions, id: string, prompt: string) => {
    const turnId = checkedId(id);
    if (options.attach !== undefined && options.withoutAttachments === true)
      throw new UsageError('--attach and --without-attachments exclude each other', 'invalid_params');
    const params = {
      turn: turnId,
      opId: newOpId(),
      ...(options.withoutAttachments === true ? { attachments: [] } : {}),
      ...(options.attach === undefined
        ? {}
        : { attachments: await attach(context, await sessionOf(context, turnId), options.attach) }),
    };
    const { turn } = await context.call('turn/edit', params, { bytes: await readInput(context.io, prompt) });
    if (context.json) await context.printJson({ turn });
    else
      await context.print(
        `${turn.turnId} has the new prompt${turn.ahead > 0 ? `, ${turn.ahead} ahead of it` : ''}`,
      );
    return undefined;
  });
}

function registerCancel(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'cancel <turn>',
    description: 'cancel a turn: its processes get SIGTERM, then SIGKILL; a queued turn never runs',
  });
  registry.setAction(command, async (context, _options, id: string) => {
    const { turn } = await context.call('turn/cancel', { turn: checkedId(id) }, { stage: 'Cancelling' });
    if (context.json) await context.printJson({ turn });
    else if (turn.endedAt === null) await context.print(`${turn.turnId} is being cancelled`);
    else
      await context.print(
        `${turn.turnId} ${turn.status === 'cancelled' ? 'was cancelled' : `had already ended: ${turn.status}`}`,
      );
    return undefined;
  });
}

function registerWait(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'wait <turn>',
      description: 'print the output of a turn from its beginning and wait until it ends; exits like `run`',
      examples: ['holdfast turn wait $(holdfast run coder - --no-wait < task.md)'],
    })
    .option(
      '--timeout <s>',
      'stop waiting after this many seconds (or 5m, 2h); the turn continues',
      durationValue,
    );
  registry.setAction(command, async (context, options: { timeout?: number }, id: string) => {
    const turnId = checkedId(id);
    const interrupts = new TurnInterrupts(context);
    interrupts.setTurn(turnId);
    const timedOut = new AbortController();
    const timer =
      options.timeout === undefined ? undefined : setTimeout(() => timedOut.abort(), options.timeout);
    try {
      const { turn } = await context.client().call('turn/show', { turn: turnId });
      const runs = runnerOf(await kindOf(context, turn), turn);
      if (runs === 'conversation') return await showAgentTurn(context, turn, timedOut.signal);
      const sinks = createSinks(context, runs);
      const ended = await followTurn(context, turnId, sinks, timedOut.signal);
      return await printResult(context, ended, runs, sinks);
    } catch (error) {
      if (!timedOut.signal.aborted) throw error;
      throw new HoldfastError('timeout', `${turnId} has not ended`, {
        why: `the wait timed out after ${formatDuration(options.timeout ?? 0)}`,
        next: `it continues; wait again with \`holdfast turn wait ${turnId}\``,
        cause: error,
      });
    } finally {
      clearTimeout(timer);
      interrupts.release();
    }
  });
}

/** Undefined if the session or its profile was deleted. The caller then infers the kind from the turn. */
async function kindOf(context: Context, turn: Turn): Promise<TurnKind | undefined> {
  try {
    const { session } = await context.client().call('session/show', { session: turn.sessionId });
    return await fetchAgentKind(context, session.profile);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'not_found') return undefined;
    throw error;
  }
}

function turnTable(context: Context, turns: readonly Turn[]): string[] {
  const { style } = context;
  const now = context.io.now();
  return formatTable<Turn>(
    turns,
    [
      { title: 'TURN', value: (turn) => turn.turnId },
      {
        title: 'STATUS',
        value: (turn) => turn.status,
        paint: (turn) => (turn.status === 'failed' ? style.red : style.cyan),
      },
      { title: 'CREATED', value: (turn) => formatRelativeTime(turn.createdAt, now) },
      {
        title: 'TOOK',
        value: (turn) => (turn.timings.turnMs === null ? '' : formatDuration(turn.timings.turnMs)),
        align: 'right',
      },
      { title: 'SANDBOX', value: (turn) => turn.sandbox?.case ?? '' },
      { title: 'RESULT', value: (turn) => summary(turn), shrinkPriority: 1 },
    ],
    { width: context.stdout.columns, header: style.dim },
  );
}

function summary(turn: Turn): string {
  if (turn.error !== null) return turn.error.message;
  if (turn.status === 'queued') return turn.ahead > 0 ? `queued behind ${turn.ahead}` : 'queued';
  if (turn.outputArtifact) return `${formatSize(turn.bytes.result)} of JSON`;
  if (turn.output !== null) return formatJson(turn.output);
  return turn.bytes.stdout > 0 ? `${formatSize(turn.bytes.stdout)} of output` : '';
}

function turnFacts(context: Context, turn: Turn): string[] {
  const { style } = context;
  const now = context.io.now();
  const when = (time: string | null) => (time === null ? null : `${formatRelativeTime(time, now)} (${time})`);
  const took = (milliseconds: number | null) => (milliseconds === null ? null : formatDuration(milliseconds));
  const sandbox =
    turn.sandbox === null ? null : `${turn.sandbox.case}${turn.sandbox.reused ? ', reused' : ''}`;
  const worker = turn.worker === null ? null : `${turn.worker.id}${turn.worker.reused ? ', warm' : ', new'}`;
  const lines = formatFields(
    [
      ['Turn', turn.turnId],
      ['Session', turn.sessionId],
      ['Status', turn.status + (turn.ahead > 0 ? `, ${turn.ahead} ahead of it` : '')],
      ['Waiting for', turn.waitingFor === null ? null : 'free space: the disk of the Holdfast home is full'],
      ['Created', when(turn.createdAt)],
      ['Started', when(turn.startedAt)],
      ['Ended', when(turn.endedAt)],
      ['Queued for', took(turn.timings.queuedMs)],
      ['Dispatch', took(turn.timings.dispatchMs)],
      ['Took', took(turn.timings.turnMs)],
      ['Sandbox', sandbox],
      ['Worker', worker],
      ['Snapshot', formatTurnSnapshot(turn)],
      ['Changed', formatTurnChanges(turn.changes)],
      ['Exit code', turn.exitCode === null ? null : String(turn.exitCode)],
      ['Output', turn.output === null ? null : formatJson(turn.output)],
      ['Printed', `${formatSize(turn.bytes.stdout)} to stdout, ${formatSize(turn.bytes.stderr)} to stderr`],
      ['Error', turn.error === null ? null : errorFromWire(turn.error.message, turn.error.data).sentence],
    ],
    style.dim,
  );
  const traceback = turn.error?.traceback;
  return traceback === undefined ? lines : [...lines, '', style.dim(sanitizeLines(traceback.trimEnd()))];
}
