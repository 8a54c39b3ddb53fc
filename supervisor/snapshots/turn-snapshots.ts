import type { TurnSnapshot } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Progress } from '../../protocol/wire/shapes.ts';
import type { Log } from '../base/log.ts';
import type { EventLog } from '../history/event-log.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { SnapshotCreation } from './snapshot-creation.ts';

/**
 * A turn waits this long for its snapshot, then it begins: a person waits for the turn. The first scan of 100,000 files with 1 GB takes 6 s
 * (bench/snapshots.ts), a later one a fraction of that: only what is out of the ordinary takes longer.
 */
export const MAX_WAIT_MS = 10_000;
/** A snapshot before a turn that takes longer is given up. */
const MOST_MS = 600_000;

export interface TurnSnapshotsOptions {
  readonly takes: Pick<SnapshotCreation, 'create'>;
  readonly turns: Pick<Turns, 'update' | 'listWithUnfinishedSnapshot'>;
  readonly events: EventLog;
  readonly changes: ChangeNotifier;
  /** The profile of the session says `snapshots: required`. */
  readonly isRequired: (session: SessionRow) => boolean;
  readonly log: Log;
  /** MAX_WAIT_MS when left out. */
  readonly maxWaitMs?: number | undefined;
}

type Outcome =
  | { readonly kind: 'taken'; readonly row: SnapshotRow }
  | { readonly kind: 'failed'; readonly error: HoldfastError }
  /** Nobody wants it any more. */
  | { readonly kind: 'dropped' };

/** One snapshot that is being taken for a turn. */
interface Taking {
  readonly turnId: string;
  readonly end: Promise<Outcome>;
}

interface Followed {
  last: Progress | null;
  readonly listeners: Set<(progress: Progress) => void>;
}

/** The snapshots before turns: what a turn waits for, how far it has come, and what becomes of it. */
export class TurnSnapshots {
  readonly #options: TurnSnapshotsOptions;
  readonly #closing = new AbortController();
  /** Those that a turn did not wait for to their end, by session: one at a time. */
  readonly #late = new Map<string, Taking>();
  /** How far they are, by turn. */
  readonly #progress = new Map<string, Followed>();

  constructor(options: TurnSnapshotsOptions) {
    this.#options = options;
  }

  /** Notes what the last supervisor was taking when it ended. Before the first turn goes on. */
  recover(): void {
    for (const turn of this.#options.turns.listWithUnfinishedSnapshot()) {
      const error = new HoldfastError(
        'interrupted',
        'The supervisor ended while the snapshot was being taken',
      );
      this.#failed(turn.sessionId, turn.id, true, error);
    }
  }

  /** Ends those that turns did not wait for. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#late.values()].map(({ end }) => end));
  }

  /**
   * Settles when the turn may begin: with its snapshot, without one, or after a while with one that is still being taken. `signal`: nobody
   * waits for the turn any more, which ends the snapshot, too. Rejects only where the profile requires a complete snapshot before the turn:
   * then the turn must not begin.
   */
  async createBeforeTurn(session: SessionRow, turnId: string, signal: AbortSignal): Promise<void> {
    // Of a throw-away nobody will ever want its beginning back.
    const isUnwanted = (): boolean => signal.aborted;
    if (session.throwaway || isUnwanted()) return;
    const isRequired = this.#options.isRequired(session);
    const { maxWaitMs = MAX_WAIT_MS } = this.#options;
    const bound = new AbortController();
    const over = AbortSignal.any([signal, bound.signal]);
    const timer = isRequired ? undefined : setTimeout(() => bound.abort(), maxWaitMs).unref();
    try {
      // The snapshot of an earlier turn, which that turn did not wait for, is completed first.
      const earlier = this.#late.get(session.id);
      if (earlier !== undefined && (await settledBefore(earlier.end, over)) === null) {
        if (isUnwanted()) return;
        const why = `the snapshot of ${earlier.turnId} was still being taken`;
        const error = new HoldfastError('timeout', 'The snapshot was not begun', { why });
        this.#failed(session.id, turnId, false, error);
        return;
      }
      const late = { is: false };
      const taking: Taking = { turnId, end: this.#take(session, turnId, late, signal) };
      const outcome = await settledBefore(taking.end, over);
      if (outcome !== null) {
        if (isRequired) this.#demand(outcome);
        return;
      }
      // Cancelled: the turn will not run, and the snapshot ends by itself.
      if (isUnwanted()) return;
      late.is = true;
      this.#late.set(session.id, taking);
      void taking.end.finally(() => this.#late.delete(session.id));
      this.#note(turnId, { ...NOT_TAKEN, state: 'taking', duringTurn: true });
    } finally {
      clearTimeout(timer);
    }
  }

  /** Hears how far the snapshot of a turn is, until the returned function is called. */
  followProgress(turnId: string, listener: (progress: Progress) => void): () => void {
    const followed = this.#progress.get(turnId) ?? { last: null, listeners: new Set() };
    this.#progress.set(turnId, followed);
    followed.listeners.add(listener);
    if (followed.last !== null) listener(followed.last);
    return () => {
      followed.listeners.delete(listener);
      this.#forgetProgress(turnId, followed);
    };
  }

  /** Never rejects. */
  async #take(
    session: SessionRow,
    turnId: string,
    late: { readonly is: boolean },
    signal: AbortSignal,
  ): Promise<Outcome> {
    const followed = this.#progress.get(turnId) ?? { last: null, listeners: new Set() };
    this.#progress.set(turnId, followed);
    const unwanted = AbortSignal.any([signal, this.#closing.signal]);
    try {
      const taken = await this.#options.takes.create(session.id, {
        reason: 'before-turn',
        turnId,
        isDuringTurn: () => late.is,
        signal: AbortSignal.any([unwanted, AbortSignal.timeout(MOST_MS)]),
        onProgress: (progress) => {
          // Once the turn runs, what it does is of more interest.
          if (late.is) return;
          followed.last = { ...progress, stage: `snapshot before the turn: ${progress.stage}` };
          for (const listener of followed.listeners) listener(followed.last);
        },
      });
      if (taken === null) return { kind: 'dropped' };
      const { id, duringTurn, missing } = taken.row;
      this.#note(turnId, { state: 'taken', snapshotId: id, duringTurn, missing, failure: null });
      return { kind: 'taken', row: taken.row };
    } catch (cause) {
      if (signal.aborted) {
        if (late.is && !isLeft(signal))
          this.#note(turnId, { ...NOT_TAKEN, duringTurn: true, failure: CANCELLED });
        return { kind: 'dropped' };
      }
      // The next supervisor notes that it was not completed.
      if (this.#closing.signal.aborted) return { kind: 'dropped' };
      const error = HoldfastError.from(cause, 'The snapshot could not be taken');
      this.#failed(session.id, turnId, late.is, error);
      return { kind: 'failed', error };
    } finally {
      followed.last = null;
      this.#forgetProgress(turnId, followed);
    }
  }

  /** Throws unless the turn has a complete snapshot. */
  #demand(outcome: Outcome): void {
    if (outcome.kind === 'dropped') return;
    const next =
      'put that right and repeat the turn, or let turns begin without one with `snapshots: auto` in the profile';
    if (outcome.kind === 'failed') {
      const { error } = outcome;
      throw new HoldfastError('snapshot_required', 'The turn was not started', {
        why: `its profile requires a snapshot before it, which could not be taken: ${error.sentence}`,
        next,
        details: { code: error.code },
        cause: error,
      });
    }
    const { missing, missingPaths, id } = outcome.row;
    if (missing === 0) return;
    throw new HoldfastError('snapshot_required', 'The turn was not started', {
      why: `its profile requires a complete snapshot before it, and ${id} lacks ${missing} files that could not be read, such as ${missingPaths[0] ?? ''}`,
      next,
      details: { snapshot: id, missing },
    });
  }

  #failed(sessionId: string, turnId: string, duringTurn: boolean, error: HoldfastError): void {
    const { events, log } = this.#options;
    const { code, sentence: why } = error;
    log.warn('a snapshot could not be taken', {
      session: sessionId,
      turn: turnId,
      reason: 'before-turn',
      code,
      why,
      cause: error.cause,
    });
    this.#note(turnId, { ...NOT_TAKEN, duringTurn, failure: { code, why } });
    try {
      events.append(sessionId, [
        { type: 'snapshot.failed', data: { reason: 'before-turn', code, why, turnId } },
      ]);
    } catch (failure) {
      log.warn('nor could that be told', { session: sessionId, why: HoldfastError.from(failure).sentence });
    }
  }

  /** What a full disk does not take, the turn does not say: the turn is not held up for it. */
  #note(turnId: string, snapshot: TurnSnapshot): void {
    const { turns, changes, log } = this.#options;
    try {
      turns.update(turnId, { snapshot });
      changes.notify(turnId);
    } catch (error) {
      log.warn('what became of a snapshot is not noted with its turn', {
        turn: turnId,
        why: HoldfastError.from(error).sentence,
      });
    }
  }

  #forgetProgress(turnId: string, followed: Followed): void {
    if (followed.last === null && followed.listeners.size === 0) this.#progress.delete(turnId);
  }
}

const NOT_TAKEN: TurnSnapshot = {
  state: 'failed',
  snapshotId: null,
  duringTurn: false,
  missing: 0,
  failure: null,
};
const CANCELLED = { code: 'cancelled', why: 'The turn was cancelled' };

/** The supervisor leaves, and the next one notes what becomes of it. */
function isLeft({ reason }: AbortSignal): boolean {
  return reason instanceof HoldfastError && reason.code === 'shutting_down';
}

/** What `work` gives, or null where `signal` aborts first. */
async function settledBefore<T>(work: Promise<T>, signal: AbortSignal): Promise<T | null> {
  if (signal.aborted) return null;
  const aborted = Promise.withResolvers<null>();
  const stop = (): void => aborted.resolve(null);
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
