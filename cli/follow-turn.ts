import type { Turn } from '../protocol/entities.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';
import { EXIT } from './failure.ts';
import { turnSnapshotNote } from './render/snapshot.ts';
import type { TurnSinks } from './turn-output.ts';

const PULL_BYTES = 2 ** 20;
/** Maximum time of one long poll, so that a dead connection is noticed. */
const WAIT_MS = 25_000;
const WAITING = 'Waiting for the agent';

/**
 * Handles ^C while waiting for a turn. The first ^C cancels the turn and keeps waiting for its end, the second exits
 * at once. The first may come before the turn id is known.
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
      context
        .printNote(`${turn} could not be cancelled: ${why}`)
        .catch(() => context.requestExit(EXIT.cancelled));
    };
    context
      .printNote(`Cancelling ${turn} and waiting for it to end; press ^C again to exit at once`)
      .then(() => {
        context.client().call('turn/cancel', { turn }).catch(failed);
      }, failed);
  }

  #leave(): void {
    const turn = this.#turnId;
    const text =
      turn === undefined
        ? 'Exited'
        : `Exited while ${turn} is still ending; see its result: ${this.#context.command(`turn wait ${turn}`)}`;
    const gone = () => this.#context.requestExit(EXIT.cancelled);
    this.#context.printNote(text).then(gone, gone);
  }
}

/**
 * Waits for the end of a turn. Warns on standard error about a failed, late or incomplete snapshot before the turn:
 * when the turn starts, and again at its end if more is known. Shows the progress of the snapshot before that. Also
 * reports when a full disk blocks the turn, and when it continues.
 */
export async function waitForEnd(
  context: Context,
  turnId: string,
  signal: AbortSignal | undefined,
): Promise<Turn> {
  let reported: string | null = null;
  let seen: Turn | undefined;
  for (;;) {
    // The first call asks for the state of now.
    const wait = seen === undefined ? { timeoutMs: 0 } : { timeoutMs: WAIT_MS, seen };
    const { turn } = await context
      .client()
      .call(
        'turn/wait',
        { turn: turnId, ...wait },
        { signal, waitForSupervisor: true, onProgress: (report) => context.progress.update(report) },
      );
    // Once it has started, the outcome of the snapshot before it is known.
    const note = hasNotStarted(turn) ? null : turnSnapshotNote(turn);
    if (note !== null && note !== reported && (reported === null || turn.endedAt !== null))
      await context.printNote(note);
    reported ??= note;
    if (turn.endedAt !== null) return turn;
    if (turn.waitingFor !== (seen?.waitingFor ?? null)) await context.printNote(diskNote(turn));
    // The snapshot is finished: stop showing its progress.
    if (seen !== undefined && hasNotStarted(seen) && !hasNotStarted(turn)) context.progress.begin(WAITING);
    seen = turn;
  }
}

function hasNotStarted({ startedAt, endedAt }: Turn): boolean {
  return startedAt === null && endedAt === null;
}

function diskNote({ turnId, waitingFor }: Turn): string {
  return waitingFor === 'disk_space'
    ? `The disk of the Holdfast home is full: ${turnId} cannot finish. Free some space, or cancel it: \`holdfast turn cancel ${turnId}\``
    : `The disk has free space again: ${turnId} continues`;
}

/**
 * Streams the output of a turn into `sinks` from its beginning, and resolves with the turn when it has ended.
 * Continues at the same offset after a lost connection. Rejects with the reason of `signal` when that aborts.
 */
export async function followTurn(
  context: Context,
  turnId: string,
  sinks: TurnSinks,
  signal?: AbortSignal,
): Promise<Turn> {
  context.progress.begin(WAITING);
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
    throw new HoldfastError('connection_closed', `Lost the connection while waiting for ${turnId}`, {
      why: error.sentence,
      next: `it continues; wait again with \`holdfast turn wait ${turnId}\``,
      cause: error,
    });
  } finally {
    context.progress.end();
  }
}

/** Reads one stream of a turn from its beginning to its end. */
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
