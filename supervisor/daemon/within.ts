import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';

/** How long each part of the supervisor may take to stop. The next supervisor finishes what did not end. */
export const DRAIN_MS = 10_000;

/** Waits for work that goes on where it takes longer. Errors: `timeout`, those of the work. */
export async function within(ms: number, work: Promise<unknown> | undefined): Promise<void> {
  const timer = new AbortController();
  try {
    const late = sleep(ms, 'late', { signal: timer.signal }).catch(() => 'ended');
    const first = await Promise.race([work, late]);
    if (first === 'late') throw new HoldfastError('timeout', `It took longer than ${ms / 1000} s`);
  } finally {
    timer.abort();
  }
}
