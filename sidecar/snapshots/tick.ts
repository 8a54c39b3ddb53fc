import { setTimeout as sleep } from 'node:timers/promises';
import type { System } from './system.ts';

/**
 * The time of files after its next tick, some milliseconds at most: whoever changes a file from now on leaves this time or a later one,
 * whoever did before the call an earlier one.
 */
export async function nextTick(system: Pick<System, 'fileClock'>): Promise<bigint> {
  const before = system.fileClock();
  for (;;) {
    const now = system.fileClock();
    if (now > before) return now;
    await sleep(1);
  }
}
