import { HoldfastError } from '../../protocol/errors.ts';
import type { Review, ReviewBase } from '../../protocol/review.ts';
import type { ObjectReader } from '../../snapshot-format/objects.ts';
import type { Ids } from '../base/ids.ts';
import { Hook } from '../base/hook.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { DecisionState, ReviewRow, ReviewRows } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { LineageStore } from '../snapshots/store/lineage-store.ts';
import type { SnapshotCallOptions } from '../snapshots/connection.ts';
import type { SnapshotCreation } from '../snapshots/snapshot-creation.ts';
import { carryDecision } from './carry.ts';
import type { ComparedTrees, ReviewTrees } from './review-trees.ts';
import { isDecidedByHunk, type ReviewUnit } from './review-units.ts';
import { fileBytes, type TextComparison } from '../snapshots/patch/text-comparison.ts';
import type { HeadBases } from './head-bases.ts';
import { viewOf } from './review-views.ts';
import type { UnitText } from './unit-state.ts';

export interface ReviewsOptions {
  readonly database: Database;
  readonly rows: ReviewRows;
  readonly snapshots: Snapshots;
  readonly turns: Turns;
  readonly events: EventLog;
  readonly snapshotCreation: Pick<SnapshotCreation, 'create'>;
  readonly trees: ReviewTrees;
  readonly texts: TextComparison;
  /** Commits that clients send as bases. */
  readonly heads: Pick<HeadBases, 'store'>;
  /** One change of a session's review at a time. */
  readonly mutex: KeyedMutex;
  readonly ids: Ids;
  /** ms since 1970. */
  readonly now: () => number;
}

/** A review with what it compares and what was decided. */
export interface OpenReview {
  readonly row: ReviewRow;
  readonly compared: ComparedTrees;
  readonly decisions: Map<string, DecisionState>;
}

/** Files of a commit that a client has sent: see protocol/review-base.ts. */
export interface SentHead {
  readonly upload: string;
  /** The connection that sent them. */
  readonly owner: object;
}

/** A base that is a commit. */
const HEAD = 'head:';

/**
 * Reviews of sessions: what differs between a base and the workspace, and what a person decided about it. Nothing counts
 * as accepted that nobody accepted.
 */
export class Reviews {
  /** Before a review is read or changed, with the id of its session; its mutex is held. */
  readonly beforeUse = new Hook<string>();
  readonly #options: ReviewsOptions;
  /** The decisions of open reviews by review; the database has the same. */
  readonly #decisions = new Map<string, Map<string, DecisionState>>();

  constructor(options: ReviewsOptions) {
    this.#options = options;
  }

  /**
   * `head`: the files of a base that is a commit. Errors: `not_found` without anything to compare with, those of creating a
   * snapshot.
   */
  async open(
    session: SessionRow,
    base: ReviewBase | undefined,
    options: SnapshotCallOptions,
    head?: SentHead,
  ): Promise<Review> {
    const { mutex, snapshotCreation, rows } = this.#options;
    return await mutex.run(session.id, async () => {
      await this.beforeUse.run(session.id);
      const isHead = base?.startsWith(HEAD) === true && rows.findOpen(session.id)?.baseSpec !== base;
      if (isHead && head === undefined) throw headNotSent();
      const chosen = isHead ? null : this.#baseOf(session, base);
      const created = await snapshotCreation.create(session.id, { reason: 'before-review', ...options });
      if (created === null) throw new HoldfastError('internal', 'A snapshot for a review was skipped');
      const earlier = rows.findOpen(session.id);
      if (earlier !== null && chosen === null && !isHead)
        return await this.#continue(earlier, created.row, options.signal);
      if (earlier !== null) await this.#storeAccepted(earlier, options.signal);
      if (isHead && head !== undefined) {
        const sent = { ...head, commit: base.slice(HEAD.length), target: created.row.root };
        const begin = (root: string): void =>
          this.#begin(session, base, { root, snapshotId: null }, created.row);
        await this.#options.heads.store(session, sent, begin, options.signal);
      } else this.#begin(session, base ?? 'last', chosen, created.row);
      return await this.show(session, options.signal);
    });
  }

  /** Whether the open review of a session has this base. */
  hasBase(session: SessionRow, base: ReviewBase): boolean {
    return this.#options.rows.findOpen(session.id)?.baseSpec === base;
  }

  /** Errors: `not_found` if no review is open. */
  async show(session: SessionRow, signal?: AbortSignal): Promise<Review> {
    return await this.withOpen(session.id, signal, (open) => Promise.resolve(viewOf(open)));
  }

  /** Stores the accepted tree, unless it is stored already. */
  async tree(session: SessionRow, signal?: AbortSignal): Promise<Review> {
    const { mutex } = this.#options;
    return await mutex.run(session.id, async () => {
      await this.beforeUse.run(session.id);
      await this.#storeAccepted(this.#openRow(session.id), signal);
      return await this.show(session, signal);
    });
  }

  /** Ends the review of a session: its accepted tree is what the next one begins with. */
  async end(session: SessionRow, signal?: AbortSignal): Promise<void> {
    await this.#options.mutex.run(session.id, () => this.#end(this.#openRow(session.id), signal));
  }

  /** Ends a review whose accepted tree is stored. Part of the transaction of a caller who holds the mutex. */
  endStored(row: ReviewRow): void {
    const { rows, now, events } = this.#options;
    rows.end(row, now());
    events.append(row.sessionId, [{ type: 'review.ended', data: { reviewId: row.id } }]);
    this.#decisions.delete(row.id);
  }

  /** Opens a review that has ended, with its decisions. As `endStored`; the session must have no open review. */
  reopen(row: ReviewRow): void {
    const { rows, now } = this.#options;
    rows.reopen(row, now());
    this.#recordOpened(row.sessionId);
  }

  /** Forgets the reviews of a session that is deleted. Part of the caller's transaction. */
  removeOfSession(sessionId: string): void {
    const open = this.#options.rows.findOpen(sessionId);
    if (open !== null) this.#decisions.delete(open.id);
    this.#options.rows.removeOfSession(sessionId);
  }

  /** Runs `act` with the open review while its objects stay. Errors: `not_found`. */
  async withOpen<T>(
    sessionId: string,
    signal: AbortSignal | undefined,
    act: (open: OpenReview, store: LineageStore) => Promise<T>,
  ): Promise<T> {
    const row = this.#openRow(sessionId);
    const { trees } = this.#options;
    return await trees.use(row.lineage, async (store) => {
      const compared = await trees.compare(store, row, signal);
      // It may have been decided on meanwhile.
      const current = this.#openRow(sessionId);
      if (current.targetRoot !== row.targetRoot || current.id !== row.id) throw reviewMoved();
      return await act({ row: current, compared, decisions: this.decisionsOf(current.id) }, store);
    });
  }

  /** The decisions about the paths of a review. The map is the cache itself. */
  decisionsOf(reviewId: string): Map<string, DecisionState> {
    const known = this.#decisions.get(reviewId);
    if (known !== undefined) return known;
    const rows = this.#options.rows.decisions(reviewId);
    const found = new Map(rows.map(({ path, state }) => [path, state]));
    this.#decisions.set(reviewId, found);
    return found;
  }

  /** The text of a unit that is decided by hunks; null for any other. */
  async textOf(
    unit: ReviewUnit,
    state: DecisionState | null,
    reader: ObjectReader,
  ): Promise<UnitText | null> {
    const { before, after } = unit;
    if (!isDecidedByHunk(unit) || before?.type !== 'file' || after?.type !== 'file') return null;
    const [base, target] = [await fileBytes(reader, before), await fileBytes(reader, after)];
    if (base.includes(0) || target.includes(0) || base.equals(target)) return null;
    const changes = state?.text?.changes ?? (await this.#options.texts.changes(unit.id, base, target));
    return { base, target, changes };
  }

  #openRow(sessionId: string): ReviewRow {
    const row = this.#options.rows.findOpen(sessionId);
    if (row !== null) return row;
    throw new HoldfastError('not_found', 'No review of this session is open', {
      next: 'open one with `holdfast review SESSION`',
    });
  }

  /** What a new review begins with; null to go on with the open one. */
  #baseOf(
    session: SessionRow,
    base: ReviewBase | undefined,
  ): { readonly root: string; readonly snapshotId: string | null } | null {
    const { rows, snapshots, turns } = this.#options;
    const open = rows.findOpen(session.id);
    if (open !== null && (base === undefined || base === open.baseSpec)) return null;
    const spec = base ?? 'last';
    const ofSnapshot = (row: SnapshotRow) => ({ root: row.root, snapshotId: row.id });
    if (spec === 'last') {
      const ended = rows.newestEnded(session.id);
      const root = ended?.acceptedRoot ?? null;
      if (root !== null) return { root, snapshotId: null };
      if (open !== null && open.baseSpec === 'start') return null;
    }
    if (spec === 'last' || spec === 'start') {
      const oldest =
        session.origin === null
          ? (snapshots.listBySession(session.id)[0] ?? null)
          : snapshots.get(session.origin);
      if (oldest !== null) return ofSnapshot(oldest);
      throw new HoldfastError('not_found', `There is nothing to review in ${session.name}`, {
        why: 'the session has no snapshot from before its first turn',
        next: 'run a turn first',
      });
    }
    if (spec.startsWith('turn:')) {
      const turn = turns.getOrThrow(spec.slice('turn:'.length));
      const id = turn.sessionId === session.id ? (turn.snapshot?.snapshotId ?? null) : null;
      const row = id === null ? null : snapshots.get(id);
      if (row !== null) return ofSnapshot(row);
      throw new HoldfastError('not_found', `There is no snapshot of ${session.name} from before ${turn.id}`, {
        next: 'see `holdfast snapshot list SESSION`',
      });
    }
    const row = snapshots.getOrThrow(spec.slice('snapshot:'.length));
    if (row.lineage === session.lineage) return ofSnapshot(row);
    throw new HoldfastError('not_found', `There is no snapshot ${row.id} of ${session.name}`);
  }

  /** Ends the open review, whose accepted tree is stored, and begins another one. */
  #begin(
    session: SessionRow,
    spec: ReviewBase,
    base: { readonly root: string; readonly snapshotId: string | null } | null,
    target: SnapshotRow,
  ): void {
    if (base === null) throw new HoldfastError('internal', 'A review without a base');
    const { rows, ids, now, database } = this.#options;
    const at = now();
    database.transaction(() => {
      const earlier = rows.findOpen(session.id);
      if (earlier !== null) this.endStored(earlier);
      rows.insert({
        id: ids.next('rev'),
        sessionId: session.id,
        lineage: session.lineage,
        createdAt: at,
        updatedAt: at,
        endedAt: null,
        baseSpec: spec,
        baseSnapshot: base.snapshotId,
        baseRoot: base.root,
        targetSnapshot: target.id,
        targetRoot: target.root,
        acceptedRoot: null,
        revision: 0,
      });
      this.#recordOpened(session.id);
    });
  }

  /** Carries the decisions over to a newer target. */
  async #continue(row: ReviewRow, target: SnapshotRow, signal?: AbortSignal): Promise<Review> {
    const { database, rows, trees, texts, now } = this.#options;
    const patch = { targetSnapshot: target.id, targetRoot: target.root, updatedAt: now() };
    return await trees.use(row.lineage, async (store) => {
      const isSame = row.targetRoot === target.root;
      const before = this.decisionsOf(row.id);
      const after = new Map<string, DecisionState>();
      const compared = await trees.compare(store, { ...row, targetRoot: target.root }, signal);
      if (isSame) {
        database.transaction(() => rows.update(row.id, patch));
      } else {
        const old = before.size === 0 ? null : await trees.compare(store, row, signal);
        for (const [path, state] of before) {
          const unit = compared.byKey.get(path);
          if (unit === undefined) continue;
          const carried = await carryDecision(state, old?.byKey.get(path) ?? null, unit, store, texts);
          if (carried !== null) after.set(path, carried);
        }
        database.transaction(() => {
          rows.clearDecisions(row.id);
          for (const [path, state] of after) {
            rows.decide(row.id, path, compared.byKey.get(path)?.id ?? '', state);
          }
          rows.update(row.id, { ...patch, acceptedRoot: null, revision: row.revision + 1 });
          this.#recordOpened(row.sessionId);
        });
        this.#decisions.set(row.id, after);
      }
      const current = this.#openRow(row.sessionId);
      return viewOf({ row: current, compared, decisions: isSame ? before : after });
    });
  }

  async #end(row: ReviewRow, signal?: AbortSignal): Promise<void> {
    await this.#storeAccepted(row, signal);
    this.#options.database.transaction(() => this.endStored(row));
  }

  async #storeAccepted(row: ReviewRow, signal?: AbortSignal): Promise<void> {
    if (row.acceptedRoot !== null) return;
    const { trees, rows, snapshots } = this.#options;
    const target = snapshots.get(row.targetSnapshot);
    await trees.storeAccepted(
      { ...row, isTargetComplete: target?.missing === 0 },
      this.decisionsOf(row.id),
      (root) => rows.update(row.id, { acceptedRoot: root }),
      signal,
    );
  }

  #recordOpened(sessionId: string): void {
    const { events } = this.#options;
    const { id, baseRoot, targetRoot, targetSnapshot } = this.#openRow(sessionId);
    const data = { reviewId: id, base: baseRoot, target: targetRoot, snapshotId: targetSnapshot };
    events.append(sessionId, [{ type: 'review.opened', data }]);
  }
}

function headNotSent(): HoldfastError {
  return new HoldfastError('invalid_params', 'The files of the commit were not sent', {
    why: 'a commit is in the repository of the client, which sends what the session lacks',
    next: 'use `holdfast review SESSION --base head`, or *Agent: Review Changes Since…*',
  });
}

export function reviewMoved(): HoldfastError {
  return new HoldfastError('conflict', 'The review has been opened again meanwhile', {
    why: 'it compares with newer files now',
    next: 'ask for it again',
  });
}
