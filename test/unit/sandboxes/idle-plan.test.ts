import { describe, expect, it } from 'vitest';
import { ProfileSchema } from '../../../protocol/profile.ts';
import {
  idlePlan,
  idleTimes,
  statusWithoutSandbox,
  type IdleRecord,
} from '../../../supervisor/sandboxes/idle-plan.ts';

const times = { pause: 100, stop: 1000, expire: 10_000 };
const at = (status: IdleRecord['status']): IdleRecord => ({ status, persistent: true, lastActiveAt: 50_000 });

describe('idle plan', () => {
  it('pauses, stops and expires on the profile’s times, all counted from the last activity', () => {
    expect(idlePlan(at('idle'), times, 0, true, 50_099)).toEqual({ action: 'none', dueAt: 50_100 });
    expect(idlePlan(at('idle'), times, 0, true, 50_100)).toEqual({ action: 'pause', dueAt: 51_000 });
    expect(idlePlan(at('paused'), times, 0, true, 50_999)).toEqual({ action: 'none', dueAt: 51_000 });
    expect(idlePlan(at('paused'), times, 0, true, 51_000)).toMatchObject({ action: 'stop' });
    expect(idlePlan(at('resumable'), times, 0, true, 59_999)).toEqual({ action: 'none', dueAt: 60_000 });
    expect(idlePlan(at('resumable'), times, 0, true, 60_000)).toMatchObject({ action: 'expire' });
    expect(idlePlan(at('expired'), times, 0, true, 1e12)).toEqual({ action: 'none', dueAt: null });
  });

  it('never touches a session in which something is live, however long', () => {
    for (const status of ['active', 'idle', 'paused'] as const) {
      expect(idlePlan(at(status), times, 1, true, 1e12)).toEqual({ action: 'none', dueAt: null });
    }
  });

  it('goes from idle to stopped where the engine cannot pause', () => {
    expect(idlePlan(at('idle'), times, 0, false, 50_100)).toEqual({ action: 'none', dueAt: 51_000 });
    expect(idlePlan(at('idle'), times, 0, false, 51_000)).toMatchObject({ action: 'stop' });
  });

  it('does nothing early when the clock went backwards', () => {
    expect(idlePlan(at('resumable'), times, 0, true, 0)).toMatchObject({ action: 'none' });
  });

  it('takes the times from the profile and fills in the rest', () => {
    const profile = ProfileSchema.parse({
      name: 'counter',
      agent: { protocol: 'handler', entry: 'agent.py' },
      idle: { pause: '2s' },
    });
    expect(idleTimes(profile)).toEqual({ pause: 2000, stop: 3_600_000, expire: 2_592_000_000 });
  });

  it('knows what a session is once its containers are gone', () => {
    expect(statusWithoutSandbox({ persistent: true, generation: 0 })).toBe('created');
    expect(statusWithoutSandbox({ persistent: true, generation: 2 })).toBe('resumable');
    expect(statusWithoutSandbox({ persistent: false, generation: 2 })).toBe('expired');
  });
});
