import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { Profiles } from '../store/profiles.ts';
import { idlePlan, idleTimes, type IdlePlan } from './idle-plan.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { ActiveWork } from './active-work.ts';
import type { SessionRecords } from '../history/session-records.ts';

/** Longest sleep between two looks: also what a clock that was set forward can be late by. */
const MOST_MS = 60_000;
const LEAST_MS = 50;
/** A plan that failed (engine away) is tried again after this. */
const RETRY_MS = 5000;

export interface IdleClockOptions {
  readonly sessions: Sessions;
  readonly profiles: Profiles;
  readonly lifecycle: Lifecycle;
  readonly records: SessionRecords;
  readonly live: ActiveWork;
  readonly canPause: () => boolean;
  readonly log: Log;
  readonly now: () => number;
}

/** Pauses, stops and expires sessions on their profiles' times. */
export class IdleTimer {
  readonly #options: IdleClockOptions;
  readonly #notBefore = new Map<string, number>();
  #timer: NodeJS.Timeout | null = null;
  #fires = Number.POSITIVE_INFINITY;
  #stopped = false;
  #looking: Promise<void> = Promise.resolve();

  constructor(options: IdleClockOptions) {
    this.#options = options;
  }

  start(): void {
    this.#arm(this.#options.now());
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#looking;
  }

  /** Something about this session changed: its next time may be nearer than the clock is set for. */
  reschedule(sessionId: string): void {
    const row = this.#options.records.peek(sessionId);
    if (row === null || row.status === 'deleted') return;
    const { dueAt } = this.#plan(row);
    if (dueAt !== null) this.#arm(dueAt);
  }

  #arm(at: number): void {
    if (this.#stopped || at >= this.#fires) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#fires = at;
    const wait = Math.min(MOST_MS, Math.max(LEAST_MS, at - this.#options.now()));
    this.#timer = setTimeout(() => {
      this.#fires = Number.POSITIVE_INFINITY;
      // One look at a time: what the one before is still putting away must not be put away twice.
      this.#looking = this.#looking.then(() => this.#look());
    }, wait);
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    const { log, now } = this.#options;
    let next = now() + MOST_MS;
    try {
      next = await this.#putAway(next);
    } catch (error) {
      log.error('idle sessions could not be looked at', { error });
    }
    this.#arm(next);
  }

  /** Gives the time of the next look: at most `next`, ms since 1970. */
  async #putAway(latest: number): Promise<number> {
    const { sessions, now } = this.#options;
    let next = latest;
    for (const row of sessions.all(['created', 'active', 'idle', 'paused', 'resumable'])) {
      if (this.#stopped) return next;
      const held = this.#notBefore.get(row.id) ?? 0;
      if (held > now()) {
        next = Math.min(next, held);
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
    return this.#notBefore.get(sessionId) ?? this.#plan(row).dueAt;
  }

  #plan(row: SessionRow): IdlePlan {
    const { profiles, live, canPause, now } = this.#options;
    const profile = profiles.get(row.profile);
    if (profile === null) return { action: 'none', dueAt: null };
    return idlePlan(row, idleTimes(profile.config), live.count(row.id), canPause(), now());
  }

  async #act(row: SessionRow, act: Exclude<IdlePlan['action'], 'none'>): Promise<void> {
    const { lifecycle, records, log, now } = this.#options;
    // Asked again in its lane: it may have been used while that was busy.
    const still = (): boolean => {
      const current = records.peek(row.id);
      return current !== null && this.#plan(current).action === act;
    };
    try {
      switch (act) {
        case 'pause':
          await lifecycle.pauseIf(row.id, still);
          break;
        case 'stop':
          await lifecycle.stopIf(row.id, still);
          break;
        case 'expire':
          records.change(row.id, { status: 'expired' }, 'not used for as long as its profile allows');
          break;
      }
      this.#notBefore.delete(row.id);
    } catch (error) {
      log.warn('an idle session could not be put away', {
        session: row.id,
        act,
        why: HoldfastError.from(error).sentence,
      });
      this.#notBefore.set(row.id, now() + RETRY_MS);
    }
  }
}
