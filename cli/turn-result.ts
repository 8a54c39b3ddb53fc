import { StringDecoder } from 'node:string_decoder';
import { errorFromWire } from '../protocol/error-data.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Turn, TurnStatus } from '../protocol/entities.ts';
import type { Runner } from '../protocol/turn-kinds.ts';
import type { Context } from './context.ts';
import { EXIT, describeFailure, colorFailure, withNames } from './failure.ts';
import { pullOutput } from './follow-turn.ts';
import { formatJson, escapeJsonText } from './render/json.ts';
import { sanitizeLines } from './render/text.ts';
import type { TurnSinks } from './turn-output.ts';

export function exitCodeOfTurn(status: TurnStatus): number {
  switch (status) {
    case 'queued':
    case 'running':
    case 'succeeded':
      return EXIT.done;
    case 'cancelled':
      return EXIT.cancelled;
    case 'failed':
    case 'timeout':
    case 'interrupted':
      return EXIT.failed;
  }
}

/** The JSON document of a turn, as `run`, `prompt` and `turn wait` print it. */
export function turnJson(turn: Turn, output: unknown, truncated: boolean): Record<string, unknown> {
  const { sessionId, turnId, status, sandbox, timings, exitCode, error, worker, bytes, snapshot } = turn;
  return {
    sessionId,
    turnId,
    status,
    output,
    sandbox,
    timings,
    exitCode,
    error,
    worker,
    bytes,
    snapshot,
    ...(truncated ? { outputTruncated: true } : {}),
  };
}

/** Prints the result of an ended turn and reports its failure. `more`: further fields of the JSON. Returns the exit code. */
export async function printResult(
  context: Context,
  turn: Turn,
  runs: Runner,
  sinks: Pick<TurnSinks, 'collected'>,
  more: Readonly<Record<string, unknown>> = {},
): Promise<number> {
  const returnsValue = runs === 'worker';
  if (context.json) {
    const collected = sinks.collected();
    const output = returnsValue ? await handlerOutput(context, turn) : (collected?.text ?? null);
    await context.printJson({ ...turnJson(turn, output, collected?.truncated === true), ...more });
  } else if (returnsValue && turn.status === 'succeeded') {
    if (turn.outputArtifact) await printLargeResult(context, turn);
    else await context.print(formatJson(turn.output));
  }
  await reportTurnFailure(context, turn);
  return exitCodeOfTurn(turn.status);
}

async function reportTurnFailure(context: Context, turn: Turn): Promise<void> {
  if (exitCodeOfTurn(turn.status) === EXIT.done) return;
  const { error } = turn;
  const style = context.stderrStyle;
  if (error?.traceback !== undefined)
    await context.printNote(style.dim(sanitizeLines(error.traceback.trimEnd())));
  const failure =
    error === null
      ? new HoldfastError(
          turn.status === 'cancelled' ? 'cancelled' : 'agent_failed',
          `${turn.turnId} ended as ${turn.status}`,
        )
      : errorFromWire(error.message, error.data);
  const named = withNames(failure, { SESSION: turn.sessionId, TURN: turn.turnId }, context.host);
  await context.printNote(colorFailure(describeFailure(named).line, style));
}

/** The value that a handler returned. Large values are stored as artifacts. */
async function handlerOutput(context: Context, turn: Turn): Promise<unknown> {
  if (!turn.outputArtifact) return turn.output;
  const chunks: Buffer[] = [];
  await pullOutput(context, turn.turnId, 'result', async (bytes) => void chunks.push(bytes));
  return JSON.parse(Buffer.concat(chunks).toString('utf8'));
}

/** Streams the stored text, because parsing could change numbers and the value may not fit into memory. */
async function printLargeResult(context: Context, turn: Turn): Promise<void> {
  const decoder = new StringDecoder('utf8');
  await pullOutput(context, turn.turnId, 'result', async (bytes) =>
    context.stdout.write(escapeJsonText(decoder.write(bytes))),
  );
  await context.stdout.write(`${escapeJsonText(decoder.end())}\n`);
}
