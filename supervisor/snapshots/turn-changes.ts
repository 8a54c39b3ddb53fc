import type { TurnChanges } from '../../protocol/changes.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { parseHash } from '../../snapshot-format/objects.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Log } from '../base/log.ts';
import type { Database } from '../store/database.ts';
import type { DiskReserve } from '../store/reserve.ts';
import type { Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { TurnPaths } from '../store/turn-paths.ts';
import type { TurnSummary, Turns } from '../store/turns.ts';
import { NO_CHANGES } from './compare/comparison.ts';
import { type MeasuredChanges, measureChanges } from './measure-changes.ts';
import type { TextComparison } from './patch/text-comparison.ts';
import { Semaphore } from './semaphore.ts';
import type { SnapshotCreation } from './snapshot-creation.ts';
import type { LineageStores } from './store/lineage-stores.ts';

/** Turns that are compared at the same time. */
const MAX_COMPARISONS = 2;
const TIMEOUTS = {
  creation: 600_000,
  comparison: 60_000,
  /** How long whatever changes or ends a workspace waits for the snapshot after its last turn. */
  finish: 10_000,
  shutdown: 1_000,
} as const;

export interface TurnChangesOptions {
  readonly database: Database;
  readonly turns: Pick<Turns, 'get' | 'nextQueued' | 'getRunning' | 'update' | 'listWithPendingChanges'>;
  readonly turnPaths: Pick<TurnPaths, 'put'>;
  readonly sessions: Pick<Sessions, 'get'>;
  readonly snapshots: Pick<Snapshots, 'get'>;
  readonly stores: Pick<LineageStores, 'use'>;
  readonly snapshotCreation: Pick<SnapshotCreation, 'create'>;
  readonly texts: Pick<TextComparison, 'changes'>;
  readonly changes: ChangeNotifier;
  readonly reserve: Pick<DiskReserve, 'retryOnFullDisk'>;
  readonly log: Log;
}

/** A snapshot after a turn that is being created. */
interface Creation {
  readonly done: Promise<void>;
  readonly abort: (why: HoldfastError) => void;
}

/**
 * What each turn of a persistent session changed on disk: pending from the transaction of its end, then known or unknown.
 * The snapshot after it is created in the background, or is the one before the next turn where that one waits already.
 */
export class TurnChangeRecords {
  readonly #options: TurnChangesOptions;
  readonly #closing = new AbortController();
  readonly #comparisons = new Semaphore(MAX_COMPARISONS);
  /** By session. */
  readonly #creations = new Map<string, Creation>();
  readonly #work = new Set<Promise<void>>();

  constructor(options: TurnChangesOptions) {
    this.#options = options;
  }

  /** A turn ends. Part of the transaction of its end. */
  onTurnEnding(turnId: string): void {
    const { database, turns, sessions } = this.#options;
    const turn = turns.get(turnId);
    const session = turn === null ? null : sessions.get(turn.sessionId);
    if (turn === null || session === null || session.throwaway || !session.persistent) return;
    if (turn.startedAt !== null) turns.update(turnId, { changes: PENDING });
    // At once: whoever restores or cleans the workspace next must come behind it.
    database.afterCommit(() => this.#startCreation(turn.sessionId));
  }

  /** Continues what the last supervisor left. Called before the first turn continues. */
  recover(): void {
    const { turns } = this.#options;
    for (const { id, sessionId, changes } of turns.listWithPendingChanges()) {
      const running = turns.getRunning(sessionId);
      const next = running?.snapshot ?? null;
      if ((changes?.after ?? null) !== null) this.#startComparison(id);
      else if (next?.state === 'taken' && next.snapshotId !== null && !next.duringTurn) {
        this.#store(id, { ...PENDING, after: next.snapshotId });
        this.#startComparison(id);
      } else if (running !== null || turns.nextQueued(sessionId) === null) {
        const why = 'the supervisor ended before there was a snapshot of the files after the turn';
        this.#store(id, unknown('interrupted', why));
      }
    }
  }

  /** Waits a moment for snapshots that are nearly complete. The next supervisor continues comparisons. */
  async close(): Promise<void> {
    const creations = [...this.#creations.values()];
    const timer = setTimeout(() => this.#closing.abort(), creations.length === 0 ? 0 : TIMEOUTS.shutdown);
    await Promise.all(creations.map(({ done }) => done));
    clearTimeout(timer);
    this.#closing.abort();
    await Promise.all(this.#work);
  }

  /**
   * Settles when no snapshot after a turn of the session is being created. One that is not complete after 10 seconds, or when
   * `signal` aborts, is given up. Never rejects.
   */
  async finishSnapshot(
    sessionId: string,
    signal: AbortSignal = AbortSignal.timeout(TIMEOUTS.finish),
  ): Promise<void> {
    const creation = this.#creations.get(sessionId);
    if (creation === undefined) return;
    const stop = (): void =>
      creation.abort(
        new HoldfastError('interrupted', 'No snapshot of the files after the turn was created', {
          why: 'something else was to change them before it was complete',
        }),
      );
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    await creation.done;
    signal.removeEventListener('abort', stop);
  }

  /** The next turn has its snapshot, which shows what the one before left. */
  onNextSnapshot(sessionId: string, { id }: SnapshotRow): void {
    this.#link(sessionId, id);
    this.#startComparisons(sessionId);
  }

  /** Nothing will show what the turns of the session left that ended last. */
  giveUp(sessionId: string, error: HoldfastError): void {
    const { turns } = this.#options;
    for (const { id, changes } of turns.listWithPendingChanges(sessionId))
      if (changes?.after === null) this.#store(id, unknown(error.code, error.sentence));
  }

  #startCreation(sessionId: string): void {
    const { turns } = this.#options;
    // The snapshot before the next turn serves for this one.
    if (
      this.#closing.signal.aborted ||
      this.#creations.has(sessionId) ||
      turns.nextQueued(sessionId) !== null
    )
      return;
    const turn = turns.listWithPendingChanges(sessionId).find(({ changes }) => changes?.after === null);
    if (turn === undefined) return;
    const aborted = new AbortController();
    const done = this.#create(turn, aborted.signal).finally(() => this.#creations.delete(sessionId));
    this.#creations.set(sessionId, { done, abort: (why) => aborted.abort(why) });
  }

  /** Never rejects. */
  async #create({ id: turnId, sessionId }: TurnSummary, aborted: AbortSignal): Promise<void> {
    const { signal: closing } = this.#closing;
    try {
      await this.#options.snapshotCreation.create(sessionId, {
        reason: 'after-turn',
        turnId,
        needsSidecar: true,
        signal: AbortSignal.any([aborted, closing, AbortSignal.timeout(TIMEOUTS.creation)]),
        onRecord: ({ id }) => this.#link(sessionId, id),
      });
      await failpoint('changes.after-snapshot');
      this.#startComparisons(sessionId);
    } catch (cause) {
      // The next supervisor says so.
      if (closing.aborted) return;
      const error = HoldfastError.from(
        aborted.aborted ? aborted.reason : cause,
        'The snapshot could not be created',
      );
      this.#options.log.warn('there is no snapshot after a turn', {
        session: sessionId,
        turn: turnId,
        why: error.sentence,
      });
      this.giveUp(sessionId, error);
    }
  }

  /** The snapshot shows what the turns left. May be part of a transaction. */
  #link(sessionId: string, after: string): void {
    const { turns } = this.#options;
    for (const { id, changes } of turns.listWithPendingChanges(sessionId))
      if (changes?.after === null) turns.update(id, { changes: { ...PENDING, after } });
  }

  #startComparisons(sessionId: string): void {
    for (const { id, changes } of this.#options.turns.listWithPendingChanges(sessionId))
      if (changes?.after !== null) this.#startComparison(id);
  }

  #startComparison(turnId: string): void {
    const work = this.#compare(turnId).finally(() => this.#work.delete(work));
    this.#work.add(work);
  }

  /** Never rejects. */
  async #compare(turnId: string): Promise<void> {
    const { signal: closing } = this.#closing;
    try {
      const release = await this.#comparisons.acquire(closing);
      try {
        const turn = this.#options.turns.get(turnId);
        if (turn?.changes?.state !== 'pending') return;
        const sides = this.#sidesOf(turn);
        const measured = await this.#measure(sides, closing);
        await failpoint('changes.before-store');
        this.#storeMeasured(turnId, sides, measured);
      } finally {
        release();
      }
    } catch (cause) {
      if (closing.aborted) return;
      const error = HoldfastError.from(
        cause,
        'The snapshots before and after the turn could not be compared',
      );
      this.#options.log.warn('what a turn changed is unknown', { turn: turnId, why: error.sentence });
      this.#store(turnId, unknown(error.code, error.sentence));
    }
  }

  #sidesOf({ snapshot, changes }: TurnSummary): Sides {
    const { snapshots } = this.#options;
    const beforeId = snapshot?.snapshotId ?? null;
    if (beforeId === null) {
      const why = snapshot?.failure?.why ?? 'none was created';
      throw new HoldfastError('not_found', 'There is no snapshot of the files before the turn', { why });
    }
    const [before, after] = [snapshots.get(beforeId), snapshots.get(changes?.after ?? '')];
    if (before === null || after === null)
      throw new HoldfastError('not_found', 'A snapshot before or after the turn has been deleted');
    return { before, after };
  }

  async #measure({ before, after }: Sides, closing: AbortSignal): Promise<MeasuredChanges> {
    if (before.root === after.root)
      return { totals: NO_CHANGES, lines: { added: 0, removed: 0 }, paths: [], omitted: 0 };
    const signal = AbortSignal.any([closing, AbortSignal.timeout(TIMEOUTS.comparison)]);
    const roots = { before: parseHash(before.root), after: parseHash(after.root) };
    return await this.#options.stores.use(after.lineage, (store) =>
      measureChanges(store, { ...roots, texts: this.#options.texts, signal }),
    );
  }

  #storeMeasured(turnId: string, { before, after }: Sides, measured: MeasuredChanges): void {
    const { database, turnPaths } = this.#options;
    const { totals, lines, paths, omitted } = measured;
    const isComplete = [before, after].every(({ duringTurn, missing }) => !duringTurn && missing === 0);
    const ids = { before: before.id, after: after.id };
    database.transaction(() => {
      turnPaths.put(turnId, paths, omitted);
      this.#write(turnId, { ...ids, state: 'known', totals, lines, isComplete, failure: null });
    });
    this.#options.changes.notify(turnId);
  }

  #write(turnId: string, changes: TurnChanges): void {
    // The contents of a deleted session are removed: nothing comes back.
    if (this.#options.turns.get(turnId)?.changes?.state === 'pending')
      this.#options.turns.update(turnId, { changes });
  }

  /** A failure, such as a full disk, is only logged: then it stays pending until the next supervisor. */
  #store(turnId: string, changes: TurnChanges): void {
    const { reserve, log } = this.#options;
    try {
      reserve.retryOnFullDisk(() => this.#write(turnId, changes));
      this.#options.changes.notify(turnId);
    } catch (error) {
      const why = HoldfastError.from(error).sentence;
      log.warn('what a turn changed could not be stored', { turn: turnId, why });
    }
  }
}

interface Sides {
  readonly before: SnapshotRow;
  readonly after: SnapshotRow;
}

const PENDING: TurnChanges = {
  state: 'pending',
  before: null,
  after: null,
  totals: null,
  lines: null,
  isComplete: true,
  failure: null,
};

function unknown(code: string, why: string): TurnChanges {
  return { ...PENDING, state: 'unknown', isComplete: false, failure: { code, why } };
}
