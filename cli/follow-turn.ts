import type { Turn } from '../protocol/entities.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';
import { EXIT } from './failure.ts';
import { turnSnapshotNote } from './render/snapshot.ts';
import { reportFullDisk } from './full-disk-notice.ts';
import type { TurnSinks } from './turn-output.ts';

const PULL_BYTES = 2 ** 20;
/** One question waits at most this long for output, so that a connection that died unnoticed is noticed. */
const WAIT_MS = 25_000;
const WAITING = 'Waiting for the agent';
/** The turn is asked for this often until it runs: then it is known what became of the snapshot before it. */
const BEGIN_MS = 1000;

/**
 * ^C while a turn is waited for. The first asks the supervisor to cancel the turn and goes on waiting for its end, the second
 * leaves at once. The turn may become known only after the first.
 */
export class TurnInterrupts {
  readonly #context: Context;
  readonly #release: () => void;
  #turnId: string | undefined;
  #cancelling = false;
  #times = 0;

  constructor(context: Context) {
    this.#context = context;
    this.#release = context.handleInterrupts((times) => {
      this.#times = times;
      if (times === 1) this.#cancel();
      else this.#leave();
    });
  }

  setTurn(turnId: string): void {
    this.#turnId = turnId;
    if (this.#times > 0) this.#cancel();
  }

  release(): void {
    this.#release();
  }

  #cancel(): void {
    const context = this.#context;
    const turn = this.#turnId;
    if (turn === undefined || this.#cancelling) return;
    this.#cancelling = true;
    context.progress.end();
    const failed = (error: unknown) => {
      const why = error instanceof Error ? error.message : String(error);
      context.printNote(`${turn} was not cancelled: ${why}`).catch(() => context.requestExit(EXIT.cancelled));
    };
    context.printNote(`Cancelling ${turn} and waiting for its end; ^C again leaves at once`).then(() => {
      context.client().call('turn/cancel', { turn }).catch(failed);
    }, failed);
  }

  #leave(): void {
    const turn = this.#turnId;
    const text =
      turn === undefined ? 'Left' : `Left ${turn} to itself; see how it ended: holdfast turn wait ${turn}`;
    const gone = () => this.#context.requestExit(EXIT.cancelled);
    this.#context.printNote(text).then(gone, gone);
  }
}

/**
 * The turn once it has ended. Says on standard error when its snapshot is not what a person relies on: as soon as the turn runs, and at its
 * end where more is known then. Shows how far the snapshot is while the turn waits for it.
 */
async function waitForEnd(context: Context, turnId: string, signal: AbortSignal | undefined): Promise<Turn> {
  let said: string | null = null;
  for (let timeoutMs = 0; ;) {
    const { turn } = await context
      .client()
      .call(
        'turn/wait',
        { turn: turnId, timeoutMs },
        { signal, waitForSupervisor: true, onProgress: (report) => context.progress.update(report) },
      );
    const isWaiting = turn.startedAt === null && turn.endedAt === null;
    const note = isWaiting ? null : turnSnapshotNote(turn);
    if (note !== null && note !== said && (said === null || turn.endedAt !== null))
      await context.printNote(note);
    said ??= note;
    if (turn.endedAt !== null) return turn;
    // What was shown of the snapshot is over.
    if (!isWaiting && timeoutMs === BEGIN_MS) context.progress.begin(WAITING);
    timeoutMs = isWaiting ? BEGIN_MS : WAIT_MS;
  }
}

/**
 * Streams a turn's output from its beginning into `sinks` and gives the turn once it has ended. Goes on at the same offset after
 * a broken connection. Rejects with the reason of `signal` when that aborts.
 */
export async function followTurn(
  context: Context,
  turnId: string,
  sinks: TurnSinks,
  signal?: AbortSignal,
): Promise<Turn> {
  context.progress.begin(WAITING);
  const endNotices = reportFullDisk(context, turnId);
  try {
    const [turn] = await Promise.all([
      waitForEnd(context, turnId, signal),
      pullOutput(context, turnId, 'stdout', (bytes) => sinks.stdout(bytes), signal),
      pullOutput(context, turnId, 'stderr', (bytes) => sinks.stderr(bytes), signal),
    ]);
    await sinks.end();
    return turn;
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'connection_closed') throw error;
    throw new HoldfastError('connection_closed', `${turnId} is not waited for any more`, {
      why: error.sentence,
      next: `it goes on: holdfast turn wait ${turnId}`,
      cause: error,
    });
  } finally {
    endNotices();
    context.progress.end();
  }
}

/** One stream of a turn, from its beginning to its end. */
export async function pullOutput(
  context: Context,
  turnId: string,
  stream: 'stdout' | 'stderr' | 'result',
  sink: (bytes: Buffer) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  for (let offset = 0; ;) {
    const { result, bytes } = await context
      .client()
      .callWithBytes(
        'turn/output',
        { turn: turnId, stream, offset, limit: PULL_BYTES, waitMs: WAIT_MS },
        { signal, waitForSupervisor: true },
      );
    if (bytes.length > 0) await sink(bytes);
    offset += bytes.length;
    if (result.ended && offset >= result.total) return;
  }
}
