import { setTimeout as sleep } from 'node:timers/promises';
import type { SystemCalls } from './system-calls.ts';

const MILLISECOND = 1_000_000n;
/** Milliseconds that the clock of files may lag behind; longer where somebody sets the clock, which is not waited for. */
const MOST_BEHIND = 50;

/**
 * The time of files after its next tick, some milliseconds at most: whoever changes a file from now on leaves this time or a later one,
 * whoever did before the call an earlier one. That of a change may be finer than the ticks, and those come late on a busy machine.
 */
export async function waitForNextTimestamp(system: Pick<SystemCalls, 'fileClock'>): Promise<bigint> {
  const before = system.fileClock();
  const called = laterThanNow();
  for (let waited = 0; ; waited += 1) {
    const now = system.fileClock();
    if (now > before && (now >= called || waited >= MOST_BEHIND)) return now;
    await sleep(1);
  }
}

/** A time (ns) that no change has which was made before the call. One that is made after it may have an earlier one, for some milliseconds. */
export function laterThanNow(): bigint {
  return BigInt(Date.now() + 1) * MILLISECOND;
}
