import { describe, expect, test } from 'vitest';
import type { SandboxContainer } from '../../../supervisor/engine/docker/observation.ts';
import { planSandbox } from '../../../supervisor/engine/docker/plan.ts';
import type { DesiredSandbox } from '../../../supervisor/engine/docker/plan.ts';

const wanted: DesiredSandbox = { generation: 3, sidecarHash: 's', agentHash: 'a', wantsAgent: true };
const sidecar: SandboxContainer = {
  id: 'S',
  role: 'sidecar',
  state: 'running',
  generation: 3,
  specHash: 's',
};
const agent: SandboxContainer = { id: 'A', role: 'agent', state: 'running', generation: 3, specHash: 'a' };

describe('what has to happen so that a sandbox stands', () => {
  test('nothing there: both are created, the agent in the namespace of the sidecar', () => {
    expect(planSandbox([], wanted)).toEqual({
      remove: [],
      sidecar: { do: 'create' },
      agent: { do: 'create' },
      namespaceOwner: null,
    });
  });

  test('both as wanted: both stay', () => {
    const plan = planSandbox([sidecar, agent], wanted);
    expect(plan).toMatchObject({
      remove: [],
      sidecar: { do: 'keep', id: 'S' },
      agent: { do: 'keep', id: 'A' },
    });
  });

  test('a paused agent is thawed', () => {
    const plan = planSandbox([sidecar, { ...agent, state: 'paused' }], wanted);
    expect(plan.agent).toEqual({ do: 'thaw', id: 'A' });
  });

  test('a sidecar of an earlier generation serves the new agent; an agent of an earlier one goes first', () => {
    const plan = planSandbox(
      [
        { ...sidecar, generation: 1 },
        { ...agent, generation: 2 },
      ],
      wanted,
    );
    expect(plan).toMatchObject({ remove: ['A'], sidecar: { do: 'keep', id: 'S' }, agent: { do: 'create' } });
  });

  test('the sidecar died: its successor joins the living agent', () => {
    for (const state of ['running', 'paused'] as const) {
      const plan = planSandbox(
        [
          { ...sidecar, state: 'exited' },
          { ...agent, state },
        ],
        wanted,
      );
      expect(plan).toMatchObject({ remove: ['S'], sidecar: { do: 'create' }, namespaceOwner: 'A' });
    }
  });

  test('other program files replace both when a sandbox is wanted', () => {
    const plan = planSandbox([sidecar, agent], { ...wanted, sidecarHash: 's2', agentHash: 'a2' });
    expect(plan).toEqual({
      remove: ['A', 'S'],
      sidecar: { do: 'create' },
      agent: { do: 'create' },
      namespaceOwner: null,
    });
  });

  test('when only the sidecar is wanted, no agent is touched, whatever it is', () => {
    const only = { ...wanted, agent: false };
    const old = { ...agent, generation: 1, specHash: 'x' };
    expect(planSandbox([old], only)).toEqual({
      remove: [],
      sidecar: { do: 'create' },
      agent: { do: 'leave' },
      namespaceOwner: 'A',
    });
    const dead = { ...old, state: 'exited' } as const;
    expect(planSandbox([sidecar, dead], only)).toMatchObject({ remove: [], namespaceOwner: null });
  });

  test.each(['created', 'exited', 'removing', 'lost'] as const)(
    'a container that is %s makes room',
    (state) => {
      const plan = planSandbox(
        [
          { ...sidecar, state },
          { ...agent, state },
        ],
        wanted,
      );
      expect(plan).toEqual({
        remove: ['A', 'S'],
        sidecar: { do: 'create' },
        agent: { do: 'create' },
        namespaceOwner: null,
      });
    },
  );
});
