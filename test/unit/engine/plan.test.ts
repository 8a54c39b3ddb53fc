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

describe('the plan to start a sandbox', () => {
  test('without containers, both are created, the agent in the namespace of the sidecar', () => {
    expect(planSandbox([], wanted)).toEqual({
      remove: [],
      sidecar: { do: 'create' },
      agent: { do: 'create' },
      namespaceOwner: null,
    });
  });

  test('both containers that match are kept', () => {
    const plan = planSandbox([sidecar, agent], wanted);
    expect(plan).toMatchObject({
      remove: [],
      sidecar: { do: 'keep', id: 'S' },
      agent: { do: 'keep', id: 'A' },
    });
  });

  test('a paused agent is unpaused', () => {
    const plan = planSandbox([sidecar, { ...agent, state: 'paused' }], wanted);
    expect(plan.agent).toEqual({ do: 'unpause', id: 'A' });
  });

  test('a sidecar of an earlier generation is kept; an agent of an earlier generation is removed first', () => {
    const plan = planSandbox(
      [
        { ...sidecar, generation: 1 },
        { ...agent, generation: 2 },
      ],
      wanted,
    );
    expect(plan).toMatchObject({ remove: ['A'], sidecar: { do: 'keep', id: 'S' }, agent: { do: 'create' } });
  });

  test('the next sidecar of a dead one joins the running agent', () => {
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

  test('other program files replace both containers', () => {
    const plan = planSandbox([sidecar, agent], { ...wanted, sidecarHash: 's2', agentHash: 'a2' });
    expect(plan).toEqual({
      remove: ['A', 'S'],
      sidecar: { do: 'create' },
      agent: { do: 'create' },
      namespaceOwner: null,
    });
  });

  test('when only the sidecar is wanted, the agent is left alone in any state', () => {
    const only = { ...wanted, wantsAgent: false };
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
    'a container that is %s is removed first',
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
