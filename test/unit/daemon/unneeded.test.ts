import { expect, test, vi } from 'vitest';
import { leaveAfterMs, UnneededWatch } from '../../../supervisor/daemon/unneeded.ts';

test('a supervisor leaves when idle only where that was asked for', () => {
  expect(leaveAfterMs({})).toBeNull();
  expect(leaveAfterMs({ HOLDFAST_LEAVE_AFTER_MS: '600000' })).toBe(600_000);
  expect(leaveAfterMs({ HOLDFAST_LEAVE_AFTER_MS: 'soon' })).toBeNull();
  expect(leaveAfterMs({ HOLDFAST_LEAVE_AFTER_MS: '0' })).toBeNull();
});

test('not while somebody needs it, then after the time, once', () => {
  vi.useFakeTimers();
  let needed = true;
  let told = 0;
  const watch = new UnneededWatch(
    100,
    () => needed,
    () => (told += 1),
  );
  try {
    vi.advanceTimersByTime(250);
    expect(told).toBe(0);
    needed = false;
    vi.advanceTimersByTime(60);
    needed = true;
    vi.advanceTimersByTime(60);
    needed = false;
    vi.advanceTimersByTime(70);
    expect(told).toBe(0);
    vi.advanceTimersByTime(300);
    expect(told).toBe(1);
  } finally {
    watch.close();
    vi.useRealTimers();
  }
});
