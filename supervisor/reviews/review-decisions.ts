import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Decision, type Review, type ReviewAction, ReviewActionSchema } from '../../protocol/review.ts';
import type { ObjectReader } from '../../snapshot-format/objects.ts';
import { failpoint } from '../base/failpoints.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { KeyedReadWriteLock } from '../base/keyed-read-write-lock.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { Operation, Operations } from '../store/operations.ts';
import { type DecisionState, EarlierDecisionSchema, type ReviewRows } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import { subtractLines } from './line-decisions.ts';
import { unitAt } from './review-trees.ts';
import type { ReviewUnit } from './review-units.ts';
import { type OpenReview, type Reviews, reviewMoved } from './reviews.ts';
import { decidePart, hunksOf, partOf, stateOf } from './unit-state.ts';
import type { WorkspaceChanges } from './workspace-changes.ts';
import { replacementsOf } from './workspace-items.ts';

const DECIDE = 'review.decide';
const UNDO = 'review.undo';
/** How many paths an event names. */
const MAX_EVENT_PATHS = 100;

const ResultSchema = z.object({ count: z.int(), verdict: ReviewActionSchema });
type Result = z.infer<typeof ResultSchema>;

/** The paths that are written into the workspace, with their decisions before. Those after it are in the rows. */
const WritingSchema = z.object({ reviewId: z.string(), from: z.array(EarlierDecisionSchema) });

export interface ReviewDecisionsOptions {
  readonly database: Database;
  readonly rows: ReviewRows;
  readonly operations: Operations;
  readonly events: EventLog;
  readonly reviews: Reviews;
  readonly workspace: WorkspaceChanges;
  readonly writeLock: Pick<KeyedReadWriteLock, 'runShared'>;
  readonly mutex: KeyedMutex;
  /** ms since 1970. */
  readonly now: () => number;
}

export interface DecideRequest {
  readonly verdict: ReviewAction;
  readonly decisions?: readonly Decision[] | undefined;
  readonly all?: { readonly review: string; readonly revision: number } | undefined;
  readonly opId?: string | undefined;
}

/** The decision of one path before and after a request. */
interface Change {
  readonly unit: ReviewUnit;
  readonly from: DecisionState | null;
  readonly to: DecisionState | null;
}

/**
 * Decisions of a person about the changes of a review, and their undo. What is rejected is taken back in the workspace:
 * decisions and the intent to write are one transaction, and the next use of the review finishes what was interrupted.
 */
export class ReviewDecisions {
  readonly #options: ReviewDecisionsOptions;

  constructor(options: ReviewDecisionsOptions) {
    this.#options = options;
  }

  /** Errors: `not_found` without a review, `conflict` for what the person cannot have seen, those of the sidecar. */
  async decide(
    session: SessionRow,
    request: DecideRequest,
    signal?: AbortSignal,
  ): Promise<{ review: Review; decided: number }> {
    const { mutex, operations } = this.#options;
    return await mutex.run(session.id, async () => {
      await this.finishPending(session.id);
      const earlier = operations.findResult(request.opId, DECIDE);
      const { count } =
        earlier === null ? await this.#decide(session, request, signal) : ResultSchema.parse(earlier.result);
      return { review: await this.#options.reviews.show(session, signal), decided: count };
    });
  }

  /** Takes the last step back. Errors: `not_found` if there is none, `conflict` if a file has changed since. */
  async undo(
    session: SessionRow,
    opId: string | undefined,
    signal?: AbortSignal,
  ): Promise<{ review: Review; verdict: ReviewAction; paths: number }> {
    const { mutex, operations } = this.#options;
    return await mutex.run(session.id, async () => {
      await this.finishPending(session.id);
      const earlier = operations.findResult(opId, UNDO);
      const { count, verdict } =
        earlier === null ? await this.#undo(session, opId, signal) : ResultSchema.parse(earlier.result);
      return { review: await this.#options.reviews.show(session, signal), verdict, paths: count };
    });
  }

  /** Finishes what an earlier supervisor began to write. The caller holds the mutex. */
  async finishPending(sessionId: string): Promise<void> {
    const { operations, reviews, rows } = this.#options;
    const mine = operations
      .pending()
      .filter((one) => one.sessionId === sessionId && (one.kind === DECIDE || one.kind === UNDO));
    for (const operation of mine) {
      const { reviewId, from } = WritingSchema.parse(operation.data);
      const result = ResultSchema.parse(operation.data['result']);
      if (rows.findOpen(sessionId)?.id !== reviewId) {
        operations.finish(operation, result);
        continue;
      }
      await reviews.withOpen(sessionId, undefined, async (open, reader) => {
        const changes = from.flatMap(({ path, state }): Change[] => {
          const unit = open.compared.byKey.get(path);
          return unit === undefined ? [] : [{ unit, from: state, to: open.decisions.get(path) ?? null }];
        });
        // Where it fails, the decisions are taken back, and a repeated request gets the error.
        await this.#write(open, reader, changes, operation, result).catch(() => undefined);
      });
    }
  }

  async #decide(session: SessionRow, request: DecideRequest, signal?: AbortSignal): Promise<Result> {
    const { reviews, rows, events } = this.#options;
    const { verdict, opId } = request;
    return await reviews.withOpen(session.id, signal, async (open, reader) => {
      const changes = await this.#changesOf(open, reader, request);
      const result = { count: changes.length, verdict };
      await this.#apply(open, reader, changes, { kind: DECIDE, opId, result }, (revision) => {
        rows.addStep(open.row.id, verdict, changes.map(earlierOf));
        const paths = changes.slice(0, MAX_EVENT_PATHS).map(({ unit }) => unit.key);
        const data = { reviewId: open.row.id, verdict, count: changes.length, paths, revision };
        events.append(session.id, [{ type: 'review.decided', data }]);
      });
      return result;
    });
  }

  async #changesOf(
    open: OpenReview,
    reader: ObjectReader,
    { verdict, decisions, all }: DecideRequest,
  ): Promise<Change[]> {
    const { compared, decisions: known, row } = open;
    if ((decisions === undefined) === (all === undefined)) {
      throw new HoldfastError('invalid_params', 'Name either decisions or all');
    }
    if (all !== undefined) {
      if (verdict === 'withdraw') {
        throw new HoldfastError('invalid_params', 'Decisions are withdrawn by path', {
          why: '`all` means what is not decided',
        });
      }
      if (all.review !== row.id || all.revision !== row.revision) throw reviewMoved();
      const changes: Change[] = [];
      for (const unit of compared.units) {
        const from = known.get(unit.key) ?? null;
        const state = stateOf(unit, from);
        if (state !== 'to-review' && state !== 'partial') continue;
        const to = await this.#decidedRest(unit, from, verdict, reader);
        changes.push({ unit, from, to });
      }
      return changes;
    }
    const changes = new Map<string, Change>();
    for (const decision of decisions ?? []) {
      const unit = unitAt(compared, decision.path);
      if (unit.id !== decision.seen) throw changedSince(unit.key);
      const from = known.get(unit.key) ?? null;
      const changed = changes.get(unit.key);
      const state = changed === undefined ? from : changed.to;
      if (verdict === 'withdraw' && stateOf(unit, state) === 'to-review') continue;
      const to = await this.#decided(unit, state, decision, verdict, reader);
      changes.set(unit.key, { unit, from, to });
    }
    return [...changes.values()];
  }

  /** The state of a path after a decision. Errors: `conflict` for hunks that are not there. */
  async #decided(
    unit: ReviewUnit,
    state: DecisionState | null,
    { hunks: ids, lines }: Decision,
    verdict: ReviewAction,
    reader: ObjectReader,
  ): Promise<DecisionState | null> {
    if (ids === undefined && lines === undefined) return decidePart(unit, state, 'whole', verdict, []);
    const text = await this.#options.reviews.textOf(unit, state, reader);
    if (text === null) {
      throw new HoldfastError('invalid_params', `${unit.key} can only be decided as a whole`, {
        next: 'leave the hunks out',
      });
    }
    const hunks = hunksOf(unit, text, state);
    const part = partOf(hunks, ids ?? [lines?.hunk ?? '']);
    if (part === null || part === 'whole') throw changedSince(unit.key);
    const chosen =
      lines === undefined
        ? part
        : {
            mode: false,
            lines: {
              removed: [[lines.removed.start, lines.removed.end] as const].filter(isRange),
              added: [[lines.added.start, lines.added.end] as const].filter(isRange),
            },
          };
    const hunk = lines === undefined ? null : hunks.find(({ id }) => id === lines.hunk);
    if (
      lines !== undefined &&
      !(isWithin(lines.removed, hunk?.removed) && isWithin(lines.added, hunk?.added))
    ) {
      throw changedSince(unit.key);
    }
    return decidePart(unit, state, chosen, verdict, text.changes);
  }

  /** Decides what is not decided of a path yet. */
  async #decidedRest(
    unit: ReviewUnit,
    state: DecisionState | null,
    verdict: ReviewAction,
    reader: ObjectReader,
  ): Promise<DecisionState | null> {
    const text =
      (state?.text ?? null) === null ? null : await this.#options.reviews.textOf(unit, state, reader);
    if (text === null) return decidePart(unit, state, 'whole', verdict, []);
    const open = hunksOf(unit, text, state).filter(
      (hunk) => hunk.state === 'to-review' || hunk.state === 'partial',
    );
    let after = state;
    for (const hunk of open) {
      const part = partOf([hunk], [hunk.id]);
      const decided = after?.text;
      if (part === null || part === 'whole' || !decided) continue;
      const { accepted, rejected } = decided;
      // Lines that are decided within the hunk stay so.
      const lines = subtractLines(subtractLines(part.lines, accepted), rejected);
      after = decidePart(unit, after, { lines, mode: part.mode }, verdict, text.changes);
    }
    return after ?? decidePart(unit, null, 'whole', verdict, []);
  }

  async #undo(session: SessionRow, opId: string | undefined, signal?: AbortSignal): Promise<Result> {
    const { reviews, rows, events } = this.#options;
    return await reviews.withOpen(session.id, signal, async (open, reader) => {
      const { id } = open.row;
      for (let step = rows.lastStep(id); step !== null; step = rows.lastStep(id)) {
        const { seq, verdict } = step;
        const changes = step.before.flatMap(({ path, fileId, state }): Change[] => {
          const unit = open.compared.byKey.get(path);
          // Of a path that has changed since, the decision was about something else.
          if (unit?.id !== fileId) return [];
          return [{ unit, from: open.decisions.get(path) ?? null, to: state }];
        });
        if (changes.length === 0) {
          rows.removeStep(id, seq);
          continue;
        }
        const result = { count: changes.length, verdict };
        await this.#apply(open, reader, changes, { kind: UNDO, opId, result }, (revision) => {
          rows.removeStep(id, seq);
          const data = { reviewId: id, verdict, count: changes.length, revision };
          events.append(session.id, [{ type: 'review.undone', data }]);
        });
        return result;
      }
      throw new HoldfastError('not_found', 'There is no decision to undo');
    });
  }

  /** Records decisions with the intent to write what they change in the workspace, then writes. */
  async #apply(
    open: OpenReview,
    reader: ObjectReader,
    changes: readonly Change[],
    {
      kind,
      opId,
      result,
    }: { readonly kind: string; readonly opId: string | undefined; readonly result: Result },
    record: (revision: number) => void,
  ): Promise<void> {
    const { database, rows, operations, now, workspace } = this.#options;
    const { row, decisions } = open;
    const writing: Change[] = [];
    for (const change of changes) {
      const replacements = await replacementsOf(change.unit, change.from, change.to, reader);
      if (replacements.length > 0) writing.push(change);
      // Before anything is written, so that all of it is done or none.
      for (const replacement of replacements) await workspace.check(row.sessionId, replacement);
    }
    const revision = row.revision + 1;
    const operation = database.transaction(() => {
      const data = { reviewId: row.id, from: writing.map(earlierOf), result };
      const begun = operations.begin({ opId, kind, sessionId: row.sessionId, data });
      if ('replay' in begun) throw new HoldfastError('conflict', 'The request is still running');
      for (const { unit, to } of changes) rows.decide(row.id, unit.key, unit.id, to);
      // Where nothing is decided, no view is outdated, and there is nothing to undo.
      if (changes.length > 0) {
        rows.update(row.id, { revision, acceptedRoot: null, updatedAt: now() });
        record(revision);
      }
      if (writing.length === 0) operations.finish(begun.operation, result);
      return writing.length === 0 ? null : begun.operation;
    });
    for (const { unit, to } of changes) setOrDelete(decisions, unit.key, to);
    await failpoint('review.after-intent');
    if (operation !== null) await this.#write(open, reader, writing, operation, result);
  }

  /** Writes what decisions change in the workspace. Where that fails, the rest of the decisions is taken back. */
  async #write(
    open: OpenReview,
    reader: ObjectReader,
    changes: readonly Change[],
    operation: Operation,
    result: Result,
  ): Promise<void> {
    const { workspace, writeLock, operations, database, rows, events } = this.#options;
    const { row, decisions } = open;
    let done = 0;
    try {
      for (const { unit, from, to } of changes) {
        for (const replacement of await replacementsOf(unit, from, to, reader)) {
          await writeLock.runShared(row.sessionId, () => workspace.apply(row.sessionId, replacement));
        }
        done += 1;
        await failpoint('review.after-file');
      }
    } catch (error) {
      const failure = HoldfastError.from(error);
      const left = changes.slice(done);
      // What others saw meanwhile is not so: they get another revision, and the history says what was taken back.
      const revision = (rows.get(row.id)?.revision ?? row.revision) + 1;
      database.transaction(() => {
        for (const { unit, from } of left) rows.decide(row.id, unit.key, unit.id, from);
        rows.update(row.id, { acceptedRoot: null, revision });
        const data = { reviewId: row.id, verdict: result.verdict, count: left.length, revision };
        const paths = left.slice(0, MAX_EVENT_PATHS).map(({ unit }) => unit.key);
        events.append(row.sessionId, [
          operation.kind === DECIDE
            ? { type: 'review.undone', data }
            : { type: 'review.decided', data: { ...data, paths } },
        ]);
        operations.fail(operation, failure);
      });
      for (const { unit, from } of left) setOrDelete(decisions, unit.key, from);
      throw failure;
    }
    operations.finish(operation, result);
  }
}

function earlierOf({ unit, from }: Change): z.infer<typeof EarlierDecisionSchema> {
  return { path: unit.key, fileId: unit.id, state: from };
}

function setOrDelete<T>(map: Map<string, T>, key: string, value: T | null): void {
  if (value === null) map.delete(key);
  else map.set(key, value);
}

function isRange([start, end]: readonly [number, number]): boolean {
  return start < end;
}

function isWithin(
  { start, end }: { readonly start: number; readonly end: number },
  hunk: { readonly start: number; readonly end: number } | undefined,
): boolean {
  if (hunk === undefined) return false;
  return start === end || (start < end && start >= hunk.start && end <= hunk.end);
}

function changedSince(path: string): HoldfastError {
  return new HoldfastError('conflict', `${path} has changed since it was shown`, {
    why: 'the review compares with newer files now',
    next: 'look at it again, then decide',
    details: { path },
  });
}
