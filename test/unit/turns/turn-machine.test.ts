import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { TurnProgress } from '../../../sidecar/wire.ts';
import { failedOutcome, terminatedOutcome } from '../../../supervisor/turns/turn-outcomes.ts';
import { step } from '../../../supervisor/turns/turn-machine.ts';
import type { TurnOutcome } from '../../../supervisor/turns/turn-records.ts';
import {
  type Clock,
  type Observation,
  type Phase,
  type Transition,
  type TurnState,
  initialState,
} from '../../../supervisor/turns/turn-state.ts';

const START = 1_000_000;
const TIMEOUT_MS = 60_000;
const NEW_TURN = {
  status: 'queued',
  startedAt: null,
  launchedAt: null,
  timeoutMs: TIMEOUT_MS,
  cancelRequested: false,
} as const;
const NO_REPORT: TurnProgress = {
  state: 'running',
  stdout: 0,
  stderr: 0,
  result: 0,
  exitCode: null,
  worker: null,
  workerDied: false,
  limits: [],
  diskFull: false,
  damage: null,
};
const RUNNING = NO_REPORT;
const ACCEPTED: TurnProgress = { ...NO_REPORT, state: 'accepted' };
const ABSENT: TurnProgress = { ...NO_REPORT, state: 'absent' };
const ENDED: TurnProgress = { ...NO_REPORT, state: 'ended', exitCode: 0 };
const EXIT = { why: 'the container ended because it ran out of memory', limits: ['memory'] } as const;
const SUCCEEDED: TurnOutcome = { status: 'succeeded', exitCode: 0, output: null, error: null };
const DONE: Observation = { saw: 'done' };
const STARTED: Observation = { saw: 'started', deadline: START + TIMEOUT_MS };
const STORED: Observation = { saw: 'stored', isComplete: true, isOverLimit: false };

/** So many ms after the start of the turn. */
function at(ms: number, rest: Partial<Clock> = {}): Clock {
  return { now: START + ms, monotonic: ms, isPaused: false, isFrozen: false, ...rest };
}

/** A turn that was launched and runs. */
function given(phase: Phase, rest: Partial<TurnState> = {}): TurnState {
  const started = { ...NEW_TURN, status: 'running', startedAt: START, launchedAt: START } as const;
  return { ...initialState(started, START), isAttached: true, ...rest, phase };
}

function storing(report: TurnProgress, rest: Partial<TurnState> = {}): TurnState {
  return given({ name: 'storing', report, exitSeen: rest.agentExit ?? null }, rest);
}

function watching(rest: Partial<TurnState> = {}, isResuming = false): TurnState {
  return given({ name: 'watching', isResuming, exitSeen: rest.agentExit ?? null }, rest);
}

function report(of: TurnProgress): Observation {
  return { saw: 'report', report: of };
}

function failed(code: HoldfastError['code'], details?: HoldfastError['details']): Observation {
  return { saw: 'failed', failure: new HoldfastError(code, 'It failed', { why: 'a reason', details }) };
}

/** The phases that these observations lead through, and the last transition. */
function walk(
  from: TurnState,
  ...observations: (Observation | [Observation, Clock])[]
): Transition & { phases: string[] } {
  let last: Transition = { state: from, work: null, signals: [] };
  const phases: string[] = [];
  for (const one of observations) {
    const [observation, clock] = Array.isArray(one) ? one : [one, at(0)];
    last = step(last.state, observation, clock);
    phases.push(last.state.phase.name);
  }
  return { ...last, phases };
}

/** The end that is being recorded. */
function outcomeOf({ state, work }: Transition): TurnOutcome {
  if (state.phase.name !== 'recording') throw new Error(`it is ${state.phase.name}`);
  expect(work).toEqual({ do: 'record-end', outcome: state.phase.outcome });
  return state.phase.outcome;
}

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
