import type { Session, Turn } from '../../protocol/entities.ts';
import type { Params } from '../../protocol/methods.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import { converse } from '../conversation/interactive.ts';
import { showAgentTurn } from '../conversation/agent-turn.ts';
import { followTurn, TurnInterrupts } from '../follow-turn.ts';
import { durationValue } from '../option-values.ts';
import { newOpId } from '../op-id.ts';
import type { Registry } from '../registry.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';
import { validateInput, readInput } from '../turn-input.ts';
import { fetchAgentKind, inferAgentKind, createSinks } from '../turn-output.ts';
import type { AgentKind } from '../turn-output.ts';
import { printResult, turnJson } from '../turn-result.ts';

interface RunOptions {
  session?: string;
  timeout?: number;
  wait: boolean;
}

export function registerRun(registry: Registry): void {
  const run = registry
    .command(registry.root, {
      usage: 'run <profile> <input>',
      description:
        "run one turn and print the agent's output. INPUT is JSON for a handler, text for a command; - reads standard input",
      operands: ['profile', 'none'],
      examples: [
        `holdfast run counter '{}'`,
        `holdfast run counter '{}' --session user-123`,
        `echo 'Write the tests' | holdfast run coder - --no-wait`,
      ],
    })
    .option(
      '--session <name>',
      'the session to use, created if missing (default: `default`, or a temporary one for an ephemeral profile)',
    )
    .option('--timeout <s>', 'cancel the turn after this many seconds (or 5m, 2h)', durationValue)
    .option('--no-wait', 'print the turn id and exit; the turn continues');
  registry.setAction(run, async (context, options: RunOptions, profile: string, operand: string) => {
    const kind = await fetchAgentKind(context, profile);
    const input = await readInput(context.io, operand);
    validateInput(input, kind, `holdfast run ${quoteForShell(profile)}`);
    const where = await sessionOfRun(context, profile, options.session);
    return takeTurn(context, { kind, input, where, timeoutMs: options.timeout, wait: options.wait });
  });

  const prompt = registry
    .command(registry.root, {
      usage: 'prompt <session> [text]',
      description:
        'run one turn in an existing session; - reads the text from standard input, and without a text a terminal is a conversation',
      operands: ['session', 'none'],
      examples: [
        `holdfast prompt invoices 'Now the ones from May'`,
        'holdfast prompt invoices - < task.md',
        'holdfast prompt invoices',
      ],
    })
    .option('--timeout <s>', 'cancel the turn after this many seconds (or 5m, 2h)', durationValue)
    .option('--no-wait', 'print the turn id and exit; the turn continues');
  registry.setAction(
    prompt,
    async (context, options: RunOptions, reference: string, operand: string | undefined) => {
      const { session } = await context.call('session/show', { session: reference });
      const kind = await fetchAgentKind(context, session.profile);
      const where = { session: session.id };
      const take = (input: Buffer): Promise<number | undefined> => {
        validateInput(input, kind, `holdfast prompt ${quoteForShell(reference)}`);
        return takeTurn(context, { kind, input, where, timeoutMs: options.timeout, wait: options.wait });
      };
      if (operand !== undefined) return take(await readInput(context.io, operand));
      if (context.isInteractive && !context.json && options.wait)
        return converse(context, session.name, take);
      throw new UsageError('a text is missing; - reads it from standard input', 'invalid_params');
    },
  );
}

type Where = Pick<Params<'turn/start'>, 'session' | 'profile' | 'name'>;

/** A name refers to a session of the profile, which is created if missing. An id must belong to the profile. */
async function sessionOfRun(context: Context, profile: string, session: string | undefined): Promise<Where> {
  if (session === undefined) return { profile };
  if (!/^ses-[a-z2-7]{16}$/.test(session)) return { profile, name: session };
  const found = await context.call('session/show', { session });
  if (found.session.profile !== profile) {
    throw new UsageError(
      `${session} belongs to the profile ${found.session.profile}, not to ${sanitizeLine(profile)}`,
      'invalid_params',
    );
  }
  return { session };
}

interface TurnOptions {
  readonly kind: AgentKind | undefined;
  readonly input: Buffer;
  readonly where: Where;
  readonly timeoutMs: number | undefined;
  readonly wait: boolean;
}

async function takeTurn(context: Context, options: TurnOptions): Promise<number | undefined> {
  const interrupts = new TurnInterrupts(context);
  try {
    const { turn, session } = await startTurn(context, options);
    interrupts.setTurn(turn.turnId);
    if (!options.wait) {
      await showStarted(context, turn, session);
      return undefined;
    }
    if (turn.status === 'queued' && turn.ahead > 0) {
      await context.printHint(
        `Waiting for ${pluralize(turn.ahead, 'earlier turn')} in ${sanitizeLine(session.name)}`,
      );
    }
    // The kind is unknown if the profile was deployed after the query above; infer it from the turn's output.
    if (options.kind === 'acp') return await showAgentTurn(context, turn);
    const sinks = createSinks(context, options.kind ?? inferAgentKind(turn));
    const ended = await followTurn(context, turn.turnId, sinks);
    return await printResult(context, ended, options.kind ?? inferAgentKind(ended), sinks);
  } finally {
    interrupts.release();
  }
}

async function startTurn(context: Context, options: TurnOptions): Promise<{ turn: Turn; session: Session }> {
  const { input, kind, where, timeoutMs } = options;
  const params: Params<'turn/start'> = {
    ...where,
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    // Raw bytes carry the input exactly as typed, without rounding numbers. Empty input needs the field instead.
    ...(input.length === 0 && kind !== 'handler' ? { prompt: '' } : {}),
    opId: newOpId(),
  };
  context.progress.begin('Starting the turn');
  try {
    return await context.client().call('turn/start', params, {
      ...(input.length === 0 ? {} : { bytes: input }),
      onProgress: (report) => context.progress.update(report),
    });
  } finally {
    context.progress.end();
  }
}

async function showStarted(context: Context, turn: Turn, session: Session): Promise<void> {
  if (context.json) {
    await context.printJson({ ...turnJson(turn, null, false), session: session.name });
    return;
  }
  await context.print(turn.turnId);
  if (turn.ahead > 0) await context.printHint(`Waiting for ${pluralize(turn.ahead, 'earlier turn')}`);
  await context.printHint(`Wait for it: holdfast turn wait ${turn.turnId}`);
}
