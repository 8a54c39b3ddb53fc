import { hash } from 'node:crypto';
import { type Content, JSON_TEXT } from '../../protocol/contents.ts';
import { INLINE_OUTPUT_BYTES, type TurnError } from '../../protocol/turn-events.ts';
import type { TurnStatus } from '../../protocol/entities.ts';
import { FRAME_LIMITS } from '../../protocol/wire/limits.ts';
import { forbiddenKeyIn, nestsDeeperThan } from '../../protocol/wire/untrusted-json.ts';
import type { TurnProgress } from '../../sidecar/wire.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Contents } from '../history/contents.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import { type Json, JsonSchema } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { TurnRow, Turns } from '../store/turns.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import { Emitter } from '../base/emitter.ts';
import type { ReadySandbox } from '../sandboxes/dispatches.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { SessionRecords } from '../history/session-records.ts';

/** Nesting that an output may have inside a message, which adds some levels of its own. */
const INLINE_DEPTH = FRAME_LIMITS.depth - 16;

export interface TurnOutcome {
  readonly status: Extract<TurnStatus, 'succeeded' | 'failed' | 'cancelled' | 'timeout' | 'interrupted'>;
  readonly exitCode: number | null;
  /** JSON text of a handler's value. */
  readonly output: string | null;
  readonly error: TurnError | null;
}

/** The key under which waiters are notified when any turn of a session starts, ends or waits for disk space. */
export function queueKey(sessionId: string): string {
  return `queue:${sessionId}`;
}

/** Rows and events of turns. Each change is one transaction; waiters are notified after it. */
export class TurnRecords {
  /** Emitted with the id of a turn that ends, in the transaction of its end. */
  readonly ending = new Emitter<string>();
  readonly #database: Database;
  readonly #turns: Turns;
  readonly #events: EventLog;
  readonly #sessions: SessionRecords;
  readonly #output: TurnOutput;
  readonly #contents: Contents;
  readonly #activeWork: ActiveWork;
  readonly #changes: ChangeNotifier;
  readonly #reserve: Pick<DiskReserve, 'retryOnFullDisk'>;
  readonly #now: () => number;

  constructor(options: {
    database: Database;
    turns: Turns;
    events: EventLog;
    sessions: SessionRecords;
    output: TurnOutput;
    contents: Contents;
    activeWork: ActiveWork;
    changes: ChangeNotifier;
    reserve: Pick<DiskReserve, 'retryOnFullDisk'>;
    now: () => number;
  }) {
    this.#database = options.database;
    this.#turns = options.turns;
    this.#events = options.events;
    this.#sessions = options.sessions;
    this.#output = options.output;
    this.#contents = options.contents;
    this.#activeWork = options.activeWork;
    this.#changes = options.changes;
    this.#reserve = options.reserve;
    this.#now = options.now;
  }

  recordStart(turn: TurnRow, ready: ReadySandbox): TurnRow {
    const now = this.#now();
    const queuedMs = Math.max(0, now - turn.createdAt - ready.dispatchMs);
    const started = this.#database.transaction(() => {
      this.#events.append(turn.sessionId, [
        {
          type: 'turn.started',
          data: {
            turnId: turn.id,
            case: ready.dispatched.case,
            reused: ready.dispatched.reused,
            generation: ready.row.generation,
            codeVersion: ready.row.codeVersion,
            queuedMs,
            dispatchMs: ready.dispatchMs,
          },
        },
      ]);
      this.#sessions.change(turn.sessionId, { status: 'active', lastActiveAt: now }, 'a turn runs');
      const row = this.#turns.update(turn.id, {
        status: 'running',
        startedAt: now,
        dispatchCase: ready.dispatched.case,
        reused: ready.dispatched.reused,
        generation: ready.row.generation,
        codeVersion: ready.row.codeVersion,
        dispatchMs: ready.dispatchMs,
        queuedMs,
      });
      return row;
    });
    this.notifyWaiters(turn.sessionId, turn.id);
    return started;
  }

  /** `launchedAt`: milliseconds. */
  recordLaunch(turnId: string, launchedAt: number): TurnRow {
    return this.#turns.update(turnId, { launchedAt });
  }

  /** Its sandbox ended before the runner picked it up: nothing of the turn has happened, and it can be sent again. */
  recordWithdrawal(turnId: string): void {
    this.#turns.update(turnId, { launchedAt: null });
  }

  /** The turn is sent to another sandbox. */
  recordRestart(turn: TurnRow, { row, dispatched }: ReadySandbox): void {
    const { generation } = row;
    this.#database.transaction(() => {
      const { case: dispatchCase, reused } = dispatched;
      this.#turns.update(turn.id, { generation, dispatchCase, reused });
      this.#events.append(turn.sessionId, [
        { type: 'turn.restarted', data: { turnId: turn.id, generation, ...dispatched } },
      ]);
    });
  }

  recordWorker(turn: TurnRow, worker: NonNullable<TurnProgress['worker']>): TurnRow {
    const data = { workerId: worker.id, workerReused: worker.reused, workerStartMs: worker.startMs };
    return this.#database.transaction(() => {
      this.#events.append(turn.sessionId, [{ type: 'turn.worker', data: { turnId: turn.id, ...data } }]);
      return this.#turns.update(turn.id, data);
    });
  }

  /**
   * Call it when all output is stored, except what `around` stores: it is given what stores the end, and may put both into one
   * transaction. A second end of the same turn is ignored.
   */
  recordEnd(
    turnId: string,
    end: TurnOutcome,
    around: (storeEnd: () => void) => void = (storeEnd) => storeEnd(),
  ): void {
    const store = (): void => around(() => this.#storeEnd(turnId, end));
    // On a full disk the end of a cancelled turn frees space: the reserve is for that.
    if (end.status === 'cancelled' || this.#turns.get(turnId)?.cancelRequested === true)
      this.#reserve.retryOnFullDisk(store);
    else store();
    const sessionId = this.#turns.get(turnId)?.sessionId;
    if (sessionId !== undefined) {
      this.#activeWork.remove(sessionId, turnId);
      this.notifyWaiters(sessionId, turnId);
    } else this.#changes.notify(turnId);
  }

  /** Wakes those who wait for this turn, and those whose turn waits behind it. */
  notifyWaiters(sessionId: string, turnId: string): void {
    this.#changes.notify(turnId);
    this.#changes.notify(queueKey(sessionId));
  }

  #storeEnd(turnId: string, end: TurnOutcome): void {
    const now = this.#now();
    this.#database.transaction(() => {
      const turn = this.#turns.get(turnId);
      if (turn === null || (turn.status !== 'queued' && turn.status !== 'running')) return;
      const bytes = end.output === null ? null : Buffer.from(end.output);
      const large = bytes !== null && (bytes.byteLength > INLINE_OUTPUT_BYTES || !fitsMessages(bytes));
      if (large) this.#output.store(turnId, 'result', 0, bytes);
      const content = bytes === null ? null : this.#resultContent(turn.sessionId, bytes, large);
      const value: Json | null =
        end.output === null || large ? null : JsonSchema.parse(JSON.parse(end.output));
      const turnMs = turn.launchedAt === null ? null : Math.max(0, now - turn.launchedAt);
      this.#events.append(turn.sessionId, [
        {
          type: 'turn.ended',
          data: {
            turnId,
            status: end.status,
            exitCode: end.exitCode,
            error: end.error,
            content,
            outputArtifact: large,
            turnMs,
            workerStartMs: turn.workerStartMs,
            workerId: turn.workerId,
            workerReused: turn.workerReused,
          },
        },
      ]);
      this.#turns.update(turnId, {
        status: end.status,
        endedAt: now,
        exitCode: end.exitCode,
        output: value,
        outputArtifact: large,
        resultSha256: content?.sha256 ?? null,
        error: end.error,
        turnMs,
      });
      this.#updateSession(turn.sessionId, turnId, now);
      this.ending.emit(turnId);
    });
  }

  /** A large result was stored as an output stream of the turn. */
  #resultContent(sessionId: string, bytes: Buffer, isStored: boolean): Content {
    if (!isStored) return this.#contents.insert(sessionId, bytes, JSON_TEXT);
    return { sha256: hash('sha256', bytes), bytes: bytes.length, mediaType: JSON_TEXT };
  }

  /** Without active work the session is idle, unless the reconciler has recorded the loss of its sandbox before. */
  #updateSession(sessionId: string, turnId: string, now: number): void {
    const row = this.#sessions.peek(sessionId);
    if (row === null || row.status === 'deleted') return;
    const idle = row.status === 'active' && this.#activeWork.countOthers(sessionId, turnId) === 0;
    this.#sessions.change(
      sessionId,
      { lastActiveAt: now, ...(idle ? { status: 'idle' as const } : {}) },
      'the turn ended',
    );
  }
}

/** Whether clients accept this JSON inside a message: an output must not make the history of its session unreadable. */
function fitsMessages(json: Buffer): boolean {
  if (nestsDeeperThan(json, INLINE_DEPTH)) return false;
  const text = json.toString('utf8');
  return forbiddenKeyIn(text, JSON.parse(text)) === undefined;
}
