import type { AttachmentRef } from '../../protocol/attachments.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import { type Turn, ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import { driverFor } from '../agents/drivers.ts';
import { Emitter } from '../base/emitter.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Attachments } from '../history/attachments.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { SessionRow } from '../store/sessions.ts';
import { type NewTurn, UNSTARTED_TURN } from '../store/turns.ts';
import type { TurnRow, TurnSummary } from '../store/turns.ts';
import type { Ids } from '../base/ids.ts';
import type { Limit } from '../../sidecar/wire.ts';
import { PROMPT_CHARACTERS, firstLine } from '../base/single-line.ts';
import { queueKey } from './turn-records.ts';
import { TurnRun, type TurnRunOptions } from './turn-run.ts';
import { turnView } from './turn-view.ts';

/** Turns that may wait in one session: more come from a loop that went wrong. */
const MAX_QUEUED = 1000;

export interface TurnQueueOptions extends TurnRunOptions {
  readonly database: Database;
  readonly events: EventLog;
  readonly attachments: Pick<Attachments, 'resolve' | 'markNamed'>;
  readonly ids: Ids;
  readonly reserve: Pick<DiskReserve, 'retryOnFullDisk' | 'ensure'>;
}

/** What a client that waits knows of a turn. */
export type SeenTurn = Pick<Turn, 'status' | 'ahead' | 'waitingFor'>;

/** The turns of all sessions: one at a time per session. The others wait in the database, in order of arrival. */
export class TurnQueue {
  /** The id of a session whose last turn has ended. */
  readonly drained = new Emitter<string>();
  readonly #options: TurnQueueOptions;
  readonly #running = new Map<string, TurnRun>();
  readonly #workers = new Map<string, Promise<void>>();
  #isShuttingDown = false;

  constructor(options: TurnQueueOptions) {
    this.#options = options;
  }

  /** Resumes the turns that an earlier supervisor did not finish. */
  recover(): void {
    for (const sessionId of new Set(this.#options.turns.listUnfinished().map((turn) => turn.sessionId)))
      this.#startWorker(sessionId);
  }

  /** Validates the input and stores the turn. The turn is durable when this returns. */
  enqueue(
    row: SessionRow,
    profile: Profile,
    input: Buffer,
    timeoutMs: number | undefined,
    refs: readonly AttachmentRef[] = [],
  ): TurnRow {
    if (this.#isShuttingDown)
      throw new HoldfastError('shutting_down', 'The supervisor is shutting down', { next: 'try again' });
    const driver = driverFor(profile.agent);
    const { database, turns, events, sessions, ids, now } = this.#options;
    const attachments = this.#options.attachments.resolve(row.id, refs);
    driver.validateInput(input, attachments);
    const limit = timeoutMs ?? profile.agent.timeout ?? PROFILE_DEFAULTS.turnTimeout;
    return database.transaction(() => {
      if (turns.countQueued(row.id) >= MAX_QUEUED) {
        throw new HoldfastError('overloaded', `Session ${row.name} has ${String(MAX_QUEUED)} turns waiting`, {
          next: 'wait for some of them, or cancel them with `holdfast turn cancel TURN`',
        });
      }
      const turn: NewTurn = {
        ...UNSTARTED_TURN,
        id: ids.next('turn'),
        sessionId: row.id,
        kind: driver.kind,
        createdAt: now(),
        timeoutMs: limit,
        input,
        attachments,
      };
      const content = turns.insert(turn);
      this.#options.attachments.markNamed(row.id, attachments);
      events.append(row.id, [
        {
          type: 'turn.queued',
          data: {
            turnId: turn.id,
            kind: driver.kind,
            inputBytes: input.byteLength,
            content,
            timeoutMs: limit,
            ...(attachments.length === 0 ? {} : { attachments }),
          },
        },
      ]);
      if (row.about === null) {
        sessions.change(row.id, { about: firstLine(input, PROMPT_CHARACTERS) }, 'first request');
      }
      return turns.getOrThrow(turn.id);
    });
  }

  /** Runs the session's turns, unless that is under way. */
  async start(sessionId: string): Promise<void> {
    await failpoint('turn.after-queued');
    this.#startWorker(sessionId);
  }

  get(turnId: string): TurnRow {
    return this.#options.turns.getOrThrow(turnId);
  }

  view(turn: TurnSummary): Turn {
    const run = this.#running.get(turn.sessionId);
    const isWaiting =
      run?.turnId === turn.id && run.isWaitingForSpace && !ENDED_TURN_STATUSES.has(turn.status);
    const ahead = turn.status === 'queued' ? this.#options.turns.countAhead(turn) : 0;
    return turnView(turn, ahead, isWaiting ? 'disk_space' : null);
  }

  /** Returns the turn when it has ended or differs from `seen`, or its current state after `timeoutMs`. */
  async wait(turnId: string, timeoutMs: number, signal: AbortSignal, seen?: SeenTurn): Promise<TurnRow> {
    const until = performance.now() + timeoutMs;
    for (;;) {
      const turn = this.get(turnId);
      const left = until - performance.now();
      if (ENDED_TURN_STATUSES.has(turn.status) || left <= 0 || signal.aborted) return turn;
      if (seen !== undefined && this.#differs(turn, seen)) return turn;
      // The number of turns ahead also changes when another turn does.
      const key = seen?.status === 'queued' ? queueKey(turn.sessionId) : turnId;
      await this.#options.changes.wait(key, Math.min(left, 60_000), signal);
    }
  }

  #differs(turn: TurnRow, seen: SeenTurn): boolean {
    const { status, ahead, waitingFor } = this.view(turn);
    return status !== seen.status || ahead !== seen.ahead || waitingFor !== seen.waitingFor;
  }

  /**
   * Replaces the input of a turn that waits; `refs`: and what it brings along. Errors: `invalid_state` once it has begun, and those of
   * its input.
   */
  edit(turnId: string, input: Buffer, refs: readonly AttachmentRef[] | undefined): TurnRow {
    const { database, turns, events, profileOf } = this.#options;
    const turn = this.get(turnId);
    this.#requireWaiting(turn);
    const attachments =
      refs === undefined ? turn.attachments : this.#options.attachments.resolve(turn.sessionId, refs);
    driverFor(profileOf(turn).agent).validateInput(input, attachments);
    return database.transaction(() => {
      const content = turns.replaceInput(turn, input, attachments);
      this.#options.attachments.markNamed(turn.sessionId, attachments);
      const edited = { turnId, inputBytes: input.byteLength, content };
      const data = attachments.length === 0 ? edited : { ...edited, attachments };
      events.append(turn.sessionId, [{ type: 'turn.edited', data }]);
      return turns.getOrThrow(turnId);
    });
  }

  /** A turn has begun when its sandbox is being prepared: its snapshot may name its prompt already. */
  #requireWaiting({ id, sessionId, status, cancelRequested }: TurnSummary): void {
    const isRunning = this.#running.get(sessionId)?.turnId === id;
    if (status === 'queued' && !isRunning && !cancelRequested) return;
    const hasBegun = isRunning || status === 'running';
    throw new HoldfastError('invalid_state', `The prompt of ${id} was not changed`, {
      why: hasBegun
        ? 'the turn has begun'
        : `the turn is ${status === 'queued' ? 'being cancelled' : status}`,
      next: hasBegun
        ? `cancel it with \`holdfast turn cancel ${id}\`, or add another turn`
        : 'send the prompt as another turn',
      details: { status },
    });
  }

  cancel(turnId: string): TurnRow {
    const { database, turns, events, records, reserve } = this.#options;
    const turn = this.get(turnId);
    if (ENDED_TURN_STATUSES.has(turn.status)) return turn;
    if (!turn.cancelRequested) {
      // On a full disk, cancelling stops the agent from writing.
      reserve.retryOnFullDisk(() =>
        database.transaction(() => {
          turns.update(turnId, { cancelRequested: true });
          events.append(turn.sessionId, [{ type: 'turn.cancelling', data: { turnId } }]);
        }),
      );
    }
    const run = this.#running.get(turn.sessionId);
    if (run?.turnId === turnId) run.cancel();
    else if (turn.status === 'queued') {
      records.recordEnd(turnId, {
        status: 'cancelled',
        exitCode: null,
        output: null,
        error: { message: 'The turn was cancelled before it began', data: { code: 'cancelled' } },
      });
    }
    return this.get(turnId);
  }

  /** Cancels every turn of a session and waits for their ends. Errors: `timeout` after `timeoutMs`. */
  async cancelAll(sessionId: string, timeoutMs: number): Promise<void> {
    const mine = this.#options.turns.listUnfinished().filter((turn) => turn.sessionId === sessionId);
    // The last one first, so that the end of the running one does not start the next.
    for (const turn of mine.toReversed()) this.cancel(turn.id);
    const signal = AbortSignal.timeout(timeoutMs);
    for (const turn of mine) await this.wait(turn.id, timeoutMs, signal);
    const left = mine.filter((turn) => !ENDED_TURN_STATUSES.has(this.get(turn.id).status));
    if (left.length > 0) {
      throw new HoldfastError('timeout', `${String(left.length)} turns did not end in time`, {
        next: 'try again; see `holdfast session events SESSION`',
      });
    }
  }

  onAgentGone(sessionId: string, why: string, limits: readonly Limit[]): void {
    this.#running.get(sessionId)?.onAgentGone(why, limits);
  }

  /** Starts no more turns. One whose sandbox is being made ready stays queued for the next supervisor. */
  stopStarting(): void {
    this.#isShuttingDown = true;
    for (const run of this.#running.values()) if (run.isDispatching) run.detach();
  }

  /** Stops following the turns. They go on in their sandboxes. */
  async detach(): Promise<void> {
    this.#isShuttingDown = true;
    for (const run of this.#running.values()) run.detach();
    await Promise.allSettled(this.#workers.values());
  }

  #startWorker(sessionId: string): void {
    if (this.#isShuttingDown || this.#workers.has(sessionId)) return;
    const worker = this.#runAll(sessionId)
      .finally(() => this.#workers.delete(sessionId))
      .then(() => {
        // A turn may have been queued since the last check.
        if (!this.#isShuttingDown && this.#next(sessionId) !== null) this.#startWorker(sessionId);
      })
      .catch((error: unknown) => {
        // A row that cannot be read stops its own session only. The next turn tries again.
        this.#options.log.error('the turns of a session cannot be run', { session: sessionId, error });
      });
    this.#workers.set(sessionId, worker);
  }

  async #runAll(sessionId: string): Promise<void> {
    for (;;) {
      const turn = this.#next(sessionId);
      if (turn === null || this.#isShuttingDown) break;
      this.#restoreReserve();
      const run = new TurnRun(turn, this.#options);
      this.#running.set(sessionId, run);
      try {
        await run.run();
      } finally {
        this.#running.delete(sessionId);
      }
    }
    this.#restoreReserve();
    if (!this.#isShuttingDown) this.drained.emit(sessionId);
  }

  /** A full disk may have used the reserve, for example for a cancelled turn. */
  #restoreReserve(): void {
    try {
      this.#options.reserve.ensure();
    } catch (error) {
      this.#options.log.warn('the disk reserve of the home cannot be restored', { error });
    }
  }

  #next(sessionId: string): TurnRow | null {
    return this.#options.turns.getRunning(sessionId) ?? this.#options.turns.nextQueued(sessionId);
  }
}
