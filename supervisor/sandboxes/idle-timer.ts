import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { Profiles } from '../store/profiles.ts';
import { idlePlan, idleTimes, type IdlePlan } from './idle-plan.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { ActiveWork } from './active-work.ts';
import type { SessionRecords } from '../history/session-records.ts';

/** Longest time between two checks: also how late an action can be after the clock was set forward. */
const MOST_MS = 60_000;
const LEAST_MS = 50;
/** An action that failed (the engine is unreachable) is retried after this. */
const RETRY_MS = 5000;

export interface IdleClockOptions {
  readonly sessions: Sessions;
  readonly profiles: Profiles;
  readonly lifecycle: Lifecycle;
  readonly records: SessionRecords;
  readonly activeWork: ActiveWork;
  readonly canPause: () => boolean;
  readonly log: Log;
  readonly now: () => number;
}

/** Pauses, stops and expires idle sessions after the times in their profiles. */
export class IdleTimer {
  readonly #options: IdleClockOptions;
  readonly #retryAt = new Map<string, number>();
  #timer: NodeJS.Timeout | null = null;
  #firesAt = Number.POSITIVE_INFINITY;
  #stopped = false;
  #checking: Promise<void> = Promise.resolve();

  constructor(options: IdleClockOptions) {
    this.#options = options;
  }

  start(): void {
    this.#arm(this.#options.now());
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#checking;
  }

  /** The session changed: its next action may be due before the timer fires. */
  reschedule(sessionId: string): void {
    const row = this.#options.records.peek(sessionId);
    if (row === null || row.status === 'deleted') return;
    const { dueAt } = this.#plan(row);
    if (dueAt !== null) this.#arm(dueAt);
  }

  #arm(at: number): void {
    if (this.#stopped || at >= this.#firesAt) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#firesAt = at;
    const wait = Math.min(MOST_MS, Math.max(LEAST_MS, at - this.#options.now()));
    this.#timer = setTimeout(() => {
      this.#firesAt = Number.POSITIVE_INFINITY;
      // One check at a time: the one before may still be stopping a session.
      this.#checking = this.#checking.then(() => this.#check());
    }, wait);
  }

  /** Never rejects. */
  async #check(): Promise<void> {
    const { log, now } = this.#options;
    let next = now() + MOST_MS;
    try {
      next = await this.#actOnIdle(next);
    } catch (error) {
      log.error('idle sessions could not be checked', { error });
    }
    this.#arm(next);
  }

  /** Returns when to check again: `latest` at most. Both are ms since 1970. */
  async #actOnIdle(latest: number): Promise<number> {
    const { sessions, now } = this.#options;
    let next = latest;
    for (const row of sessions.all(['created', 'active', 'idle', 'paused', 'resumable'])) {
      if (this.#stopped) return next;
      const retryAt = this.#retryAt.get(row.id) ?? 0;
      if (retryAt > now()) {
        next = Math.min(next, retryAt);
        continue;
      }
      const plan = this.#plan(row);
      if (plan.action !== 'none') await this.#act(row, plan.action);
      const after = plan.action === 'none' ? plan.dueAt : this.#dueOf(row.id);
      if (after !== null) next = Math.min(next, after);
    }
    return next;
  }

  #dueOf(sessionId: string): number | null {
    const row = this.#options.records.peek(sessionId);
    if (row === null) return null;
    return this.#retryAt.get(sessionId) ?? this.#plan(row).dueAt;
  }

  #plan(row: SessionRow): IdlePlan {
    const { profiles, activeWork, canPause, now } = this.#options;
    const profile = profiles.get(row.profile);
    if (profile === null) return { action: 'none', dueAt: null };
    return idlePlan(row, idleTimes(profile.config), activeWork.count(row.id), canPause(), now());
  }

  async #act(row: SessionRow, act: Exclude<IdlePlan['action'], 'none'>): Promise<void> {
    const { lifecycle, records, log, now } = this.#options;
    // Checked again with the mutex held: the session may have been used while this waited for the mutex.
    const isStillDue = (): boolean => {
      const current = records.peek(row.id);
      return current !== null && this.#plan(current).action === act;
    };
    try {
      switch (act) {
        case 'pause':
          await lifecycle.pauseIf(row.id, isStillDue);
          break;
        case 'stop':
          await lifecycle.stopIf(row.id, isStillDue);
          break;
        case 'expire':
          records.change(row.id, { status: 'expired' }, 'not used for as long as its profile allows');
          break;
      }
      this.#retryAt.delete(row.id);
    } catch (error) {
      log.warn('an idle session could not be paused or stopped', {
        session: row.id,
        act,
        why: HoldfastError.from(error).sentence,
      });
      this.#retryAt.set(row.id, now() + RETRY_MS);
    }
  }
}
