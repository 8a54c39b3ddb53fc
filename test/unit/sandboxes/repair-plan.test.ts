import { describe, expect, it } from 'vitest';
import { SESSION_STATUSES } from '../../../protocol/entities.ts';
import type { ObservedSandbox, ObservedContainer, ContainerState } from '../../../supervisor/engine/port.ts';
import { statusWithoutSandbox } from '../../../supervisor/sandboxes/idle-plan.ts';
import { planRepairs, type ReconcileRecord } from '../../../supervisor/sandboxes/repair-plan.ts';

const side = (state: ContainerState, over: Partial<ObservedContainer> = {}): ObservedContainer => ({
  objectId: state,
  state,
  generation: 1,
  specHash: '',
  exitCode: null,
  oomKilled: false,
  ...over,
});
const seen = (
  agent: ObservedContainer | null,
  sidecar: ObservedContainer | null = null,
): ObservedSandbox => ({
  sessionId: 'ses-aaaaaaaaaaaaaaaa',
  agent,
  sidecar,
});
const kinds = (record: ReconcileRecord | null, observed: ObservedSandbox): string[] =>
  planRepairs(record, observed).map((repair) => repair.do);

describe('reconcile', () => {
  it('has nothing to do where record and engine agree', () => {
    expect(kinds({ status: 'idle', generation: 1 }, seen(side('running')))).toEqual([]);
    expect(kinds({ status: 'active', generation: 1 }, seen(side('running')))).toEqual([]);
    expect(kinds({ status: 'paused', generation: 1 }, seen(side('paused')))).toEqual([]);
    expect(kinds({ status: 'resumable', generation: 1 }, seen(null))).toEqual([]);
    expect(kinds({ status: 'resumable', generation: 1 }, seen(null, side('running')))).toEqual([]);
    expect(kinds(null, seen(null))).toEqual([]);
  });

  it('removes what belongs to no session', () => {
    expect(kinds(null, seen(side('running')))).toEqual(['remove-sandbox']);
    expect(kinds({ status: 'deleted', generation: 1 }, seen(null, side('running')))).toEqual([
      'remove-sandbox',
    ]);
  });

  it('records a lost agent, with the reason that the engine gives', () => {
    expect(
      planRepairs(
        { status: 'idle', generation: 1 },
        seen(side('exited', { exitCode: 137, oomKilled: true })),
      ),
    ).toEqual([
      {
        do: 'record-lost',
        why: 'the container ended because it ran out of memory',
        oomKilled: true,
        exitCode: 137,
      },
      { do: 'remove-agent', why: 'the container ended because it ran out of memory' },
    ]);
    expect(kinds({ status: 'paused', generation: 1 }, seen(null))).toEqual(['record-lost']);
  });

  it('adopts what was started but not recorded', () => {
    expect(kinds({ status: 'created', generation: 1 }, seen(side('running')))).toEqual(['adopt']);
    expect(kinds({ status: 'resumable', generation: 1 }, seen(side('paused')))).toEqual([
      'adopt',
      'record-paused',
    ]);
  });

  it('removes an agent of an earlier generation and never adopts it', () => {
    expect(kinds({ status: 'resumable', generation: 2 }, seen(side('running')))).toEqual(['remove-agent']);
    expect(kinds({ status: 'idle', generation: 2 }, seen(side('running')))).toEqual([
      'record-lost',
      'remove-agent',
    ]);
  });

  it('follows a pause that was made beside us', () => {
    expect(kinds({ status: 'idle', generation: 1 }, seen(side('paused')))).toEqual(['record-paused']);
    expect(kinds({ status: 'paused', generation: 1 }, seen(side('running')))).toEqual(['record-running']);
  });

  it('is at rest after its own repairs, whatever it began with', () => {
    const states: (ContainerState | null)[] = [
      null,
      'created',
      'running',
      'paused',
      'exited',
      'removing',
      'lost',
    ];
    for (const status of SESSION_STATUSES)
      for (const agent of states)
        for (const generation of [1, 2]) {
          let record: ReconcileRecord = { status, generation };
          let observed = seen(agent === null ? null : side(agent), side('running'));
          for (const repair of planRepairs(record, observed)) {
            switch (repair.do) {
              case 'record-lost':
                record = { ...record, status: statusWithoutSandbox({ persistent: true, generation }) };
                break;
              case 'record-paused':
                record = { ...record, status: 'paused' };
                break;
              case 'record-running':
              case 'adopt':
                record = { ...record, status: 'idle' };
                break;
              case 'remove-agent':
                observed = { ...observed, agent: null };
                break;
              case 'remove-sandbox':
                observed = seen(null);
                break;
            }
          }
          expect(planRepairs(record, observed), `${status} with ${String(agent)}`).toEqual([]);
        }
  });
});
