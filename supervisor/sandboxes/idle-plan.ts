import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import type { SessionStatus } from '../../protocol/entities.ts';

export interface IdleRecord {
  readonly status: SessionStatus;
  readonly persistent: boolean;
  /** ms since 1970. */
  readonly lastActiveAt: number;
}

export interface IdleTimes {
  readonly pause: number;
  readonly stop: number;
  readonly expire: number;
}

export interface IdlePlan {
  readonly action: 'none' | 'pause' | 'stop' | 'expire';
  /** When to plan again, ms since 1970; null: never. */
  readonly dueAt: number | null;
}

export function idleTimes(profile: Profile): IdleTimes {
  return {
    pause: profile.idle?.pause ?? PROFILE_DEFAULTS.idle.pause,
    stop: profile.idle?.stop ?? PROFILE_DEFAULTS.idle.stop,
    expire: profile.idle?.expire ?? PROFILE_DEFAULTS.idle.expire,
  };
}

/**
 * What to do with an idle session now. A session with active work is not idle. All times count from the last activity; a clock
 * that is set back only delays them. Expiry changes the status and deletes no file.
 */
export function idlePlan(
  record: IdleRecord,
  times: IdleTimes,
  activeWork: number,
  canPause: boolean,
  now: number,
): IdlePlan {
  const at = (after: number): number => record.lastActiveAt + after;
  switch (record.status) {
    case 'active':
    case 'idle': {
      if (activeWork > 0) return { action: 'none', dueAt: null };
      if (now >= at(times.stop)) return { action: 'stop', dueAt: null };
      if (canPause && times.pause < times.stop) {
        return now >= at(times.pause)
          ? { action: 'pause', dueAt: at(times.stop) }
          : { action: 'none', dueAt: at(times.pause) };
      }
      return { action: 'none', dueAt: at(times.stop) };
    }
    case 'paused':
      if (activeWork > 0) return { action: 'none', dueAt: null };
      return now >= at(times.stop)
        ? { action: 'stop', dueAt: null }
        : { action: 'none', dueAt: at(times.stop) };
    case 'created':
    case 'resumable':
      return now >= at(times.expire)
        ? { action: 'expire', dueAt: null }
        : { action: 'none', dueAt: at(times.expire) };
    case 'expired':
    case 'deleted':
      return { action: 'none', dueAt: null };
  }
}

/** The status of a session without containers. Only a persistent session has something to resume. */
export function statusWithoutSandbox(record: { persistent: boolean; generation: number }): SessionStatus {
  if (record.generation === 0) return 'created';
  return record.persistent ? 'resumable' : 'expired';
}
