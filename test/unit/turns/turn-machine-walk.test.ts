import { expect, test } from 'vitest';
import { step } from '../../../supervisor/turns/turn-machine.ts';
import {
  type Observation,
  type Phase,
  type Transition,
  type TurnState,
  type Work,
  initialState,
} from '../../../supervisor/turns/turn-state.ts';
import type { TurnOutcome } from '../../../supervisor/turns/turn-records.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { ModelSandbox } from '../../fixtures/turns/model-sandbox.ts';
import { soakCount } from '../../setup/run-length.ts';

const WALKS = soakCount(1200, 30_000);
/** Afterwards nothing fails any more, and nobody leaves. */
const HOSTILE_STEPS = 60;
/** A turn ends by itself, at its deadline (20 s, polled every second or less), or when it is killed (10 s). */
const MOST_STEPS = 600;

interface Walked {
  readonly sandbox: ModelSandbox;
  readonly phases: ReadonlySet<Phase['name']>;
  readonly trace: readonly string[];
}

/** One turn, through as many supervisors as it takes. Throws where an effect comes that must not. */
function walkTurn(seed: number): Walked {
  const random = new SeededRandom(seed);
  const sandbox = new ModelSandbox(random);
  const phases = new Set<Phase['name']>();
  const trace: string[] = [];
  let state: TurnState = initialState(sandbox.row, sandbox.clock().now);
  let work: Work | null = null;

  const observe = (observation: Observation): Transition => {
    const transition = step(state, observation, sandbox.clock());
    state = transition.state;
    phases.add(state.phase.name);
    trace.push(`${observation.saw} → ${state.phase.name}`);
    return transition;
  };
  const begin = (): void => {
    state = initialState(sandbox.row, sandbox.clock().now);
    work = observe({ saw: 'begin' }).work;
  };
  const fail = (why: string): never => {
    throw new Error(`seed ${seed}: ${why}\n${trace.join('\n')}`);
  };

  begin();
  for (let nth = 0; work !== null; nth += 1) {
    if (nth > HOSTILE_STEPS) sandbox.isHostile = false;
    if (nth > MOST_STEPS) fail('the turn does not end');
    const current: Work = work;
    if (current.do === 'launch' && sandbox.row.launchedAt !== null) fail('launched twice');
    if (['launch', 'resend'].includes(current.do) && state.termination !== null && sandbox.request === null)
      fail('a terminated turn begins');
    if (current.do === 'resend' && sandbox.row.launchedAt === null) fail('sent again before its launch');
    if (current.do === 'read-outcome' && sandbox.row.stored !== sandbox.request?.written)
      fail('output is lost');
    if (current.do === 'record-end' && isTermination(current.outcome) && sandbox.mayHaveLeftovers)
      fail('processes of a terminated turn are left');
    if (current.do === 'dispatch' && sandbox.request !== null) fail('a runner would take an earlier request');

    const waitMs = current.do === 'wait' ? current.ms : current.do === 'report' ? current.waitMs : 0;
    for (const news of sandbox.advance(Math.min(waitMs, 1 + random.below(1000)) + random.below(200))) {
      if (observe(news).work !== null) fail('two effects at a time');
    }
    const isHostile = sandbox.isHostile && random.below(30) === 0;
    if (isHostile && random.below(2) === 0) observe({ saw: 'detach-requested' });
    const result = sandbox.perform(current);
    if (isHostile && !state.isDetaching) {
      // kill -9 before anything could be learned of the effect.
      trace.push('killed');
      if (sandbox.isOver) break;
      begin();
      continue;
    }
    work = observe(result).work;
    if (state.phase.name === 'detached' && !sandbox.isOver) begin();
  }
  expectNothingMore(state, fail);
  return { sandbox, phases, trace };
}

function isTermination({ error }: TurnOutcome): boolean {
  return ['cancelled', 'timeout', 'output_limit'].includes(error?.data.code ?? '');
}

function expectNothingMore(state: TurnState, fail: (why: string) => never): void {
  if (state.phase.name !== 'ended' && state.phase.name !== 'detached') return;
  const late: Observation[] = [
    { saw: 'cancel-requested' },
    { saw: 'agent-exit', exit: { why: 'late', limits: [] } },
    { saw: 'detach-requested' },
    { saw: 'done' },
    { saw: 'stored', isComplete: false, isOverLimit: true },
  ];
  for (const observation of late) {
    const { work, signals } = step(state, observation, {
      now: 0,
      monotonic: 0,
      isPaused: false,
      isFrozen: false,
    });
    if (work !== null || signals.length > 0) fail('an effect after the end');
  }
}

test('whatever fails, exits, is cancelled or killed, a turn ends once, and its program begins once at most', () => {
  const first = seedOfRun('walks of a turn');
  const seen = new Set<Phase['name']>();
  const ends = new Map<string, number>();
  for (let nth = 0; nth < WALKS; nth += 1) {
    const { sandbox, phases, trace } = walkTurn(first + nth);
    for (const phase of phases) seen.add(phase);
    const story = `seed ${first + nth}\n${trace.join('\n')}`;
    expect(sandbox.outcomes, story).toHaveLength(1);
    expect(sandbox.begun, story).toBeLessThanOrEqual(1);
    const [outcome] = sandbox.outcomes;
    expect(outcome?.error?.data.code, story).not.toBe('internal');
    if (outcome?.status === 'succeeded') expect(sandbox.begun, story).toBe(1);
    const end = outcome?.error?.data.code ?? outcome?.status ?? '';
    ends.set(end, (ends.get(end) ?? 0) + 1);
  }
  // The walks reach every phase and every kind of end.
  expect([...seen].sort()).toEqual(
    [
      'attaching',
      'clearing',
      'concluding',
      'confirming',
      'dispatching',
      'draining',
      'ended',
      'ending-agent',
      'killing',
      'launching',
      'detached',
      'record-later',
      'recording',
      'redispatching',
      'removing',
      'restarting',
      'retrying',
      'snapshotting',
      'starting',
      'storing',
      'sweeping',
      'watching',
      'withdrawing',
    ].sort(),
  );
  expect([...ends.keys()]).toEqual(
    expect.arrayContaining([
      'succeeded',
      'failed',
      'cancelled',
      'timeout',
      'output_limit',
      'agent_failed',
      'sandbox_lost',
      'sandbox_failed',
    ]),
  );
}, 60_000);
