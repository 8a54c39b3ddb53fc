import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Home } from '../../../supervisor/store/home.ts';
import { HomeLock } from '../../../supervisor/store/lock.ts';
import { thrownError, temporaryHome } from '../../fixtures/store/temporary-home.ts';

async function otherHolder(home: Home): Promise<ChildProcess> {
  const script = join(import.meta.dirname, 'lock-holder.ts');
  const child = spawn(process.execPath, [script, home.root], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  return child;
}

describe('the lock of a home', () => {
  test('is held by one process; the second gets the name of the holder', async () => {
    const home = temporaryHome();
    const holder = await otherHolder(home);
    const failure = thrownError(() => HomeLock.acquire(home, { waitMs: 0 }));
    expect(failure.code).toBe('home_locked');
    expect(failure.why).toContain(String(holder.pid));
    expect(failure.details).toEqual({ pid: holder.pid });
  });

  test('is released by kill -9 of its holder, without cleanup', async () => {
    const home = temporaryHome();
    const holder = await otherHolder(home);
    holder.kill('SIGKILL');
    await once(holder, 'exit');
    expect(existsSync(home.holder)).toBe(true);
    HomeLock.acquire(home, { waitMs: 2000 }).release();
  });

  test('is waited for up to the given time', async () => {
    const home = temporaryHome();
    await otherHolder(home);
    const start = performance.now();
    expect(thrownError(() => HomeLock.acquire(home, { waitMs: 300 })).code).toBe('home_locked');
    expect(performance.now() - start).toBeGreaterThan(250);
  });

  test('holds within one process too, until it is released', () => {
    const home = temporaryHome();
    const first = HomeLock.acquire(home, { waitMs: 0 });
    expect(thrownError(() => HomeLock.acquire(home, { waitMs: 0 })).code).toBe('home_locked');
    first.release();
    first.release();
    HomeLock.acquire(home, { waitMs: 0 }).release();
  });

  test('of one home does not affect another', () => {
    const first = HomeLock.acquire(temporaryHome(), { waitMs: 0 });
    const second = HomeLock.acquire(temporaryHome(), { waitMs: 0 });
    first.release();
    second.release();
  });
});
