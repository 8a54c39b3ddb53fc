import { HoldfastError } from '../../protocol/errors.ts';
import type { TurnProgress } from '../../sidecar/wire.ts';
import type { AgentExit } from '../sandboxes/lifecycle.ts';
import { isTransient } from '../sandboxes/transient-errors.ts';
import {
  type TerminationReason,
  answerTooLargeOutcome,
  failedOutcome,
  runDirectoryDamagedOutcome,
  sandboxLostOutcome,
  terminatedOutcome,
} from './turn-outcomes.ts';
import type { TurnOutcome } from './turn-records.ts';
import {
  type Clock,
  type Observation,
  type Phase,
  RETRY_MS,
  type Signal,
  type Transition,
  type TurnState,
  type Work,
} from './turn-state.ts';

const POLL_MS = 1000;
/** A larger result of a handler is refused: it belongs in a file. */
const RESULT_BYTES = 32 * 1024 * 1024;
/** Exit codes after TERM or KILL, also when the engine ends the container. */
const ENDED_BY_SIGNAL: ReadonlySet<number | null> = new Set([143, 137, null]);
/** How long after its turn a container may end and count as the cause. */
const CONTAINER_END_MS = 1500;
const CONTAINER_CHECK_MS = 300;
/** Time between TERM and KILL. */
const KILL_GRACE_MS = 5000;
/** A turn that has not ended after this is ended with its container. */
const KILL_TIMEOUT_MS = 10_000;
/** Signals are repeated: the runner may have been busy, or the sidecar was replaced. */
const REPEAT_KILL_MS = 1000;
/** A runner picks up a turn within milliseconds; this is for machines under heavy load. */
const PICKUP_TIMEOUT_MS = 30_000;
/** Sandboxes that are tried for one turn. */
const SANDBOXES = 3;
const RECORD_TRIES = 3;

const PREPARING: ReadonlySet<Phase['name']> = new Set([
  ...(['queued', 'dispatching', 'snapshotting', 'starting'] as const),
  ...(['clearing', 'redispatching', 'restarting'] as const),
]);

const WHY = {
  damaged: 'something in it removed or replaced its run directory, so it was ended',
  notPickedUp: 'its main process did not pick up the turn in time',
  unkillable: 'it did not end when it was killed, so its container was ended',
} as const;

/**
 * The state machine of a turn, as a pure function. `TurnRun` performs the work that a transition names and feeds its
 * result back as the next observation. One effect is under way at a time, and the phase says which. Three observations
 * may come at any time: `cancel-requested`, `agent-exit` and `detach-requested` change what is known, and wake waits.
 *
 * | phase | effect under way | its result leads to |
 * |---|---|---|
 * | queued | none | dispatching; a cancelled turn: recording |
 * | dispatching | `dispatch` | snapshotting; a cancelled turn: recording |
 * | snapshotting | `snapshot` | starting; a cancelled turn: recording |
 * | starting | `record-start` | *follow* |
 * | resumed | none: an earlier supervisor started the turn | *follow* |
 * | attaching | `attach` | *follow* |
 * | launching | `launch`; `resend` where a launch is on record | *examine* |
 * | watching | `report`; `find` for one that must not begin | *examine* |
 * | storing | `store` | *decide* |
 * | killing | `kill` | watching |
 * | ending-agent | `end-agent` | watching; for another sandbox *follow* |
 * | draining | `drain` | terminated: sweeping; ended by a signal: confirming; otherwise concluding |
 * | confirming | `wait`, then `attach` | the agent has exited: recording; not after 1.5 s: concluding |
 * | concluding | `read-outcome` | recording |
 * | sweeping | `sweep` | recording |
 * | withdrawing | `record-withdrawal` | *follow* |
 * | clearing | `remove` | redispatching |
 * | redispatching | `dispatch` | restarting |
 * | restarting | `record-restart` | *follow* |
 * | retrying | `wait` | *follow* |
 * | recording | `record-end` | removing; an error: record-later |
 * | record-later | `wait` | recording |
 * | removing | `remove` | ended, also after an error |
 * | ended, detached | none | nothing: they are final |
 *
 * - *follow* goes to what a started turn lacks. For another sandbox: withdrawing, ending-agent, attaching, clearing.
 *   Then attaching, launching, watching. A terminated turn without a launch on record is not launched: it may have begun, because
 *   a supervisor was killed before it recorded the launch, so `find` asks.
 * - *examine*: a report from before the exit of the agent leads to watching, others to storing. A resumed turn whose
 *   request nobody picked up goes to launching.
 * - *decide*: ended → draining · run directory gone → ending-agent, then recording · end hidden by the agent →
 *   recording · agent exited → recording, or withdrawing where nobody picked up the request · nobody picks it up →
 *   ending-agent · cancelled, too late, too much output → killing, after 10 s ending-agent · otherwise watching.
 *
 * A turn that is terminated while it is prepared (its sandbox, its snapshot, its start) goes to recording when the effect under way
 * ends, whether that succeeds or fails: nothing of it runs.
 *
 * Errors: before the turn has started each one leads to recording. After that transient ones lead to retrying (a
 * damaged run directory while launching: to another sandbox), others to recording. `detach-requested` leads to detached
 * before the end is recorded.
 */
export function step(state: TurnState, observation: Observation, clock: Clock): Transition {
  const { phase } = state;
  if (phase.name === 'ended' || phase.name === 'detached') return { state, work: null, signals: [] };
  switch (observation.saw) {
    case 'cancel-requested':
      return signal(terminate(state, 'cancelled'), { do: 'abort-wait' }, { do: 'wake' });
    case 'agent-exit':
      return signal({ ...state, agentExit: observation.exit }, { do: 'wake' });
    case 'detach-requested':
      return signal({ ...state, isDetaching: true }, { do: 'detach' });
    default:
  }
  // The next supervisor continues from the row and the run directory. A turn whose end is recorded is removed first.
  const isRecorded = phase.name === 'removing' || (phase.name === 'recording' && observation.saw === 'done');
  if (state.isDetaching && !isRecorded) return finish(state, 'detached');
  switch (observation.saw) {
    case 'begin':
      if (phase.name === 'resumed') return follow(state, clock);
      if (phase.name !== 'queued') break;
      return endIfTerminated(state) ?? go(state, { name: 'dispatching' }, { do: 'dispatch' });
    case 'started':
      if (phase.name !== 'starting') break;
      return endIfTerminated(state) ?? follow(counting(state, observation.deadline, clock), clock);
    case 'attached': {
      // The agent may have exited before this supervisor started, or while the engine was unreachable.
      const agentExit = state.agentExit ?? observation.agentExit;
      const attached = { ...state, isAttached: true, agentExit };
      if (phase.name === 'confirming') return confirmExit(attached, phase.final, phase.until, clock);
      if (phase.name !== 'attaching') break;
      return follow(attached, clock);
    }
    case 'report':
      if (phase.name === 'launching') {
        return examine({ ...state, isLaunched: true }, observation.report, NEW_REPORT, clock);
      }
      if (phase.name !== 'watching') break;
      return examine(state, observation.report, phase, clock);
    case 'stored': {
      const { isComplete, isOverLimit } = observation;
      const stored = isComplete ? state : terminate(state, 'output_limit');
      if (phase.name === 'draining') return settle(stored, phase.final, clock);
      if (phase.name !== 'storing') break;
      return decide(stored, phase.report, phase.exitSeen, isOverLimit, clock);
    }
    case 'outcome':
      if (phase.name !== 'concluding') break;
      return end(state, observation.outcome);
    case 'failed':
      return recover(state, observation.failure, clock);
    case 'done':
      return afterDone(state, clock);
  }
  return reject(state, observation.saw, clock);
}

/** After an effect that has no result of its own. */
function afterDone(state: TurnState, clock: Clock): Transition {
  const { phase } = state;
  const ended = isPreparing(phase) ? endIfTerminated(state) : null;
  if (ended !== null) return ended;
  switch (phase.name) {
    case 'dispatching':
      // At once: the agent may exit while the snapshot is created. The exit of an earlier one no longer counts.
      return go(
        { ...state, isAttached: true, agentExit: null },
        { name: 'snapshotting' },
        { do: 'snapshot' },
      );
    case 'snapshotting':
      return go(state, { name: 'starting' }, { do: 'record-start' });
    case 'killing':
      return watch(state, POLL_MS);
    case 'ending-agent':
      if (state.replacement !== null) {
        return follow({ ...state, replacement: { ...state.replacement, isAgentEnded: true } }, clock);
      }
      return watch({ ...state, agentExit: phase.exit }, 0);
    case 'confirming':
      return go(state, phase, { do: 'attach' });
    case 'withdrawing':
      if (state.replacement === null) break;
      return follow(
        { ...state, isLaunched: false, replacement: { ...state.replacement, isWithdrawn: true } },
        clock,
      );
    case 'clearing':
      return go(state, { name: 'redispatching' }, { do: 'dispatch' });
    case 'redispatching':
      return go(
        { ...state, isAttached: true, agentExit: null },
        { name: 'restarting' },
        { do: 'record-restart' },
      );
    case 'restarting':
      return follow({ ...state, replacement: null, retryMs: RETRY_MS.first }, clock);
    case 'retrying':
      return follow(state, clock);
    case 'sweeping':
      return end(state, phase.outcome);
    case 'recording':
      return go(state, { name: 'removing' }, { do: 'remove' });
    case 'record-later':
      return go(state, { ...phase, name: 'recording' }, { do: 'record-end', outcome: phase.outcome });
    case 'removing':
      return finish(state, 'ended');
    default:
  }
  return reject(state, 'done', clock);
}

/** *follow*: what a started turn lacks. Called after each error as well: every step on the way may be repeated. */
function follow(before: TurnState, clock: Clock): Transition {
  const state = checkDeadline(before, clock);
  const { replacement, termination } = state;
  if (replacement !== null) {
    if (termination !== null) return end(state, terminatedOutcome(termination, null));
    if (!replacement.isWithdrawn) return go(state, { name: 'withdrawing' }, { do: 'record-withdrawal' });
    if (!replacement.isAgentEnded) return endAgent(state, replacement.why);
  }
  if (!state.isAttached) return go(state, { name: 'attaching' }, { do: 'attach' });
  // Before a new runner starts, which would pick up the request for the earlier one.
  if (replacement !== null) return go(state, { name: 'clearing' }, { do: 'remove' });
  if (state.isLaunched) return watch(state, 0, true);
  if (termination === null) return go(state, { name: 'launching' }, { do: 'launch' });
  return go(state, { name: 'watching', isResuming: true, exitSeen: state.agentExit }, { do: 'find' });
}

const NEW_REPORT = { isResuming: false, exitSeen: null } as const;

/** A report came: is it the last word, or to be asked for again? */
function examine(
  state: TurnState,
  report: TurnProgress,
  { isResuming, exitSeen }: Pick<Extract<Phase, { name: 'watching' }>, 'isResuming' | 'exitSeen'>,
  clock: Clock,
): Transition {
  const { agentExit, isLaunched, termination } = state;
  if (isResuming && !isLaunched && termination !== null && report.state === 'absent') {
    return end(state, terminatedOutcome(termination, null));
  }
  // A second launch starts nothing twice: the sidecar knows the turn by its id, and repeats a waiting request only.
  if (isResuming && isLaunched && agentExit === null && report.state === 'accepted') {
    return go(state, { name: 'launching' }, { do: 'resend' });
  }
  // The report may be older than the exit: a request that was picked up since must not be repeated.
  if (agentExit !== null && exitSeen === null) return watch(state, 0);
  // The deadline before anything that waits for space on a full disk.
  return go(checkDeadline(state, clock), { name: 'storing', report, exitSeen }, { do: 'store', report });
}

/** *decide*: everything that the report counts is stored. `exitSeen`: see the phase `watching`. */
function decide(
  before: TurnState,
  report: TurnProgress,
  exitSeen: AgentExit | null,
  isOverLimit: boolean,
  clock: Clock,
): Transition {
  let state: TurnState = { ...before, isWaitingForSpace: report.diskFull };
  if (report.state === 'ended') {
    // With a fresh report: this one may lack output that was written before the end.
    return go(state, { name: 'draining', final: report }, { do: 'drain', final: report });
  }
  if (report.state === 'absent') {
    // Without the run directory that we created, nothing in the container can report to us.
    return exitSeen === null ? endAgent(state, WHY.damaged) : end(state, lostOutcome(state, exitSeen));
  }
  if (report.damage !== null && state.termination === null) {
    return end(state, runDirectoryDamagedOutcome(report.damage));
  }
  if (exitSeen !== null) {
    // A request that was never picked up is sent to another sandbox: nothing of the turn has happened.
    if (report.state === 'accepted' && state.termination === null) {
      return replace(state, exitSeen.why, true, clock);
    }
    return end(state, lostOutcome(state, exitSeen));
  }
  if (state.termination === null) {
    state = checkPickup(state, report, clock);
    if (state.waitingSince !== null && clock.monotonic - state.waitingSince >= PICKUP_TIMEOUT_MS) {
      // The turn may be picked up before the container ends: the next report shows it.
      return endAgent(state, WHY.notPickedUp);
    }
  }
  if (isOverLimit) state = terminate(state, 'output_limit');
  state = checkDeadline(state, clock);
  return state.termination === null ? watch(state, POLL_MS) : kill(state, clock);
}

/** The program has ended, and all of its output is stored. */
function settle(state: TurnState, final: TurnProgress, clock: Clock): Transition {
  if (state.termination !== null) {
    const outcome = terminatedOutcome(state.termination, final.exitCode);
    // A container that has ended took everything with it.
    if (state.agentExit !== null) return end(state, outcome);
    return go(state, { name: 'sweeping', outcome }, { do: 'sweep' });
  }
  // Whether the program was killed alone or its container with it shows a moment later.
  if (ENDED_BY_SIGNAL.has(final.exitCode) && final.result === 0) {
    return confirmExit(state, final, clock.monotonic + CONTAINER_END_MS, clock);
  }
  return conclude(state, final);
}

function confirmExit(state: TurnState, final: TurnProgress, until: number, clock: Clock): Transition {
  if (state.agentExit !== null) return end(state, lostOutcome(state, state.agentExit));
  if (clock.monotonic >= until) return conclude(state, final);
  return go(state, { name: 'confirming', final, until }, { do: 'wait', ms: CONTAINER_CHECK_MS });
}

function conclude(state: TurnState, final: TurnProgress): Transition {
  if (final.result > RESULT_BYTES) return end(state, answerTooLargeOutcome(final.result, RESULT_BYTES));
  return go(state, { name: 'concluding' }, { do: 'read-outcome', final });
}

/** Sent again and again until the turn has ended. */
function kill(before: TurnState, clock: Clock): Transition {
  const since = before.killingSince ?? clock.monotonic;
  const elapsed = Math.round(clock.monotonic - since);
  const state = { ...before, killingSince: since };
  if (elapsed >= KILL_TIMEOUT_MS) return endAgent(state, WHY.unkillable);
  if (clock.monotonic < state.killAgainAt) return watch(state, POLL_MS);
  const graceMs = Math.max(0, KILL_GRACE_MS - elapsed);
  const killAgainAt = clock.monotonic + REPEAT_KILL_MS;
  return go({ ...state, killAgainAt }, { name: 'killing' }, { do: 'kill', graceMs });
}

/** Ends the agent's container, not the sidecar, which still has to be read. The exit that is known first stays. */
function endAgent(state: TurnState, why: string): Transition {
  const exit = state.agentExit ?? { why, limits: [] };
  const message = "the agent's container is ended";
  return go(state, { name: 'ending-agent', exit }, { do: 'end-agent' }, log('warn', message, why));
}

/** The runner did not pick up the turn: nothing of it has happened, and it is sent to another sandbox, up to a few. */
function replace(state: TurnState, why: string, isAgentEnded: boolean, clock: Clock): Transition {
  const refusals = state.refusals + 1;
  if (refusals >= SANDBOXES) {
    const failure = new HoldfastError('sandbox_failed', "The agent's container does not take requests", {
      why: `${why}; ${String(SANDBOXES)} sandboxes were tried`,
      next: 'check `limits` in holdfast.yaml (a container needs some memory and processes) and `holdfast doctor`',
    });
    return fail(state, failure);
  }
  const replacement = { why, isWithdrawn: false, isAgentEnded };
  return follow({ ...state, refusals, replacement, waitingSince: null, isWaitingForSpace: false }, clock);
}

/** The effect under way failed. */
function recover(state: TurnState, failure: HoldfastError, clock: Clock): Transition {
  const { phase } = state;
  const ended = isPreparing(phase) ? endIfTerminated(state) : null;
  if (ended !== null) {
    return { ...ended, signals: [log('debug', 'a terminated turn was not prepared', failure)] };
  }
  switch (phase.name) {
    case 'queued':
    case 'dispatching':
    case 'snapshotting':
    case 'starting':
      return fail(state, failure);
    case 'recording':
    case 'record-later':
      return recordLater(state, phase, failure);
    case 'removing':
      // The run directory goes with the sandbox; until then the leftovers only use space.
      return finish(state, 'ended', log('debug', 'turn directory stays', failure));
    case 'storing':
      if (!mayLoseOutput(state, phase.report, failure)) break;
      return reportLoss(decide(state, phase.report, phase.exitSeen, false, clock), failure);
    case 'draining':
      if (!mayLoseOutput(state, phase.final, failure)) break;
      return reportLoss(settle(state, phase.final, clock), failure);
    default:
  }
  if (!isTransient(failure)) {
    if (phase.name !== 'sweeping') return fail(state, failure);
    const ended = end(state, phase.outcome);
    return { ...ended, signals: [log('error', 'what a turn left could not be ended', failure)] };
  }
  if (phase.name === 'launching' && failure.details?.['runDirectory'] === 'damaged') {
    return replace(state, failure.why ?? failure.message, false, clock);
  }
  // The sidecar, the engine or the connection is gone. The turn goes on in the agent's container: connect again.
  const retryMs = Math.min(state.retryMs * 2, RETRY_MS.most);
  return go(
    { ...state, isAttached: false, isWaitingForSpace: failure.code === 'no_space', retryMs },
    { name: 'retrying' },
    { do: 'wait', ms: state.retryMs },
    log('warn', 'connecting to a turn again', failure),
  );
}

/** Nobody has picked up the turn, and nobody can. */
function isPreparing({ name }: Phase): boolean {
  return PREPARING.has(name);
}

function endIfTerminated(state: TurnState): Transition | null {
  return state.termination === null ? null : end(state, terminatedOutcome(state.termination, null));
}

/** On a full disk the turn ends first. Then its output waits for space, unless it was cancelled: somebody waits. */
function mayLoseOutput({ termination }: TurnState, report: TurnProgress, { code }: HoldfastError): boolean {
  if (code !== 'no_space' || termination === null) return false;
  return report.state !== 'ended' || termination === 'cancelled';
}

function reportLoss(next: Transition, failure: HoldfastError): Transition {
  const loss = log('warn', 'output of a terminated turn is lost: the disk is full', failure);
  return { ...next, signals: [loss, ...next.signals] };
}

/** The end waits for space. An outcome that cannot be stored at all would block the session for ever: it is replaced. */
function recordLater(
  state: TurnState,
  { outcome, tries }: Extract<Phase, { tries: number }>,
  failure: HoldfastError,
): Transition {
  const isRefused = failure.code === 'internal' && tries >= RECORD_TRIES;
  const storable = isRefused ? failedOutcome(failure) : outcome;
  return go(
    { ...state, isWaitingForSpace: failure.code === 'no_space' },
    { name: 'record-later', outcome: storable, tries: tries + 1 },
    { do: 'wait', ms: RETRY_MS.most },
    log('error', 'the end of a turn could not be stored; retrying', failure),
  );
}

/** A result of another effect is a defect. It ends the turn, because a turn that hangs blocks its session. */
function reject(state: TurnState, saw: string, clock: Clock): Transition {
  const why = `${saw} does not belong to ${state.phase.name}`;
  return recover(state, new HoldfastError('internal', 'The turn could not be run', { why }), clock);
}

/** The turn may be running: `remove` ends its process, which nobody follows. */
function fail(state: TurnState, failure: HoldfastError): Transition {
  const ended = end(state, failedOutcome(failure));
  return { ...ended, signals: [log('error', 'turn failed', failure)] };
}

function end(state: TurnState, outcome: TurnOutcome): Transition {
  return go(state, { name: 'recording', outcome, tries: 1 }, { do: 'record-end', outcome });
}

function finish(state: TurnState, name: 'ended' | 'detached', ...signals: Signal[]): Transition {
  return { state: { ...state, phase: { name } }, work: null, signals };
}

function go(state: TurnState, phase: Phase, work: Work, ...signals: Signal[]): Transition {
  return { state: { ...state, phase }, work, signals };
}

function watch(state: TurnState, waitMs: number, isResuming = false): Transition {
  const exitSeen = state.agentExit;
  // Nothing more comes from an agent that has exited.
  return go(
    state,
    { name: 'watching', isResuming, exitSeen },
    { do: 'report', waitMs: exitSeen === null ? waitMs : 0 },
  );
}

function signal(state: TurnState, ...signals: Signal[]): Transition {
  return { state, work: null, signals };
}

function log(level: 'debug' | 'warn' | 'error', message: string, cause: HoldfastError | string): Signal {
  return { do: 'log', level, message, cause };
}

function terminate(state: TurnState, reason: TerminationReason): TurnState {
  return state.termination === null ? { ...state, termination: reason } : state;
}

function lostOutcome({ termination }: TurnState, { why, limits }: AgentExit): TurnOutcome {
  return termination === null ? sandboxLostOutcome(why, limits) : terminatedOutcome(termination, null);
}

/** The time of the turn begins: what the clocks did before does not count. */
function counting(state: TurnState, deadline: number | null, { now, monotonic }: Clock): TurnState {
  return { ...state, deadline, checkedAt: now, checkedMonotonic: monotonic };
}

/** The limit is time in which the turn could work: the time of a pause, of a machine that sleeps, and of a clock that is set is not. */
function checkDeadline(state: TurnState, { now, monotonic, isPaused }: Clock): TurnState {
  const passed = now - state.checkedAt;
  const awake = state.checkedMonotonic === null ? Math.max(0, passed) : monotonic - state.checkedMonotonic;
  const uncounted = isPaused ? passed : state.deadline === null ? 0 : passed - awake;
  const pausedMs = state.pausedMs + uncounted;
  const checked = { ...state, pausedMs, checkedAt: now, checkedMonotonic: monotonic };
  const { deadline } = state;
  return deadline !== null && now >= deadline + pausedMs ? terminate(checked, 'timeout') : checked;
}

/** A runner that does not pick up the turn is stopped, or something in the sandbox keeps requests from it. */
function checkPickup(state: TurnState, report: TurnProgress, clock: Clock): TurnState {
  const isWaiting = report.state === 'accepted' && !clock.isPaused && !clock.isFrozen;
  return { ...state, waitingSince: isWaiting ? (state.waitingSince ?? clock.monotonic) : null };
}
