import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { KeyedReadWriteLock } from '../../../supervisor/base/keyed-read-write-lock.ts';

describe('the keyed read-write lock', () => {
  it('lets the changes under way end, and keeps the next ones waiting until it is open again', async () => {
    const gate = new KeyedReadWriteLock();
    const told: string[] = [];
    const under = Promise.withResolvers<undefined>();
    const restore = Promise.withResolvers<undefined>();
    const first = gate.runShared('s', async () => {
      await under.promise;
      told.push('first');
    });
    const restored = gate.runExclusive('s', async () => {
      told.push('begins');
      await restore.promise;
      told.push('ends');
    });
    const second = gate.runShared('s', () => Promise.resolve(told.push('second')));
    await gate.runShared('other', () => Promise.resolve(told.push('other')));
    await turn();
    expect(told).toEqual(['other']);
    under.resolve(undefined);
    await first;
    await turn();
    expect(told).toEqual(['other', 'first', 'begins']);
    restore.resolve(undefined);
    await Promise.all([restored, second]);
    expect(told).toEqual(['other', 'first', 'begins', 'ends', 'second']);
  });

  it('stays shut until the last of several has ended, also where one fails', async () => {
    const gate = new KeyedReadWriteLock();
    const told: string[] = [];
    const last = Promise.withResolvers<undefined>();
    const failing = gate.runExclusive('s', () => Promise.reject(new Error('no room')));
    const lasting = gate.runExclusive('s', () => last.promise);
    const change = gate.runShared('s', () => Promise.resolve(told.push('change')));
    await expect(failing).rejects.toThrow('no room');
    await turn();
    expect(told).toEqual([]);
    last.resolve(undefined);
    await Promise.all([lasting, change]);
    expect(told).toEqual(['change']);
  });

  it('gives way after a change that failed', async () => {
    const gate = new KeyedReadWriteLock();
    await expect(gate.runShared('s', () => Promise.reject(new Error('gone')))).rejects.toThrow('gone');
    expect(await gate.runExclusive('s', () => Promise.resolve('done'))).toBe('done');
  });
});
