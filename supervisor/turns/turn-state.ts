import type { HoldfastError } from '../../protocol/errors.ts';
import type { TurnProgress } from '../../sidecar/wire.ts';
import type { AgentExit } from '../sandboxes/lifecycle.ts';
import type { TurnRow } from '../store/turns.ts';
import type { TerminationReason } from './turn-outcomes.ts';
import type { TurnOutcome } from './turn-records.ts';

export const RETRY_MS = { first: 50, most: 2000 } as const;

/** The phase of a turn: the effect that is under way. `turn-machine.ts` has the table of transitions. */
export type Phase =
  | {
      readonly name:
        | 'queued'
        | 'resumed'
        | 'dispatching'
        | 'snapshotting'
        | 'starting'
        | 'attaching'
        | 'launching'
        | 'killing'
        | 'concluding'
        | 'withdrawing'
        | 'clearing'
        | 'redispatching'
        | 'restarting'
        | 'retrying'
        | 'removing'
        | 'ended'
        | 'detached';
    }
  /** `exitSeen`: the agent's exit, if it was known when the report was requested. Such a report is the last one. */
  | { readonly name: 'watching'; readonly isResuming: boolean; readonly exitSeen: AgentExit | null }
  | { readonly name: 'storing'; readonly report: TurnProgress; readonly exitSeen: AgentExit | null }
  | { readonly name: 'ending-agent'; readonly exit: AgentExit }
  /** `final`: the report that says how the program ended. */
  | { readonly name: 'draining'; readonly final: TurnProgress }
  /** `until`: ms of the monotonic clock. */
  | { readonly name: 'confirming'; readonly final: TurnProgress; readonly until: number }
  | { readonly name: 'sweeping'; readonly outcome: TurnOutcome }
  | { readonly name: 'recording' | 'record-later'; readonly outcome: TurnOutcome; readonly tries: number };

export interface TurnState {
  readonly phase: Phase;
  /** Why the turn is to be terminated. The first reason stays. */
  readonly termination: TerminationReason | null;
  /** How the agent's container exited; null while it is not known to have exited. */
  readonly agentExit: AgentExit | null;
  /** The supervisor shuts down; the turn goes on in its sandbox. */
  readonly isDetaching: boolean;
  /** There is a connection to the sidecar, as far as known. */
  readonly isAttached: boolean;
  /** The launch is on record. */
  readonly isLaunched: boolean;
  /** The disk of the home or of the run directory is full; the turn or its end waits. */
  readonly isWaitingForSpace: boolean;
  /** ms since 1970; null before the turn has started. */
  readonly deadline: number | null;
  /**
   * What the deadline does not count, up to `checkedAt` (ms since 1970): how long the session has been paused and the machine has slept,
   * and by how much its clock was set, which may be less than 0.
   */
  readonly pausedMs: number;
  readonly checkedAt: number;
  /** The same moment on the monotonic clock; null before the first check of this supervisor. */
  readonly checkedMonotonic: number | null;
  /** Since when the request waits for the runner, ms of the monotonic clock. */
  readonly waitingSince: number | null;
  /** Sandboxes that did not pick up the turn. */
  readonly refusals: number;
  /** The turn gets another sandbox: how far that is. */
  readonly replacement: {
    readonly why: string;
    readonly isWithdrawn: boolean;
    readonly isAgentEnded: boolean;
  } | null;
  /** When the first kill was sent, and when to send the next; ms of the monotonic clock. */
  readonly killingSince: number | null;
  readonly killAgainAt: number;
  /** The next wait after a transient error. */
  readonly retryMs: number;
}

export type Observation =
  /** Signals, at any time. */
  | { readonly saw: 'cancel-requested' }
  | { readonly saw: 'agent-exit'; readonly exit: AgentExit }
  | { readonly saw: 'detach-requested' }
  /** The first observation: the turn is the next of its session. */
  | { readonly saw: 'begin' }
  /** Results of the effect under way. */
  | { readonly saw: 'done' }
  | { readonly saw: 'failed'; readonly failure: HoldfastError }
  | { readonly saw: 'started'; readonly deadline: number }
  | { readonly saw: 'attached'; readonly agentExit: AgentExit | null }
  | { readonly saw: 'report'; readonly report: TurnProgress }
  /** `isComplete`: no output beyond the limit was left out. `isOverLimit`: what is stored exceeds the limit. */
  | { readonly saw: 'stored'; readonly isComplete: boolean; readonly isOverLimit: boolean }
  | { readonly saw: 'outcome'; readonly outcome: TurnOutcome };

/** Effects with a result, which is the next observation. */
export type Work =
  | {
      readonly do:
        | 'dispatch'
        | 'snapshot'
        | 'record-start'
        | 'attach'
        | 'launch'
        | 'resend'
        /** Reports how far the turn came, and begins nothing: `absent` where nothing of it began. */
        | 'find'
        | 'end-agent'
        /** Ends every process that the turn may have left, if need be with the container. */
        | 'sweep'
        | 'record-withdrawal'
        | 'record-restart'
        | 'remove';
    }
  | { readonly do: 'report'; readonly waitMs: number }
  | { readonly do: 'store'; readonly report: TurnProgress }
  /** Stores everything that the program wrote before it ended. */
  | { readonly do: 'drain'; readonly final: TurnProgress }
  | { readonly do: 'kill'; readonly graceMs: number }
  | { readonly do: 'read-outcome'; readonly final: TurnProgress }
  | { readonly do: 'record-end'; readonly outcome: TurnOutcome }
  /** Ends early at `wake`. */
  | { readonly do: 'wait'; readonly ms: number };

/** Effects that are complete at once. */
export type Signal =
  | { readonly do: 'wake' }
  /** Ends what the effect under way waits for: a snapshot, `setup.resume`. */
  | { readonly do: 'abort-wait' }
  /** Ends every wait; nothing is stored after it. */
  | { readonly do: 'detach' }
  | {
      readonly do: 'log';
      readonly level: 'debug' | 'warn' | 'error';
      readonly message: string;
      readonly cause: HoldfastError | string;
    };

/** `work`: null while an effect is under way (after a signal), and at the end. */
export interface Transition {
  readonly state: TurnState;
  readonly work: Work | null;
  readonly signals: readonly Signal[];
}

export interface Clock {
  /** ms since 1970. */
  readonly now: number;
  /** ms of the monotonic clock. */
  readonly monotonic: number;
  /** The session is paused: its deadline does not come nearer. */
  readonly isPaused: boolean;
  /** The agent is frozen for a snapshot: it cannot pick up a request. */
  readonly isFrozen: boolean;
}

/**
 * The state in which a supervisor finds a turn. The rest of it is in the run directory. `now`: ms since 1970. `pausedMs`: how long its
 * session was paused since the turn started.
 */
export function initialState(
  turn: Pick<TurnRow, 'status' | 'startedAt' | 'launchedAt' | 'timeoutMs' | 'cancelRequested'>,
  now: number,
  pausedMs = 0,
): TurnState {
  return {
    phase: { name: turn.status === 'queued' ? 'queued' : 'resumed' },
    termination: turn.cancelRequested ? 'cancelled' : null,
    agentExit: null,
    isDetaching: false,
    isAttached: false,
    isLaunched: turn.launchedAt !== null,
    isWaitingForSpace: false,
    deadline: turn.startedAt === null ? null : turn.startedAt + turn.timeoutMs,
    pausedMs,
    checkedAt: now,
    checkedMonotonic: null,
    waitingSince: null,
    refusals: 0,
    replacement: null,
    killingSince: null,
    killAgainAt: 0,
    retryMs: RETRY_MS.first,
  };
}
