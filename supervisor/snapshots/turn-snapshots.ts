import type { TurnSnapshot } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Progress } from '../../protocol/wire/shapes.ts';
import type { Log } from '../base/log.ts';
import type { EventLog } from '../history/event-log.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';
import { raceAbort } from '../base/race-abort.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { SnapshotCreation } from './snapshot-creation.ts';
import type { TurnChangeRecords } from './turn-changes.ts';

/**
 * A turn waits at most this long for its snapshot, because a person waits for the turn. The first scan of 100,000 files
 * with 1 GB takes 6 s (bench/snapshots.ts), a later one a fraction of that.
 */
export const MAX_WAIT_MS = 10_000;
/** The creation of a snapshot before a turn is aborted after this long. */
const CREATION_TIMEOUT_MS = 600_000;

export interface TurnSnapshotsOptions {
  readonly snapshotCreation: Pick<SnapshotCreation, 'create'>;
  readonly turnChanges: Pick<TurnChangeRecords, 'finishSnapshot' | 'onNextSnapshot' | 'giveUp'>;
  readonly turns: Pick<Turns, 'update' | 'listWithUnfinishedSnapshot'>;
  readonly events: EventLog;
  readonly changes: ChangeNotifier;
  /** Whether the session's profile says `snapshots: required`. */
  readonly isRequired: (session: SessionRow) => boolean;
  readonly log: Log;
  /** Default: MAX_WAIT_MS. */
  readonly maxWaitMs?: number | undefined;
}

type Outcome =
  | { readonly kind: 'taken'; readonly row: SnapshotRow }
  | { readonly kind: 'failed'; readonly error: HoldfastError }
  /** The snapshot is no longer wanted. */
  | { readonly kind: 'dropped' };

/** A snapshot that is being created for a turn. */
interface PendingSnapshot {
  readonly turnId: string;
  readonly outcome: Promise<Outcome>;
}

interface TrackedProgress {
  last: Progress | null;
  readonly listeners: Set<(progress: Progress) => void>;
}

/** Creates the snapshot before each turn, reports its progress and records its outcome with the turn. */
export class TurnSnapshots {
  readonly #options: TurnSnapshotsOptions;
  readonly #closing = new AbortController();
  /** The snapshot of each session that outlasted the wait of its turn: at most one. */
  readonly #late = new Map<string, PendingSnapshot>();
  /** Progress by turn. */
  readonly #progress = new Map<string, TrackedProgress>();

  constructor(options: TurnSnapshotsOptions) {
    this.#options = options;
  }

  /** Marks the snapshots that the last supervisor left unfinished as failed. Called before the first turn continues. */
  recover(): void {
    for (const turn of this.#options.turns.listWithUnfinishedSnapshot()) {
      const error = new HoldfastError(
        'interrupted',
        'The supervisor ended while the snapshot was being created',
      );
      this.#failed(turn.sessionId, turn.id, true, error);
    }
  }

  /** Aborts the snapshots that turns did not wait for. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#late.values()].map(({ outcome }) => outcome));
  }

  /**
   * Resolves when the turn may begin: the snapshot is there, has failed, or takes longer than `maxWaitMs` and goes on
   * beside the turn. `signal` aborts the snapshot because the turn was cancelled. Rejects only when the profile
   * requires a complete snapshot and there is none: then the turn must not begin.
   */
  async createBeforeTurn(session: SessionRow, turnId: string, signal: AbortSignal): Promise<void> {
    // Nobody restores the start of a session that is deleted after its turn.
    const isCancelled = (): boolean => signal.aborted;
    if (session.throwaway || isCancelled()) return;
    const isRequired = this.#options.isRequired(session);
    const { maxWaitMs = MAX_WAIT_MS, turnChanges } = this.#options;
    const waitTimeout = new AbortController();
    const waitEnded = AbortSignal.any([signal, waitTimeout.signal]);
    const timer = isRequired ? undefined : setTimeout(() => waitTimeout.abort(), maxWaitMs).unref();
    try {
      await turnChanges.finishSnapshot(session.id, waitEnded);
      if (isCancelled()) return;
      // The snapshot of an earlier turn may still be in progress: it completes first.
      const earlier = this.#late.get(session.id);
      if (earlier !== undefined && (await raceAbort(earlier.outcome, waitEnded)) === null) {
        if (isCancelled()) return;
        const why = `the snapshot of ${earlier.turnId} was still being created`;
        const error = new HoldfastError('timeout', 'The snapshot was not started', { why });
        this.#failed(session.id, turnId, false, error);
        return;
      }
      const late = { is: false };
      const pending: PendingSnapshot = { turnId, outcome: this.#create(session, turnId, late, signal) };
      const outcome = await raceAbort(pending.outcome, waitEnded);
      if (outcome !== null) {
        if (isRequired) this.#requireComplete(outcome);
        return;
      }
      // The turn was cancelled and will not run. Its snapshot aborts through `signal`.
      if (isCancelled()) return;
      late.is = true;
      const why = 'the next turn started before its snapshot was complete';
      turnChanges.giveUp(
        session.id,
        new HoldfastError('timeout', 'What the turn left is not stored', { why }),
      );
      this.#late.set(session.id, pending);
      void pending.outcome.finally(() => this.#late.delete(session.id));
      this.#storeState(turnId, { ...NO_SNAPSHOT, state: 'taking', duringTurn: true });
    } finally {
      clearTimeout(timer);
    }
  }

  /** Reports the progress of a turn's snapshot until the returned function is called. */
  followProgress(turnId: string, listener: (progress: Progress) => void): () => void {
    const tracked = this.#progress.get(turnId) ?? { last: null, listeners: new Set() };
    this.#progress.set(turnId, tracked);
    tracked.listeners.add(listener);
    if (tracked.last !== null) listener(tracked.last);
    return () => {
      tracked.listeners.delete(listener);
      this.#forgetProgress(turnId, tracked);
    };
  }

  /** Never rejects. */
  async #create(
    session: SessionRow,
    turnId: string,
    late: { readonly is: boolean },
    signal: AbortSignal,
  ): Promise<Outcome> {
    const tracked = this.#progress.get(turnId) ?? { last: null, listeners: new Set() };
    this.#progress.set(turnId, tracked);
    const aborted = AbortSignal.any([signal, this.#closing.signal]);
    try {
      const created = await this.#options.snapshotCreation.create(session.id, {
        reason: 'before-turn',
        turnId,
        isDuringTurn: () => late.is,
        signal: AbortSignal.any([aborted, AbortSignal.timeout(CREATION_TIMEOUT_MS)]),
        onProgress: (progress) => {
          // Once the turn runs, its own progress is shown instead.
          if (late.is) return;
          tracked.last = { ...progress, stage: `snapshot before the turn: ${progress.stage}` };
          for (const listener of tracked.listeners) listener(tracked.last);
        },
      });
      if (created === null) return { kind: 'dropped' };
      const { id, duringTurn, missing } = created.row;
      if (!duringTurn) this.#options.turnChanges.onNextSnapshot(session.id, created.row);
      this.#storeState(turnId, { state: 'taken', snapshotId: id, duringTurn, missing, failure: null });
      return { kind: 'taken', row: created.row };
    } catch (cause) {
      if (signal.aborted) {
        if (late.is && !isShutdown(signal))
          this.#storeState(turnId, { ...NO_SNAPSHOT, duringTurn: true, failure: CANCELLED });
        return { kind: 'dropped' };
      }
      // The next supervisor marks this snapshot as failed.
      if (this.#closing.signal.aborted) return { kind: 'dropped' };
      const error = HoldfastError.from(cause, 'The snapshot could not be created');
      this.#failed(session.id, turnId, late.is, error);
      return { kind: 'failed', error };
    } finally {
      tracked.last = null;
      this.#forgetProgress(turnId, tracked);
    }
  }

  /** Throws unless the turn has a complete snapshot. */
  #requireComplete(outcome: Outcome): void {
    if (outcome.kind === 'dropped') return;
    const next =
      'fix the cause and repeat the turn, or set `snapshots: auto` in the profile to let turns begin without one';
    if (outcome.kind === 'failed') {
      const { error } = outcome;
      throw new HoldfastError('snapshot_required', 'The turn was not started', {
        why: `its profile requires a snapshot before each turn, and none could be created: ${error.sentence}`,
        next,
        details: { code: error.code },
        cause: error,
      });
    }
    const { missing, missingPaths, id } = outcome.row;
    if (missing === 0) return;
    throw new HoldfastError('snapshot_required', 'The turn was not started', {
      why:
        `its profile requires a complete snapshot before each turn, and ${missing} files could not be read ` +
        `into ${id}, such as ${missingPaths[0] ?? ''}`,
      next,
      details: { snapshot: id, missing },
    });
  }

  #failed(sessionId: string, turnId: string, duringTurn: boolean, error: HoldfastError): void {
    const { events, log } = this.#options;
    const { code, sentence: why } = error;
    log.warn('a snapshot could not be created', {
      session: sessionId,
      turn: turnId,
      reason: 'before-turn',
      code,
      why,
      cause: error.cause,
    });
    this.#storeState(turnId, { ...NO_SNAPSHOT, duringTurn, failure: { code, why } });
    this.#options.turnChanges.giveUp(sessionId, error);
    try {
      events.append(sessionId, [
        { type: 'snapshot.failed', data: { reason: 'before-turn', code, why, turnId } },
      ]);
    } catch (failure) {
      log.warn('the failure could not be recorded', {
        session: sessionId,
        why: HoldfastError.from(failure).sentence,
      });
    }
  }

  /**
   * Stores the snapshot's state with the turn. A failure, such as a full disk, is only logged: it must not delay the
   * turn.
   */
  #storeState(turnId: string, snapshot: TurnSnapshot): void {
    const { turns, changes, log } = this.#options;
    try {
      turns.update(turnId, { snapshot });
      changes.notify(turnId);
    } catch (error) {
      log.warn('the state of a snapshot could not be stored with its turn', {
        turn: turnId,
        why: HoldfastError.from(error).sentence,
      });
    }
  }

  #forgetProgress(turnId: string, tracked: TrackedProgress): void {
    if (tracked.last === null && tracked.listeners.size === 0) this.#progress.delete(turnId);
  }
}

const NO_SNAPSHOT: TurnSnapshot = {
  state: 'failed',
  snapshotId: null,
  duringTurn: false,
  missing: 0,
  failure: null,
};
const CANCELLED = { code: 'cancelled', why: 'The turn was cancelled' };

/** Whether the supervisor is shutting down. The next one then records the outcome. */
function isShutdown({ reason }: AbortSignal): boolean {
  return reason instanceof HoldfastError && reason.code === 'shutting_down';
}
