import { describe, expect, test } from 'vitest';
import { terminatedOutcome } from '../../../supervisor/turns/turn-outcomes.ts';
import {
  type Observation,
  type Phase,
  type TurnState,
  initialState,
} from '../../../supervisor/turns/turn-state.ts';
import {
  START,
  TIMEOUT_MS,
  NEW_TURN,
  RUNNING,
  ACCEPTED,
  ABSENT,
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

describe('a turn that is next', () => {
  const queued = initialState(NEW_TURN, START);

  test.each([
    ...(['dispatching', 'snapshotting', 'starting'] as const),
    ...(['clearing', 'redispatching', 'restarting'] as const),
  ])('a cancel while it is prepared ends it as cancelled, however that ends (%s)', (name) => {
    const cancelled = terminatedOutcome('cancelled', null);
    const cancelling = walk(given({ name }), { saw: 'cancel-requested' }).state;
    expect(outcomeOf(walk(cancelling, name === 'starting' ? STARTED : DONE))).toEqual(cancelled);
    for (const code of ['cancelled', 'interrupted', 'sandbox_failed', 'engine_unavailable'] as const)
      expect(outcomeOf(walk(cancelling, failed(code)))).toEqual(cancelled);
    // Ended for another reason than its own, it has failed.
    expect(outcomeOf(walk(given({ name }), failed('interrupted')))).toMatchObject({ status: 'failed' });
  });

  test('is dispatched, gets its snapshot, starts, is launched, is followed to its end, recorded and removed', () => {
    const all = walk(
      queued,
      { saw: 'begin' },
      DONE,
      DONE,
      { saw: 'started', deadline: START + TIMEOUT_MS },
      report(ACCEPTED),
      STORED,
      report(ENDED),
      STORED,
      STORED,
      { saw: 'outcome', outcome: SUCCEEDED },
      DONE,
      DONE,
    );
    expect(all.phases).toEqual([
      'dispatching',
      'snapshotting',
      'starting',
      'launching',
      'storing',
      'watching',
      'storing',
      'draining',
      'concluding',
      'recording',
      'removing',
      'ended',
    ]);
    expect(all.work).toBeNull();
  });

  test('is not dispatched when it was cancelled', () => {
    const cancelled = initialState({ ...NEW_TURN, cancelRequested: true }, START);
    expect(outcomeOf(walk(cancelled, { saw: 'begin' })).status).toBe('cancelled');
    expect(outcomeOf(walk(queued, { saw: 'cancel-requested' }, { saw: 'begin' })).status).toBe('cancelled');
  });

  test('forgets how the agent of an earlier sandbox exited when its own is ready', () => {
    const { state } = walk(queued, { saw: 'begin' }, { saw: 'agent-exit', exit: EXIT }, DONE);
    expect(state).toMatchObject({ agentExit: null, isAttached: true, phase: { name: 'snapshotting' } });
  });

  test.each(['dispatching', 'snapshotting', 'starting'] as const)(
    'fails with every error while it is %s, also with a transient one',
    (name) => {
      for (const code of ['engine_unavailable', 'snapshot_required', 'no_space'] as const) {
        const result = walk({ ...queued, phase: { name } }, failed(code));
        expect(outcomeOf(result)).toMatchObject({ status: 'failed', error: { data: { code } } });
        expect(result.signals).toMatchObject([{ do: 'log', level: 'error', message: 'turn failed' }]);
      }
    },
  );
});

describe('signals', () => {
  const snapshotting = given({ name: 'snapshotting' });

  test('a cancel aborts the snapshot, wakes what waits, and leaves the effect under way alone', () => {
    const { state, work, signals } = walk(snapshotting, { saw: 'cancel-requested' });
    expect(state.termination).toBe('cancelled');
    expect(work).toBeNull();
    expect(signals).toEqual([{ do: 'abort-wait' }, { do: 'wake' }]);
  });

  test('the first reason for a termination stays', () => {
    expect(
      walk(given({ name: 'killing' }, { termination: 'timeout' }), { saw: 'cancel-requested' }).state,
    ).toHaveProperty('termination', 'timeout');
  });

  test('an exit of the agent wakes what waits', () => {
    const { state, signals } = walk(watching(), { saw: 'agent-exit', exit: EXIT });
    expect(state.agentExit).toBe(EXIT);
    expect(signals).toEqual([{ do: 'wake' }]);
  });

  test.each<Phase>([
    { name: 'queued' },
    { name: 'dispatching' },
    { name: 'snapshotting' },
    { name: 'starting' },
    { name: 'attaching' },
    { name: 'launching' },
    { name: 'watching', isResuming: false, exitSeen: null },
    { name: 'storing', report: RUNNING, exitSeen: null },
    { name: 'draining', final: ENDED },
    { name: 'confirming', final: ENDED, until: 1 },
    { name: 'concluding' },
    { name: 'killing' },
    { name: 'ending-agent', exit: EXIT },
    { name: 'withdrawing' },
    { name: 'clearing' },
    { name: 'redispatching' },
    { name: 'restarting' },
    { name: 'retrying' },
    { name: 'record-later', outcome: SUCCEEDED, tries: 1 },
  ])('a supervisor that shuts down detaches a turn that is $name when the effect is over', (phase) => {
    const detaching = walk(given(phase), { saw: 'detach-requested' });
    expect(detaching).toMatchObject({ work: null, signals: [{ do: 'detach' }], state: { phase } });
    for (const result of [DONE, STORED, report(ENDED), failed('no_space'), failed('internal')]) {
      expect(walk(detaching.state, result)).toMatchObject({
        work: null,
        signals: [],
        state: { phase: { name: 'detached' } },
      });
    }
  });

  test('a supervisor that shuts down removes a turn whose end is recorded, and detaches one whose end is not', () => {
    const recording = walk(given({ name: 'recording', outcome: SUCCEEDED, tries: 1 }), {
      saw: 'detach-requested',
    }).state;
    expect(walk(recording, DONE, DONE).phases).toEqual(['removing', 'ended']);
    expect(walk(recording, failed('no_space')).phases).toEqual(['detached']);
  });

  test.each(['ended', 'detached'] as const)('nothing happens to a turn that is %s', (name) => {
    for (const observation of [
      { saw: 'cancel-requested' },
      { saw: 'agent-exit', exit: EXIT },
      { saw: 'detach-requested' },
      { saw: 'begin' },
      DONE,
      STORED,
      report(ENDED),
      failed('internal'),
    ] satisfies Observation[]) {
      const result = walk(given({ name }), observation);
      expect(result.state.phase).toEqual({ name });
      expect(result).toMatchObject({ work: null, signals: [] });
    }
  });
});

describe('a supervisor that finds a started turn', () => {
  const row = { ...NEW_TURN, status: 'running', startedAt: START } as const;
  const resumed = initialState({ ...row, launchedAt: START }, START);

  test('attaches, and asks how far it is when its launch is on record', () => {
    const { phases, work } = walk(resumed, { saw: 'begin' }, { saw: 'attached', agentExit: null });
    expect(phases).toEqual(['attaching', 'watching']);
    expect(work).toEqual({ do: 'report', waitMs: 0 });
  });

  test('launches it when no launch is on record', () => {
    const { work } = walk(
      initialState({ ...row, launchedAt: null }, START),
      { saw: 'begin' },
      { saw: 'attached', agentExit: null },
    );
    expect(work).toEqual({ do: 'launch' });
  });

  test('sends a request again that nobody picked up, unless the agent has exited', () => {
    expect(walk(watching({}, true), report(ACCEPTED)).work).toEqual({ do: 'resend' });
    expect(walk(watching({ agentExit: EXIT }, true), report(ACCEPTED)).phases).toEqual(['storing']);
    expect(walk(watching({}, false), report(ACCEPTED)).phases).toEqual(['storing']);
  });

  test('learns that the agent exited while nobody listened', () => {
    const { state } = walk(resumed, { saw: 'begin' }, { saw: 'attached', agentExit: EXIT });
    expect(state).toMatchObject({ agentExit: EXIT, phase: { name: 'watching', exitSeen: EXIT } });
  });

  test('terminates one whose cancel was on record', () => {
    const cancelled = initialState({ ...row, launchedAt: START, cancelRequested: true }, START);
    const { work } = walk(
      cancelled,
      { saw: 'begin' },
      { saw: 'attached', agentExit: null },
      report(RUNNING),
      STORED,
    );
    expect(work).toEqual({ do: 'kill', graceMs: 5000 });
  });

  test('does not launch a cancelled one, which may run although its launch is not on record', () => {
    const cancelled = initialState({ ...row, cancelRequested: true }, START);
    const { state, work } = walk(cancelled, { saw: 'begin' }, { saw: 'attached', agentExit: null });
    expect(work).toEqual({ do: 'find' });
    expect(outcomeOf(walk(state, report(ABSENT)))).toEqual(terminatedOutcome('cancelled', null));
    expect(walk(state, report(RUNNING), STORED).work).toMatchObject({ do: 'kill' });
  });

  test.each(['attaching', 'retrying'] as const)(
    'a cancel that comes before the launch is decided on begins nothing (%s)',
    (name) => {
      const waiting = given({ name }, { isLaunched: false, isAttached: name === 'retrying' });
      const next: Observation = name === 'attaching' ? { saw: 'attached', agentExit: null } : DONE;
      expect(walk(waiting, next).work).toEqual({ do: 'launch' });
      const cancelled = walk(waiting, { saw: 'cancel-requested' }, next);
      expect(cancelled.work).toEqual({ do: 'find' });
      expect(outcomeOf(walk(cancelled.state, report(ABSENT)))).toEqual(terminatedOutcome('cancelled', null));
    },
  );

  test('asks again whether a cancelled one has begun when the answer was lost', () => {
    const cancelled = initialState({ ...row, cancelRequested: true }, START);
    const { phases, work } = walk(
      cancelled,
      { saw: 'begin' },
      { saw: 'attached', agentExit: null },
      failed('connection_closed'),
      DONE,
      { saw: 'attached', agentExit: null },
    );
    expect(phases.slice(1)).toEqual(['watching', 'retrying', 'attaching', 'watching']);
    expect(work).toEqual({ do: 'find' });
  });

  test('does not count what an earlier supervisor saw of it while its session was paused', () => {
    const pausedMs = 20_000;
    const running = { ...initialState({ ...row, launchedAt: START }, START, pausedMs), isAttached: true };
    const storing: TurnState = { ...running, phase: { name: 'storing', report: RUNNING, exitSeen: null } };
    expect(walk(storing, [STORED, at(TIMEOUT_MS + pausedMs - 1)]).state.termination).toBeNull();
    expect(walk(storing, [STORED, at(TIMEOUT_MS + pausedMs)]).state.termination).toBe('timeout');
  });
});

describe('what the sidecar reports', () => {
  test('a turn that runs is watched, with a long poll', () => {
    expect(walk(watching(), report(RUNNING), STORED).work).toEqual({ do: 'report', waitMs: 1000 });
  });

  test('everything a program wrote before its end is stored before the outcome is read', () => {
    const { phases, work } = walk(storing(ENDED), STORED, STORED);
    expect(phases).toEqual(['draining', 'concluding']);
    expect(work).toEqual({ do: 'read-outcome', final: ENDED });
  });

  test('an answer over 32 MB is refused unread', () => {
    const final = { ...ENDED, result: 32 * 2 ** 20 + 1 };
    expect(outcomeOf(walk(given({ name: 'draining', final }), STORED)).error?.data.code).toBe('output_limit');
  });

  test('a run directory that is gone ends the agent, and then the turn', () => {
    const ending = walk(storing(ABSENT), STORED);
    expect(ending.work).toEqual({ do: 'end-agent' });
    // What the engine tells about an end that we made is not the reason.
    const over = walk(ending.state, { saw: 'agent-exit', exit: EXIT }, DONE, report(ABSENT), STORED);
    expect(outcomeOf(over).error?.data).toMatchObject({
      code: 'sandbox_lost',
      why: expect.stringContaining('replaced its run directory') as string,
    });
  });

  test('an end that the agent hides ends the turn', () => {
    const damage = 'something else is in the place of `exit`';
    expect(outcomeOf(walk(storing({ ...RUNNING, damage }), STORED)).error?.data).toMatchObject({
      code: 'agent_failed',
      why: damage,
    });
    // One that is terminated is killed instead.
    expect(walk(storing({ ...RUNNING, damage }, { termination: 'cancelled' }), STORED).work).toMatchObject({
      do: 'kill',
    });
  });

  test('a full disk of the run directory shows', () => {
    expect(walk(storing({ ...RUNNING, diskFull: true }), STORED).state.isWaitingForSpace).toBe(true);
    expect(walk(storing(RUNNING, { isWaitingForSpace: true }), STORED).state.isWaitingForSpace).toBe(false);
  });
});

describe('an agent that exits', () => {
  test('a report from before the exit is asked for again', () => {
    const { work, state } = walk(watching(), { saw: 'agent-exit', exit: EXIT }, report(RUNNING));
    expect(work).toEqual({ do: 'report', waitMs: 0 });
    expect(state.phase).toEqual({ name: 'watching', isResuming: false, exitSeen: EXIT });
  });

  test('after a report of the time before it, nothing waits for more', () => {
    const { work } = walk(storing(RUNNING), { saw: 'agent-exit', exit: EXIT }, STORED);
    expect(work).toEqual({ do: 'report', waitMs: 0 });
  });

  test('a program that ran is lost with it, when its output is stored', () => {
    const lost = outcomeOf(walk(watching({ agentExit: EXIT }), report(RUNNING), STORED));
    expect(lost).toMatchObject({
      status: 'failed',
      error: { data: { code: 'sandbox_lost', details: { limits: ['memory'] } } },
    });
  });

  test('a program that had ended has its own outcome', () => {
    expect(walk(watching({ agentExit: EXIT }), report(ENDED), STORED, STORED).phases.at(-1)).toBe(
      'concluding',
    );
  });

  test.each(['cancelled', 'timeout', 'output_limit'] as const)(
    'the end of a turn that was to end because of %s says so',
    (termination) => {
      expect(outcomeOf(walk(storing(ACCEPTED, { agentExit: EXIT, termination }), STORED))).toEqual(
        terminatedOutcome(termination, null),
      );
    },
  );

  test.each([
    [137, 0],
    [143, 0],
    [null, 0],
  ])('an exit code of %s may be that of its container: the engine is asked', (exitCode, result) => {
    const final = { ...ENDED, exitCode, result };
    const waiting = walk(given({ name: 'draining', final }), [STORED, at(10)]);
    expect(waiting.work).toEqual({ do: 'wait', ms: 300 });
    const asking = walk(waiting.state, DONE);
    expect(asking.work).toEqual({ do: 'attach' });
    expect(outcomeOf(walk(asking.state, { saw: 'attached', agentExit: EXIT })).error?.data.code).toBe(
      'sandbox_lost',
    );
    const alive: Observation = { saw: 'attached', agentExit: null };
    expect(walk(asking.state, [alive, at(1509)]).work).toEqual({ do: 'wait', ms: 300 });
    expect(walk(asking.state, [alive, at(1510)]).work).toEqual({ do: 'read-outcome', final });
  });

  test.each([
    [137, 5],
    [1, 0],
    [0, 0],
  ])('an exit code of %s with %s bytes of an answer is that of the program', (exitCode, result) => {
    const final = { ...ENDED, exitCode, result };
    expect(walk(given({ name: 'draining', final }), STORED).work).toEqual({ do: 'read-outcome', final });
  });
});
