import { expect, test, vi } from 'vitest';
import { idleShutdownMs, IdleShutdown } from '../../../supervisor/daemon/idle-shutdown.ts';

test('a supervisor shuts down when idle only if the environment says so', () => {
  expect(idleShutdownMs({})).toBeNull();
  expect(idleShutdownMs({ HOLDFAST_IDLE_SHUTDOWN_MS: '600000' })).toBe(600_000);
  expect(idleShutdownMs({ HOLDFAST_IDLE_SHUTDOWN_MS: 'soon' })).toBeNull();
  expect(idleShutdownMs({ HOLDFAST_IDLE_SHUTDOWN_MS: '0' })).toBeNull();
});

test('reports once, after the time, and not while somebody needs the supervisor', () => {
  vi.useFakeTimers();
  let needed = true;
  let told = 0;
  const watch = new IdleShutdown(
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
