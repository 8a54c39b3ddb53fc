import type { Command } from 'commander';
import type { Session } from '../../protocol/entities.ts';
import type { Memory } from '../../protocol/memory.ts';
import type { Params } from '../../protocol/methods.ts';
import type { ResumeSource } from '../../protocol/snapshots.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { formatDuration, formatSize } from '../render/quantity.ts';
import { quoteForShell, sanitizeLine } from '../render/text.ts';
import { parseSnapshotSource } from '../snapshot-id.ts';
import { previewChanges } from './snapshot-queries.ts';

/** What starts, freezes and ends the sandbox of a session. */
export function registerSandboxCommands(registry: Registry, group: Command): void {
  registerPause(registry, group);
  registerStop(registry, group);
  registerResume(registry, group);
  registerReset(registry, group);
}

function registerPause(registry: Registry, group: Command): void {
  const pause = registry.command(group, {
    usage: 'pause <session>',
    description: 'freeze the sandbox: it keeps its memory and uses no CPU',
    operands: ['session'],
  });
  registry.setAction(pause, async (context, _options, reference: string) => {
    const { session } = await context.call('session/pause', { session: reference }, { stage: 'Pausing' });
    await showState(context, session, 'The next turn resumes it.');
    return undefined;
  });
}

interface StopOptions {
  force?: boolean;
  memory?: boolean;
}

function registerStop(registry: Registry, group: Command): void {
  const stop = registry
    .command(group, {
      usage: 'stop <session>',
      description: 'stop the containers and keep the workspace',
      operands: ['session'],
    })
    .option('--force', 'stop even while a turn, an exec or a terminal is running')
    .option('--memory', 'ask the agent for the memory of the session first, for a minute at most');
  registry.setAction(stop, async (context, options: StopOptions, reference: string) => {
    const asked = options.memory === true ? await requestMemory(context, reference) : {};
    const params = { session: reference, ...(options.force === true ? { force: true } : {}) };
    const { session } = await context.call('session/stop', params, { stage: 'Stopping' });
    await showState(context, session, 'The workspace is kept. The next turn starts a new sandbox.', asked);
    return undefined;
  });
}

/** The session stops whether or not its agent writes one. */
async function requestMemory(context: Context, session: string): Promise<{ memory: Memory | null }> {
  const { memory, why } = await context.call(
    'memory/request',
    { session, opId: newOpId() },
    { stage: 'Asking the agent for the memory' },
  );
  if (memory === null) await context.printNote(`The session has no new memory: ${sanitizeLine(why ?? '')}`);
  else await context.printHint(`The memory has version ${memory.version} (${formatSize(memory.bytes)})`);
  return { memory };
}

async function showState(context: Context, session: Session, next: string, more: object = {}): Promise<void> {
  if (context.json) {
    await context.printJson({ session, ...more });
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
      description: 'start the sandbox without running a turn',
      operands: ['session'],
      examples: [
        'holdfast session resume user-123',
        'holdfast session resume user-123 --from snapshot:snp-…',
        'holdfast session resume user-123 --from clean --preview',
      ],
    })
    .option(
      '--from <what>',
      'files (default), clean, memory (clean, and a new conversation that begins with the memory), or snapshot:ID',
    )
    .option('--cancel', CANCEL)
    .option('--force', FORCE)
    .option('--preview', 'only show what would change in the workspace');
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
      description: 'start again with a clean workspace; the current files are kept as a snapshot',
      operands: ['session'],
    })
    .option('--cancel', CANCEL)
    .option('--force', FORCE)
    .option('--preview', 'only show what would change in the workspace');
  registry.setAction(command, async (context, options: ResumeOptions, reference: string) => {
    if (options.preview === true) await previewChanges(context, { session: reference, from: 'clean' });
    else await resume(context, reference, 'clean', options);
    return undefined;
  });
}

const CANCEL = 'end running turns, execs and terminals instead of failing';
const FORCE = 'continue even if the snapshot of the current files fails';

async function resume(
  context: Context,
  reference: string,
  from: ResumeSource,
  { cancel, force }: ResumeOptions,
): Promise<void> {
  const params: Params<'session/resume'> = {
    session: reference,
    opId: newOpId(),
    ...(from === 'files' ? {} : { from }),
    ...(cancel === true ? { cancel } : {}),
    ...(force === true ? { force } : {}),
  };
  const result = await context.call('session/resume', params, { stage: 'Starting the sandbox' });
  if (context.json) {
    await context.printJson(result);
    return;
  }
  const { session, sandbox, timings, undo } = result;
  const how = `${sandbox.case}, ${formatDuration(timings.dispatchMs)}`;
  await context.print(`${context.style.bold(sanitizeLine(session.name))} is ${session.status} (${how})`);
  const name = quoteForShell(reference);
  if (undo === null) await context.printHint(`Look inside: ${context.command(`exec ${name} -- ls -la`)}`);
  else if (session.persistent)
    await context.printHint(`Undo: ${context.command(`snapshot restore ${name} ${undo}`)}`);
  // Nothing is restored into an ephemeral session.
  else await context.printHint(`The files before: ${context.command(`snapshot fork ${undo}`)}`);
}

function resumeSource(from: string): ResumeSource {
  if (from === 'files' || from === 'clean' || from === 'memory') return from;
  if (/^snapshot:./.test(from)) return parseSnapshotSource(from);
  throw new UsageError(`--from cannot be ${sanitizeLine(from)}; use files, clean, memory or snapshot:ID`);
}
