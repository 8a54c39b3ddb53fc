import { HoldfastError } from '../../protocol/errors.ts';
import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import { type Turn, ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import { driverFor } from '../agents/drivers.ts';
import { failpoint } from '../base/failpoints.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { SessionRow } from '../store/sessions.ts';
import { type NewTurn, UNSTARTED_TURN } from '../store/turns.ts';
import type { TurnRow, TurnSummary } from '../store/turns.ts';
import type { Ids } from '../base/ids.ts';
import type { Limit } from '../../sidecar/wire.ts';
import type { SessionRecords } from '../history/session-records.ts';
import { PROMPT_CHARACTERS, toSingleLine } from '../base/single-line.ts';
import { TurnRun, type TurnRunOptions } from './turn-run.ts';
import { turnView } from '../sessions/entity-views.ts';

const PREVIEW_CHARACTERS = 200;
/** Turns that may wait in one session: more is a mistake in a loop, not work. */
const MAX_QUEUED = 1000;

export interface TurnQueueOptions extends TurnRunOptions {
  readonly database: Database;
  readonly events: EventLog;
  readonly sessions: SessionRecords;
  readonly ids: Ids;
  readonly reserve: Pick<DiskReserve, 'retryOnFullDisk' | 'ensure'>;
  /** Called when a session's last turn has ended: a throw-away session is put away then. */
  readonly onDrained: (sessionId: string) => void;
}

/** The turns of all sessions: one at a time per session, the others wait in the database, in the order they came. */
export class TurnQueue {
  readonly #options: TurnQueueOptions;
  readonly #running = new Map<string, TurnRun>();
  readonly #loops = new Map<string, Promise<void>>();
  #leaving = false;

  constructor(options: TurnQueueOptions) {
    this.#options = options;
  }

  /** Goes on with every turn that an earlier supervisor left unfinished. */
  recover(): void {
    for (const sessionId of new Set(this.#options.turns.listUnfinished().map((turn) => turn.sessionId)))
      this.#work(sessionId);
  }

  /** Refuses what the agent could not take, then stores the turn; it is acknowledged when this returns. */
  enqueue(row: SessionRow, profile: Profile, input: Buffer, timeoutMs: number | undefined): TurnRow {
    if (this.#leaving)
      throw new HoldfastError('shutting_down', 'The supervisor is leaving', { next: 'ask again' });
    const driver = driverFor(profile.agent);
    driver.validateInput(input);
    const { database, turns, events, sessions, ids, now } = this.#options;
    const limit = timeoutMs ?? profile.agent.timeout ?? PROFILE_DEFAULTS.turnTimeout;
    const preview = toSingleLine(input.toString('utf8'), PREVIEW_CHARACTERS);
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
      };
      turns.insert(turn);
      events.append(row.id, [
        {
          type: 'turn.queued',
          data: {
            turnId: turn.id,
            kind: driver.kind,
            inputBytes: input.byteLength,
            preview,
            timeoutMs: limit,
          },
        },
      ]);
      if (row.about === null) {
        const about = toSingleLine(preview, PROMPT_CHARACTERS);
        sessions.change(row.id, { about }, 'first request', [{ type: 'session.updated', data: { about } }]);
      }
      return turns.getOrThrow(turn.id);
    });
  }

  /** Starts working on the session's queue, if nobody does yet. */
  async start(sessionId: string): Promise<void> {
    await failpoint('turn.after-queued');
    this.#work(sessionId);
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

  /** The turn when it has ended, or as it is after `timeoutMs`. */
  async wait(turnId: string, timeoutMs: number, signal: AbortSignal): Promise<TurnRow> {
    const until = performance.now() + timeoutMs;
    for (;;) {
      const turn = this.get(turnId);
      const left = until - performance.now();
      if (ENDED_TURN_STATUSES.has(turn.status) || left <= 0 || signal.aborted) return turn;
      await this.#options.changes.wait(turnId, Math.min(left, 60_000), signal);
    }
  }

  cancel(turnId: string): TurnRow {
    const { database, turns, events, records, reserve } = this.#options;
    const turn = this.get(turnId);
    if (ENDED_TURN_STATUSES.has(turn.status)) return turn;
    if (!turn.cancelRequested) {
      // Whoever cancels on a full disk wants what the agent wrote there to stop.
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

  /** Cancels everything of a session and waits until nothing runs, for at most `timeoutMs`. */
  async cancelAll(sessionId: string, timeoutMs: number): Promise<void> {
    const mine = this.#options.turns.listUnfinished().filter((turn) => turn.sessionId === sessionId);
    // From the back, so that ending the running one does not start the next.
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

  /** Lets go of every turn; they go on in their sandboxes. */
  async detach(): Promise<void> {
    this.#leaving = true;
    for (const run of this.#running.values()) run.detach();
    await Promise.allSettled(this.#loops.values());
  }

  #work(sessionId: string): void {
    if (this.#leaving || this.#loops.has(sessionId)) return;
    const loop = this.#loop(sessionId)
      .finally(() => this.#loops.delete(sessionId))
      .then(() => {
        // A turn may have come between the last look and now.
        if (!this.#leaving && this.#next(sessionId) !== null) this.#work(sessionId);
      })
      .catch((error: unknown) => {
        // A row that cannot be read holds up its own session only; the next turn tries again.
        this.#options.log.error('the turns of a session cannot go on', { session: sessionId, error });
      });
    this.#loops.set(sessionId, loop);
  }

  async #loop(sessionId: string): Promise<void> {
    for (;;) {
      const turn = this.#next(sessionId);
      if (turn === null || this.#leaving) break;
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
    if (!this.#leaving) this.#options.onDrained(sessionId);
  }

  /** What a full disk has used of it, by cancelling a turn for example. */
  #restoreReserve(): void {
    try {
      this.#options.reserve.ensure();
    } catch (error) {
      this.#options.log.warn('the reserve of the home cannot be made', { error });
    }
  }

  #next(sessionId: string): TurnRow | null {
    return this.#options.turns.getRunning(sessionId) ?? this.#options.turns.nextQueued(sessionId);
  }
}
