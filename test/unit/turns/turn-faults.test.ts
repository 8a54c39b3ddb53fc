import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { failedOutcome, terminatedOutcome } from '../../../supervisor/turns/turn-outcomes.ts';
import type { TurnOutcome } from '../../../supervisor/turns/turn-records.ts';
import type { Observation, TurnState } from '../../../supervisor/turns/turn-state.ts';
import {
  START,
  TIMEOUT_MS,
  RUNNING,
  ACCEPTED,
  ENDED,
  EXIT,
  SUCCEEDED,
  DONE,
  STARTED,
  STORED,
  at,
  given,
  storing,
  watching,
  report,
  failed,
  walk,
  outcomeOf,
} from '../../fixtures/turns/turn-states.ts';

describe('a sandbox that does not pick up the turn', () => {
  const replaced = walk(watching({ agentExit: EXIT, retryMs: 800 }), report(ACCEPTED), STORED);

  test('its agent has exited: the turn is withdrawn, its request removed, and another sandbox gets it', () => {
    expect(replaced.work).toEqual({ do: 'record-withdrawal' });
    const { phases, state, work } = walk(replaced.state, DONE, DONE, DONE, DONE);
    expect(phases).toEqual(['clearing', 'redispatching', 'restarting', 'launching']);
    expect(work).toEqual({ do: 'launch' });
    expect(state).toMatchObject({ agentExit: null, isLaunched: false, replacement: null, retryMs: 50 });
  });

  test('a failure on the way is tried again from the step that is missing', () => {
    const withdrawing = walk(replaced.state, failed('no_space'));
    expect(withdrawing).toMatchObject({
      work: { do: 'wait' },
      state: { isWaitingForSpace: true, refusals: 1 },
    });
    expect(walk(withdrawing.state, DONE).work).toEqual({ do: 'record-withdrawal' });
    const clearing = walk(replaced.state, DONE, failed('connection_closed'), DONE);
    expect(clearing.phases).toEqual(['clearing', 'retrying', 'attaching']);
    const { phases } = walk(
      clearing.state,
      { saw: 'attached', agentExit: null },
      DONE,
      failed('engine_unavailable'),
      DONE,
      { saw: 'attached', agentExit: null },
    );
    expect(phases).toEqual(['clearing', 'redispatching', 'retrying', 'attaching', 'clearing']);
  });

  test('a damaged run directory: its agent is ended first, and a passing error of the engine is retried', () => {
    const launching = given({ name: 'launching' }, { isLaunched: false });
    const damaged = failed('sandbox_lost', { runDirectory: 'damaged' });
    const ending = walk(launching, damaged, DONE);
    expect(ending.phases).toEqual(['withdrawing', 'ending-agent']);
    const retrying = walk(ending.state, failed('engine_unavailable'), DONE);
    expect(retrying.phases).toEqual(['retrying', 'ending-agent']);
    const { phases } = walk(retrying.state, DONE, { saw: 'attached', agentExit: EXIT }, DONE, DONE, DONE);
    expect(phases).toEqual(['attaching', 'clearing', 'redispatching', 'restarting', 'launching']);
  });

  test('a turn that is terminated meanwhile gets no other sandbox', () => {
    const { state } = walk(replaced.state, { saw: 'cancel-requested' });
    expect(outcomeOf(walk(state, DONE))).toEqual(terminatedOutcome('cancelled', null));
    expect(outcomeOf(walk(replaced.state, [DONE, at(TIMEOUT_MS)])).status).toBe('timeout');
  });

  test('a turn fails after three of them, with the reason of the last', () => {
    const third = walk(storing(ACCEPTED, { agentExit: EXIT, refusals: 2 }), STORED);
    expect(outcomeOf(third).error?.data).toMatchObject({
      code: 'sandbox_failed',
      why: 'the container ended because it ran out of memory; 3 sandboxes were tried',
      next: expect.stringContaining('limits') as string,
    });
  });

  test('its runner leaves the request for 30 s: the agent is ended; a request picked up meanwhile is lost', () => {
    const first = walk(storing(ACCEPTED), [STORED, at(100)]);
    expect(first).toMatchObject({ work: { do: 'report' }, state: { waitingSince: 100 } });
    const soon = walk(first.state, [report(ACCEPTED), at(30_000)], [STORED, at(30_099)]);
    expect(soon.work).toEqual({ do: 'report', waitMs: 1000 });
    const overdue = walk(soon.state, [report(ACCEPTED), at(30_100)], [STORED, at(30_100)]);
    expect(overdue).toMatchObject({ work: { do: 'end-agent' }, signals: [{ do: 'log', level: 'warn' }] });
    const ended = walk(overdue.state, DONE);
    expect(ended.work).toEqual({ do: 'report', waitMs: 0 });
    expect(walk(ended.state, report(ACCEPTED), STORED).work).toEqual({ do: 'record-withdrawal' });
    expect(outcomeOf(walk(ended.state, report(RUNNING), STORED)).error?.data.code).toBe('sandbox_lost');
  });

  test.each([
    ['the start of the program', RUNNING, {}],
    ['a pause', ACCEPTED, { isPaused: true }],
    ['a freeze', ACCEPTED, { isFrozen: true }],
  ])('%s begins the 30 s again', (_, of, clock) => {
    const { state } = walk(storing(of, { waitingSince: 0 }), [STORED, at(40_000, clock)]);
    expect(state).toMatchObject({ phase: { name: 'watching' }, waitingSince: null });
  });
});

describe('a turn that is terminated', () => {
  test('by its deadline, which the time of a pause does not bring nearer', () => {
    const paused = walk(
      storing(RUNNING),
      [STORED, at(10_000)],
      [report(RUNNING), at(30_000, { isPaused: true })],
      [STORED, at(30_000)],
    );
    expect(paused.state.pausedMs).toBe(20_000);
    const before = walk(paused.state, [report(RUNNING), at(79_999)], [STORED, at(79_999)]);
    expect(before.work).toMatchObject({ do: 'report' });
    expect(walk(before.state, [report(RUNNING), at(80_000)], [STORED, at(80_000)]).work).toMatchObject({
      do: 'kill',
    });
  });

  test.each([
    ['the machine sleeps for a night', 9 * 3_600_000],
    ['its clock is set forward by days', 3 * 86_400_000],
    ['its clock is set back by days', -3 * 86_400_000],
  ])('by its deadline, of which nothing is lost or won when %s', (_, jump) => {
    const set = (ms: number) => at(ms, { now: START + ms + jump });
    const jumped = walk(
      storing(RUNNING),
      [STORED, at(10_000)],
      [report(RUNNING), set(10_000)],
      [STORED, set(10_000)],
    );
    expect(jumped.state.termination).toBeNull();
    const before = walk(jumped.state, [report(RUNNING), set(TIMEOUT_MS - 1)], [STORED, set(TIMEOUT_MS - 1)]);
    expect(before.work).toMatchObject({ do: 'report' });
    expect(walk(before.state, [report(RUNNING), set(TIMEOUT_MS)]).state.termination).toBe('timeout');
  });

  test('by its deadline, which a clock that is set back before its start does not bring nearer', () => {
    const set = (ms: number) => at(ms, { now: START + ms });
    // It was queued an hour later by the clock of then.
    const queued = { ...given({ name: 'starting' }), checkedAt: START + 3_600_000 };
    const { state } = walk(queued, [STARTED, set(0)], [report(RUNNING), set(10)], [STORED, set(10)]);
    expect(state).toMatchObject({ termination: null, pausedMs: 0 });
  });

  test('by too much output: at once where more is there than may be stored, else when it runs on', () => {
    const cut: Observation = { saw: 'stored', isComplete: false, isOverLimit: true };
    const over: Observation = { saw: 'stored', isComplete: true, isOverLimit: true };
    expect(walk(storing(RUNNING), cut).work).toMatchObject({ do: 'kill' });
    expect(walk(storing(RUNNING), over).work).toMatchObject({ do: 'kill' });
    expect(outcomeOf(walk(storing(ENDED), cut, STORED, DONE)).error?.data.code).toBe('output_limit');
    expect(walk(storing(ENDED), over, over).phases.at(-1)).toBe('concluding');
  });

  test('its end is recorded with the exit code', () => {
    const final = { ...ENDED, exitCode: 143 };
    expect(outcomeOf(walk(storing(final, { termination: 'cancelled' }), STORED, STORED, DONE))).toEqual(
      terminatedOutcome('cancelled', 143),
    );
  });

  test('what it left is ended before its end is recorded, unless its container has taken it along', () => {
    const { phases, work, state } = walk(storing(ENDED, { termination: 'timeout' }), STORED, STORED);
    expect([phases.at(-1), work]).toEqual(['sweeping', { do: 'sweep' }]);
    expect(walk(state, failed('sandbox_lost'), DONE).work).toEqual({ do: 'attach' });
    // An error that stays must not keep the turn from its end.
    expect(outcomeOf(walk(state, failed('engine_error'))).status).toBe('timeout');
    const alone = storing(ENDED, { termination: 'timeout', agentExit: EXIT });
    expect(walk(alone, STORED, STORED).phases).not.toContain('sweeping');
    expect(walk(storing(ENDED), STORED, STORED).phases).not.toContain('sweeping');
  });

  test('is killed every second with what is left of 5 s of grace, and after 10 s its container is ended', () => {
    const first = walk(storing(RUNNING, { termination: 'cancelled' }), [STORED, at(0)]);
    expect(first.work).toEqual({ do: 'kill', graceMs: 5000 });
    const watched = walk(first.state, DONE);
    expect(watched.work).toEqual({ do: 'report', waitMs: 1000 });
    const early = walk(watched.state, report(RUNNING), [STORED, at(999)]);
    expect(early.work).toEqual({ do: 'report', waitMs: 1000 });
    expect(walk(early.state, report(RUNNING), [STORED, at(1000)]).work).toEqual({
      do: 'kill',
      graceMs: 4000,
    });
    expect(walk(early.state, report(RUNNING), [STORED, at(9000)]).work).toEqual({ do: 'kill', graceMs: 0 });
    const late = walk(early.state, report(RUNNING), [STORED, at(10_000)]);
    expect(late.work).toEqual({ do: 'end-agent' });
    expect(outcomeOf(walk(late.state, DONE, report(RUNNING), STORED))).toEqual(
      terminatedOutcome('cancelled', null),
    );
  });

  test('a container that could not be ended is tried again', () => {
    const state = storing(RUNNING, { termination: 'cancelled', killingSince: 0 });
    const { phases, work } = walk(
      state,
      [STORED, at(10_000)],
      failed('engine_unavailable'),
      DONE,
      { saw: 'attached', agentExit: null },
      report(RUNNING),
      [STORED, at(11_000)],
    );
    expect(phases).toEqual(['ending-agent', 'retrying', 'attaching', 'watching', 'storing', 'ending-agent']);
    expect(work).toEqual({ do: 'end-agent' });
  });
});

describe('a full disk', () => {
  test('output waits for space', () => {
    const result = walk(storing(RUNNING), failed('no_space'));
    expect(result).toMatchObject({
      work: { do: 'wait' },
      state: { isWaitingForSpace: true, phase: { name: 'retrying' } },
    });
  });

  test.each(['cancelled', 'timeout', 'output_limit'] as const)(
    'does not keep a turn from being killed because of %s',
    (termination) => {
      const result = walk(storing(RUNNING, { termination }), failed('no_space'));
      expect(result.work).toMatchObject({ do: 'kill' });
      expect(result.signals).toMatchObject([{ do: 'log', level: 'warn' }]);
    },
  );

  test('an ended turn that was cancelled ends without the rest of its output; others wait with theirs', () => {
    const full = failed('no_space');
    const cancelled = walk(storing(ENDED, { termination: 'cancelled' }), full, full, DONE);
    expect(outcomeOf(cancelled)).toEqual(terminatedOutcome('cancelled', 0));
    for (const termination of ['timeout', null] as const) {
      expect(walk(storing(ENDED, { termination }), full).phases).toEqual(['retrying']);
      expect(walk(storing(ENDED, { termination }), STORED, full).phases).toEqual(['draining', 'retrying']);
    }
  });

  test('the end of a turn is stored when there is space, however long that takes', () => {
    let state = given({ name: 'recording', outcome: SUCCEEDED, tries: 1 });
    for (let nth = 0; nth < 20; nth += 1) {
      const waiting = walk(state, failed('no_space'));
      expect(waiting).toMatchObject({ work: { do: 'wait', ms: 2000 }, state: { isWaitingForSpace: true } });
      const again = walk(waiting.state, DONE);
      expect(outcomeOf(again)).toBe(SUCCEEDED);
      state = again.state;
    }
    expect(walk(state, DONE).phases).toEqual(['removing']);
  });
});

describe('errors', () => {
  test.each(['connection_closed', 'sandbox_lost', 'engine_unavailable', 'timeout', 'no_space'] as const)(
    '%s is retried on a new connection, after a wait that doubles up to 2 s',
    (code) => {
      let state = watching();
      for (const ms of [50, 100, 200, 400, 800, 1600, 2000, 2000]) {
        const retrying = walk(state, failed(code));
        expect(retrying.work).toEqual({ do: 'wait', ms });
        const followed = walk(retrying.state, DONE, { saw: 'attached', agentExit: null });
        expect(followed.phases).toEqual(['attaching', 'watching']);
        state = followed.state;
      }
    },
  );

  test('a launch whose answer was lost is repeated', () => {
    const launching = given({ name: 'launching' }, { isLaunched: false });
    const { work } = walk(launching, failed('connection_closed'), DONE, { saw: 'attached', agentExit: null });
    expect(work).toEqual({ do: 'launch' });
  });

  test('other errors end the turn', () => {
    expect(outcomeOf(walk(watching(), failed('engine_error')))).toMatchObject({
      status: 'failed',
      error: { data: { code: 'engine_error' } },
    });
  });

  test('an outcome that cannot be stored for itself gives way to the error after three tries', () => {
    let state = given({ name: 'recording', outcome: SUCCEEDED, tries: 1 });
    const outcomes: TurnOutcome[] = [];
    for (let nth = 0; nth < 4; nth += 1) {
      const again = walk(state, failed('internal'), DONE);
      outcomes.push(outcomeOf(again));
      state = again.state;
    }
    const refused = failedOutcome(new HoldfastError('internal', 'It failed', { why: 'a reason' }));
    expect(outcomes).toEqual([SUCCEEDED, SUCCEEDED, refused, refused]);
  });

  test('a turn whose directory cannot be removed has ended all the same', () => {
    const result = walk(given({ name: 'removing' }), failed('connection_closed'));
    expect(result).toMatchObject({
      work: null,
      signals: [{ level: 'debug' }],
      state: { phase: { name: 'ended' } },
    });
  });

  test('a result that does not belong to the phase ends the turn instead of blocking its session', () => {
    const wrong: [TurnState, Observation][] = [
      [watching(), DONE],
      [watching(), STORED],
      [watching(), { saw: 'begin' }],
      [given({ name: 'dispatching' }), report(RUNNING)],
      [storing(RUNNING), { saw: 'attached', agentExit: null }],
      [storing(RUNNING), { saw: 'started', deadline: 1 }],
      [storing(RUNNING), { saw: 'outcome', outcome: SUCCEEDED }],
      [given({ name: 'withdrawing' }), DONE],
    ];
    for (const [state, observation] of wrong) {
      expect(outcomeOf(walk(state, observation)).error?.data.code).toBe('internal');
    }
  });
});
