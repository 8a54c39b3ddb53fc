import { setTimeout as sleep } from 'node:timers/promises';
import type { SystemCalls } from './system-calls.ts';

const MILLISECOND = 1_000_000n;
/** How far the file clock may lag behind, ms. A clock that somebody sets is not waited for. */
const MAX_LAG = 50;

/**
 * Waits for the next timestamp of the file clock, some milliseconds at most, and returns it. A later change has this
 * timestamp or a later one; a change before the call has an earlier one. Timestamps of changes may be finer than the
 * clock's ticks, and ticks come late on a busy machine.
 */
export async function waitForNextTimestamp(system: Pick<SystemCalls, 'fileClock'>): Promise<bigint> {
  const before = system.fileClock();
  const called = laterThanNow();
  for (let waited = 0; ; waited += 1) {
    const now = system.fileClock();
    if (now > before && (now >= called || waited >= MAX_LAG)) return now;
    await sleep(1);
  }
}

/**
 * A time (ns) later than the ctime of any change before the call. For some milliseconds, later changes may have an
 * earlier ctime too.
 */
export function laterThanNow(): bigint {
  return BigInt(Date.now() + 1) * MILLISECOND;
}
