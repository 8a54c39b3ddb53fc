import { StringDecoder } from 'node:string_decoder';
import { errorFromWire } from '../protocol/error-data.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Turn, TurnStatus } from '../protocol/entities.ts';
import type { Context } from './context.ts';
import { EXIT, failureOf, paintFailure } from './failure.ts';
import { pull } from './follow-turn.ts';
import { readableJson, safeText } from './render/json.ts';
import { visibleLines } from './render/text.ts';
import type { AgentKind, TurnSinks } from './turn-output.ts';

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

/** A turn as `run`, `prompt` and `turn wait` print it with --json. */
export function turnDocument(turn: Turn, output: unknown, truncated: boolean): Record<string, unknown> {
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

/** Prints what a turn that ended gave, and says what went wrong. Gives the exit code. */
export async function showResult(
  context: Context,
  turn: Turn,
  kind: AgentKind,
  sinks: TurnSinks,
): Promise<number> {
  if (context.json) {
    const collected = sinks.collected();
    const output = kind === 'command' ? (collected?.text ?? null) : await handlerOutput(context, turn);
    await context.document(turnDocument(turn, output, collected?.truncated === true));
  } else if (kind === 'handler' && turn.status === 'succeeded') {
    if (turn.outputArtifact) await printLargeResult(context, turn);
    else await context.print(readableJson(turn.output));
  }
  await reportTurnFailure(context, turn);
  return exitCodeOfTurn(turn.status);
}

async function reportTurnFailure(context: Context, turn: Turn): Promise<void> {
  if (exitCodeOfTurn(turn.status) === EXIT.done) return;
  const { error } = turn;
  const style = context.noteStyle;
  if (error?.traceback !== undefined) await context.note(style.dim(visibleLines(error.traceback.trimEnd())));
  const failure =
    error === null
      ? new HoldfastError(
          turn.status === 'cancelled' ? 'cancelled' : 'agent_failed',
          `${turn.turnId} ended as ${turn.status}`,
        )
      : errorFromWire(error.message, error.data);
  await context.note(paintFailure(failureOf(failure).line, style));
}

/** The value that a handler returned; large ones lie beside the history. */
async function handlerOutput(context: Context, turn: Turn): Promise<unknown> {
  if (!turn.outputArtifact) return turn.output;
  const chunks: Buffer[] = [];
  await pull(context, turn.turnId, 'result', async (bytes) => void chunks.push(bytes));
  return JSON.parse(Buffer.concat(chunks).toString('utf8'));
}

/** As it is stored: parsing could change numbers, and it need not fit into memory. */
async function printLargeResult(context: Context, turn: Turn): Promise<void> {
  const decoder = new StringDecoder('utf8');
  await pull(context, turn.turnId, 'result', async (bytes) =>
    context.stdout.write(safeText(decoder.write(bytes))),
  );
  await context.stdout.write(`${safeText(decoder.end())}\n`);
}
