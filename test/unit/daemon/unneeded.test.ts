import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { leaveAfterMs, UnneededWatch } from '../../../supervisor/daemon/unneeded.ts';

test('a supervisor leaves when idle only where that was asked for', () => {
  expect(leaveAfterMs({})).toBeNull();
  expect(leaveAfterMs({ HOLDFAST_LEAVE_AFTER_MS: '600000' })).toBe(600_000);
  expect(leaveAfterMs({ HOLDFAST_LEAVE_AFTER_MS: 'soon' })).toBeNull();
  expect(leaveAfterMs({ HOLDFAST_LEAVE_AFTER_MS: '0' })).toBeNull();
});

test('not while somebody needs it, then after the time, once', async () => {
  let needed = true;
  let told = 0;
  const watch = new UnneededWatch(
    100,
    () => needed,
    () => (told += 1),
  );
  try {
    await sleep(250);
    expect(told).toBe(0);
    needed = false;
    await sleep(60);
    needed = true;
    await sleep(60);
    needed = false;
    await sleep(70);
    expect(told).toBe(0);
    await sleep(300);
    expect(told).toBe(1);
  } finally {
    watch.close();
  }
});
