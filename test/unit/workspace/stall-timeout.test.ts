import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { withStallTimeout } from '../../../supervisor/workspace/liveness.ts';

/** Work that ends when it is told to, as a call does that is cancelled. */
async function endless(stuck: AbortSignal): Promise<never> {
  await sleep(60_000, undefined, { signal: stuck });
  throw new Error('nobody told it to end');
}

test('a call that reports progress may take any time; without progress it fails with a timeout', async () => {
  const done = await withStallTimeout(async (heard) => {
    for (let step = 0; step < 12; step += 1) {
      await sleep(100);
      heard();
    }
    return 'done';
  }, 1000);
  expect(done).toBe('done');
  await expect(withStallTimeout((_heard, stuck) => endless(stuck), 100)).rejects.toMatchObject({
    code: 'timeout',
  });
  // What it fails with by itself is told as it is.
  await expect(withStallTimeout(() => Promise.reject(new RangeError('its own')), 100)).rejects.toThrow(
    RangeError,
  );
});
