import { z } from 'zod';
import type { SessionEvent } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type HistoryCut, HistoryCutSchema } from '../../protocol/history.ts';
import type { Params } from '../../protocol/methods.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Log } from '../base/log.ts';
import { count, parseRow } from '../store/columns.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import { type Checkpoints, readCheckpoint } from './checkpoints.ts';
import type { Contents } from './contents.ts';
import { type CutPlan, planCut } from './cut-plan.ts';
import type { EventLog } from './event-log.ts';
import { Replay } from './projection.ts';

const KIND = 'history.cut';
const PAGE = 1000;
/** Events that one transaction removes, unless a turn has more: nothing else runs meanwhile. */
const STEP_EVENTS = 1000;
const StoredSchema = z.object({ cut: z.string() });
const FileSchema = z.object({ artifact: z.string() });
const PromptSchema = z.object({ prompt: z.string() });
const BytesSchema = z.object({ bytes: count.nullable() });

export interface HistoryCutsOptions {
  readonly database: Database;
  readonly events: EventLog;
  readonly contents: Contents;
  readonly checkpoints: Checkpoints;
  readonly snapshots: Pick<Snapshots, 'get' | 'listBySession'>;
  readonly operations: Pick<Operations, 'findResult' | 'runOnce'>;
  readonly log: Log;
  readonly now: () => number;
  /** Events of one transaction; only tests change it. */
  readonly stepEvents?: number;
}

/** Removes the events after `from` up to `seq`. `isNoted`: the history says so; the first and the last step are enough. */
interface Step {
  readonly from: number;
  /** The contents last named after it: 0 in the first step, for what only events named that an earlier cut kept. */
  readonly contentsFrom: number;
  readonly seq: number;
  readonly isNoted: boolean;
}

type CutRequest = Omit<Params<'history/cut'>, 'session'>;

/**
 * Removes the oldest events of sessions, and leaves a signed checkpoint with the state that they led to. A long part is
 * removed in steps. Each is one transaction, so that after a kill the history begins where one of them ended.
 */
export class HistoryCuts {
  readonly #options: HistoryCutsOptions;
  readonly #running = new Set<string>();

  constructor(options: HistoryCutsOptions) {
    this.#options = options;
  }

  /**
   * Errors: `home_damaged` if the chain is broken, because nothing is signed that was not verified; `conflict` while the
   * same history is being cut; those of the key.
   */
  async cut(session: SessionRow, request: CutRequest, signal: AbortSignal): Promise<HistoryCut> {
    const { operations } = this.#options;
    const earlier = operations.findResult(request.opId, KIND);
    if (earlier !== null) return storedResult(earlier.result);
    if (this.#running.has(session.id)) {
      throw new HoldfastError('conflict', `The history of ${session.name} is being cut already`, {
        next: 'wait until that has ended',
      });
    }
    this.#running.add(session.id);
    try {
      return await this.#cut(session, request, new TimeSlice(signal));
    } finally {
      this.#running.delete(session.id);
    }
  }

  async #cut(session: SessionRow, request: CutRequest, slice: TimeSlice): Promise<HistoryCut> {
    const { events, operations, snapshots } = this.#options;
    const start = events.start(session.id);
    const plan = await planCut(this.#pages(session.id, 0, slice), {
      start: start.seq,
      head: events.head(session.id).seq,
      before: request.before === undefined ? null : Date.parse(request.before),
      keep: request.keep ?? null,
      isSnapshotKept: (id) => snapshots.get(id) !== null,
      promptOf: (turnId) => this.#promptOf(session.id, turnId),
    });
    const result = this.#describe(session.id, plan);
    if (request.dryRun === true) return result;
    const finish = (lastStep: () => void): HistoryCut =>
      storedResult(
        operations.runOnce(request.opId, KIND, () => {
          lastStep();
          return { cut: JSON.stringify(result) };
        }).result,
      );
    if (plan.events === 0) return finish(() => undefined);
    return await this.#perform(session, plan, start.seq, slice, finish);
  }

  /** The last step and the answer for the request's `opId` are one transaction: `finish`. */
  async #perform(
    session: SessionRow,
    plan: CutPlan,
    start: number,
    slice: TimeSlice,
    finish: (lastStep: () => void) => HistoryCut,
  ): Promise<HistoryCut> {
    const { events, checkpoints } = this.#options;
    const { ok, firstInvalid } = await events.verify(session.id);
    const fault = ok
      ? (checkpoints.verify(session.id)?.why ?? null)
      : `event ${firstInvalid ?? 0} was changed`;
    if (fault !== null) {
      throw new HoldfastError('home_damaged', `The history of ${session.name} was not cut`, {
        why: `${fault}, and a checkpoint is signed only for a history that is intact`,
        next: 'see `holdfast session verify SESSION`',
      });
    }
    const replay = new Replay(checkpoints.state(session.id));
    let from = start;
    for (const seq of plan.steps(this.#options.stepEvents ?? STEP_EVENTS)) {
      for await (const event of this.#pages(session.id, from, slice)) {
        if (event.seq > seq) break;
        replay.add(event);
      }
      const state = replay.state();
      if (state === null) throw new HoldfastError('internal', 'A history does not begin with its session');
      await failpoint('cut.before-step');
      let files: string[] = [];
      const step = (): void => {
        files = this.#removeStep(
          session.id,
          {
            ...{ from, seq, contentsFrom: from === start ? 0 : from },
            isNoted: from === start || seq === plan.seq,
          },
          plan,
          state,
        );
      };
      let answer: HistoryCut | null = null;
      if (seq === plan.seq) answer = finish(step);
      else step();
      await failpoint('cut.after-step');
      for (const file of files) this.#trim(session.id, file);
      if (answer !== null) return answer;
      from = seq;
      await slice.yieldToEventLoop();
    }
    throw new HoldfastError('internal', 'A cut has no last step');
  }

  /** Returns the files that have bytes without a content then. */
  #removeStep(
    sessionId: string,
    { from, contentsFrom, seq, isNoted }: Step,
    plan: CutPlan,
    state: NonNullable<ReturnType<Replay['state']>>,
  ): string[] {
    const { database, events, contents, checkpoints, now } = this.#options;
    return database.transaction(() => {
      const last = events.get(sessionId, seq);
      if (last === null) throw new HoldfastError('conflict', 'The history was removed meanwhile');
      // What was appended since the plan may name a content again.
      plan.seeNewer(this.#newer(sessionId, plan.scannedTo));
      const removedBefore = readCheckpoint(checkpoints.envelope(sessionId) ?? '')?.removed ?? 0;
      const kept = plan.kept.filter((one) => one <= seq);
      const removed = removedBefore + events.cut(sessionId, seq, kept);
      const keyId = checkpoints.save(sessionId, { seq, hash: last.hash }, removed, state);
      const files = contents.removeNamed(sessionId, plan.contentsBetween(contentsFrom, seq), now());
      const turns = JSON.stringify(plan.turnsBetween(from, seq));
      // A result is in the row of its turn too.
      database.run(
        'UPDATE turns SET output = NULL WHERE sessionId = ? AND id IN (SELECT value FROM json_each(?))',
        sessionId,
        turns,
      );
      files.push(...this.#removeOldPieces(sessionId, turns));
      const data = { seq, removed, kept: kept.length, keyId };
      if (isNoted) events.append(sessionId, [{ type: 'history.cut', data, at: now() }]);
      // Not awaited, because a transaction is synchronous; a kill happens inside the call.
      void failpoint('cut.during-step');
      return files;
    });
  }

  /** Output that earlier versions stored in events or in a file for each stream. Returns those files. */
  #removeOldPieces(sessionId: string, turns: string): string[] {
    const { database } = this.#options;
    const old = `FROM turn_pieces WHERE sha256 IS NULL AND turnId IN
      (SELECT id FROM turns WHERE sessionId = ? AND id IN (SELECT value FROM json_each(?)))`;
    const rows = database.all(`SELECT DISTINCT artifact ${old} AND artifact IS NOT NULL`, sessionId, turns);
    database.run(`DELETE ${old}`, sessionId, turns);
    return rows.map((row) => parseRow(FileSchema, 'turn_pieces', row).artifact);
  }

  #promptOf(sessionId: string, turnId: string): string | null {
    const row = this.#options.database.get(
      "SELECT inputSha256 AS prompt FROM turns WHERE sessionId = ? AND id = ? AND inputSha256 <> ''",
      sessionId,
      turnId,
    );
    return parseRow(PromptSchema.optional(), 'turns', row)?.prompt ?? null;
  }

  *#newer(sessionId: string, after: number): Generator<SessionEvent> {
    const { events } = this.#options;
    for (let from = after; ;) {
      const page = events.read(sessionId, { after: from, limit: PAGE });
      const last = page.at(-1);
      if (last === undefined) return;
      yield* page;
      from = last.seq;
    }
  }

  async *#pages(sessionId: string, after: number, slice: TimeSlice): AsyncGenerator<SessionEvent> {
    for (const event of this.#newer(sessionId, after)) {
      yield event;
      if (slice.isUsedUp) await slice.yieldToEventLoop();
    }
  }

  #describe(sessionId: string, plan: CutPlan): HistoryCut {
    const { database, snapshots, events } = this.#options;
    const { limitedBy } = plan;
    if (plan.events === 0) {
      const { seq } = events.start(sessionId);
      return { seq, events: 0, kept: 0, turns: 0, contents: 0, bytes: 0, snapshots: 0, limitedBy };
    }
    const ids = plan.contentsBetween(0, plan.seq);
    const row = database.get(
      `SELECT sum(bytes) AS bytes FROM contents
       WHERE sessionId = ? AND removedAt IS NULL AND sha256 IN (SELECT value FROM json_each(?))`,
      sessionId,
      JSON.stringify(ids),
    );
    return {
      seq: plan.seq,
      events: plan.events,
      kept: plan.kept.length,
      turns: plan.turnsBetween(0, plan.seq).length,
      contents: ids.length,
      bytes: parseRow(BytesSchema, 'contents', row).bytes ?? 0,
      snapshots: snapshots.listBySession(sessionId).filter(({ eventSeq }) => eventSeq <= plan.seq).length,
      limitedBy,
    };
  }

  #trim(sessionId: string, file: string): void {
    try {
      this.#options.contents.trim(sessionId, file);
    } catch (error) {
      const why = HoldfastError.from(error).sentence;
      this.#options.log.warn('a file of removed outputs stays until the next start', {
        session: sessionId,
        why,
      });
    }
  }
}

function storedResult(result: unknown): HistoryCut {
  return HistoryCutSchema.parse(JSON.parse(StoredSchema.parse(result).cut));
}
