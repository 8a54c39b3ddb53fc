import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { WriteGate } from '../../../supervisor/workspace/write-gate.ts';

describe('the gate for changes while a workspace is brought back', () => {
  it('lets the changes under way end, and keeps the next ones waiting until it is open again', async () => {
    const gate = new WriteGate();
    const told: string[] = [];
    const under = Promise.withResolvers<undefined>();
    const restore = Promise.withResolvers<undefined>();
    const first = gate.through('s', async () => {
      await under.promise;
      told.push('first');
    });
    const restored = gate.shut('s', async () => {
      told.push('begins');
      await restore.promise;
      told.push('ends');
    });
    const second = gate.through('s', () => Promise.resolve(told.push('second')));
    await gate.through('other', () => Promise.resolve(told.push('other')));
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
    const gate = new WriteGate();
    const told: string[] = [];
    const last = Promise.withResolvers<undefined>();
    const failing = gate.shut('s', () => Promise.reject(new Error('no room')));
    const lasting = gate.shut('s', () => last.promise);
    const change = gate.through('s', () => Promise.resolve(told.push('change')));
    await expect(failing).rejects.toThrow('no room');
    await turn();
    expect(told).toEqual([]);
    last.resolve(undefined);
    await Promise.all([lasting, change]);
    expect(told).toEqual(['change']);
  });

  it('gives way after a change that failed', async () => {
    const gate = new WriteGate();
    await expect(gate.through('s', () => Promise.reject(new Error('gone')))).rejects.toThrow('gone');
    expect(await gate.shut('s', () => Promise.resolve('done'))).toBe('done');
  });
});
