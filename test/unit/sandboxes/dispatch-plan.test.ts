import { describe, expect, it } from 'vitest';
import type { ObservedSandbox, ObservedContainer, ContainerState } from '../../../supervisor/engine/port.ts';
import { planDispatch, type DispatchRecord } from '../../../supervisor/sandboxes/dispatch-plan.ts';

const side = (state: ContainerState, generation = 3): ObservedContainer => ({
  objectId: `${state}-${String(generation)}`,
  state,
  generation,
  specHash: 'spec',
  exitCode: null,
  oomKilled: false,
});
const seen = (
  agent: ObservedContainer | null,
  sidecar: ObservedContainer | null = side('running'),
): ObservedSandbox => ({
  sessionId: 'ses-aaaaaaaaaaaaaaaa',
  agent,
  sidecar,
});
const record = (over: Partial<DispatchRecord> = {}): DispatchRecord => ({
  status: 'idle',
  persistent: true,
  generation: 3,
  homeGeneration: 3,
  codeVersion: 1,
  image: 'a',
  ...over,
});
const wanted = { codeVersion: 1, image: 'a', activeWork: 0 };
const steps = (plan: { steps: readonly { do: string }[] }): string[] => plan.steps.map((step) => step.do);

describe('dispatch', () => {
  it('reuses a running agent and touches nothing', () => {
    expect(planDispatch(record(), seen(side('running')), wanted)).toEqual({
      case: 'reuse',
      reused: true,
      steps: [],
    });
  });

  it('brings back only the sidecar when that is gone', () => {
    expect(steps(planDispatch(record(), seen(side('running'), null), wanted))).toEqual(['start-sidecar']);
    expect(steps(planDispatch(record(), seen(side('running'), side('exited')), wanted))).toEqual([
      'start-sidecar',
    ]);
  });

  it('thaws a paused agent, before anything else', () => {
    const plan = planDispatch(record({ status: 'paused' }), seen(side('paused'), null), wanted);
    expect(plan).toMatchObject({ case: 'unpause', reused: true });
    expect(steps(plan)).toEqual(['thaw', 'start-sidecar']);
  });

  it('makes a first sandbox for a session that never had one', () => {
    const plan = planDispatch(
      record({ status: 'created', generation: 0, codeVersion: null }),
      seen(null, null),
      wanted,
    );
    expect(plan).toMatchObject({ case: 'create', reused: false });
    expect(plan.steps).toEqual([{ do: 'create-workspace' }, { do: 'start' }, { do: 'setup', hook: 'run' }]);
  });

  it('re-attaches the workspace of a persistent session, with the resume hook in its place', () => {
    const plan = planDispatch(record({ status: 'resumable' }), seen(null, null), wanted);
    expect(plan.case).toBe('reattach');
    expect(plan.steps).toEqual([
      { do: 'create-workspace' },
      { do: 'start' },
      { do: 'setup', hook: 'resume' },
    ]);
  });

  it('resurrects an expired persistent session without emptying its workspace', () => {
    const plan = planDispatch(record({ status: 'expired' }), seen(null, null), wanted);
    expect(plan.case).toBe('resurrect');
    expect(steps(plan)).not.toContain('clear-workspace');
  });

  it('gives an ephemeral session an empty workspace before its agent starts', () => {
    const plan = planDispatch(record({ persistent: false, status: 'expired' }), seen(null, null), wanted);
    expect(plan.case).toBe('fresh');
    expect(steps(plan)).toEqual(['create-workspace', 'clear-workspace', 'start', 'setup']);
  });

  it.each(['exited', 'created', 'lost', 'removing'] as const)('replaces an agent that is %s', (state) => {
    const plan = planDispatch(record({ status: 'resumable' }), seen(side(state)), wanted);
    expect(plan.reused).toBe(false);
    expect(steps(plan)[0]).toBe('remove-agent');
  });

  it('never reuses an agent of another generation', () => {
    for (const generation of [1, 2, 4]) {
      const plan = planDispatch(record(), seen(side('running', generation)), wanted);
      expect(plan.reused).toBe(false);
      expect(steps(plan)[0]).toBe('remove-agent');
    }
  });

  it('replaces an agent that runs older code, unless something is live in it', () => {
    const newer = { ...wanted, codeVersion: 2 };
    expect(steps(planDispatch(record(), seen(side('running')), newer))).toEqual([
      'remove-agent',
      'create-workspace',
      'start',
      'setup',
    ]);
    expect(planDispatch(record(), seen(side('running')), { ...newer, activeWork: 1 })).toMatchObject({
      case: 'reuse',
      reused: true,
    });
    expect(
      planDispatch(record({ status: 'paused' }), seen(side('paused')), { ...newer, activeWork: 1 }),
    ).toMatchObject({ case: 'unpause' });
  });

  it('replaces an agent from another image, unless something is live in it or its image was not recorded', () => {
    const prepared = { ...wanted, image: 'b' };
    const running = seen(side('running'));
    expect(steps(planDispatch(record(), running, prepared))[0]).toBe('remove-agent');
    expect(planDispatch(record(), running, { ...prepared, activeWork: 1 })).toMatchObject({ case: 'reuse' });
    expect(planDispatch(record({ image: null }), running, prepared)).toMatchObject({ case: 'reuse' });
  });

  it('replaces an agent in which `setup.resume` may have been interrupted, whatever waits for it', () => {
    for (const state of ['running', 'paused'] as const)
      for (const activeWork of [0, 1]) {
        const plan = planDispatch(record({ homeGeneration: 2 }), seen(side(state)), {
          ...wanted,
          activeWork,
        });
        expect(plan).toMatchObject({ case: 'reattach', reused: false });
        expect(steps(plan)).toEqual(['remove-agent', 'create-workspace', 'start', 'setup']);
      }
  });

  it('reuses an agent that was not made ready where no `setup.resume` runs: the first one, or an ephemeral one', () => {
    for (const over of [{ homeGeneration: 0 }, { homeGeneration: 2, persistent: false }]) {
      expect(planDispatch(record(over), seen(side('running')), wanted)).toMatchObject({ case: 'reuse' });
    }
  });

  it('has one plan for every state there can be, and starts at most one agent', () => {
    const states: (ContainerState | null)[] = [
      null,
      'created',
      'running',
      'paused',
      'exited',
      'removing',
      'lost',
    ];
    for (const agent of states)
      for (const sidecar of states)
        for (const persistent of [true, false])
          for (const generation of [0, 3])
            for (const codeVersion of [1, 2]) {
              const plan = planDispatch(
                record({ persistent, generation, status: 'resumable' }),
                seen(agent === null ? null : side(agent), sidecar === null ? null : side(sidecar)),
                { ...wanted, codeVersion },
              );
              const starts = steps(plan).filter((step) => step === 'start').length;
              expect(starts).toBe(plan.reused ? 0 : 1);
              if (starts === 1 && agent !== null) expect(steps(plan)[0]).toBe('remove-agent');
              if (persistent) expect(steps(plan)).not.toContain('clear-workspace');
            }
  });
});
