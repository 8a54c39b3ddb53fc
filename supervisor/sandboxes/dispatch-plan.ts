import type { DispatchCase, SessionStatus } from '../../protocol/entities.ts';
import type { ObservedSandbox, ObservedContainer } from '../engine/port.ts';

/** What is on record about a session, as far as the decision needs it. */
export interface DispatchRecord {
  readonly status: SessionStatus;
  readonly persistent: boolean;
  /** Generation of the last sandbox; 0 when there has been none. */
  readonly generation: number;
  /** Code version that sandbox was started with. */
  readonly codeVersion: number | null;
}

export interface DispatchWanted {
  /** The profile's current version. */
  readonly codeVersion: number;
  /** Turns, execs and terminals live in the sandbox now. */
  readonly live: number;
}

/**
 * One thing for the lifecycle to do, in order. `setup` has its place after `start`: with hook `run` in a first or fresh
 * sandbox, `resume` where the workspace was there before.
 */
export type Step =
  | { readonly do: 'remove-agent' }
  | { readonly do: 'thaw' }
  | { readonly do: 'start-sidecar' }
  | { readonly do: 'create-workspace' }
  | { readonly do: 'clear-workspace' }
  | { readonly do: 'start' }
  | { readonly do: 'setup'; readonly hook: 'run' | 'resume' };

export interface Plan {
  readonly case: DispatchCase;
  /** The agent container that was there goes on. */
  readonly reused: boolean;
  readonly steps: readonly Step[];
}

/**
 * Which sandbox serves the next message. Pure: the record and what the engine shows, nothing else.
 *
 * | agent container | case |
 * |---|---|
 * | running, its code current (or something is live in it) | reuse |
 * | paused, likewise | unpause |
 * | running or paused with older code, nothing live | replaced: reattach, or fresh for an ephemeral session |
 * | gone, never there | create |
 * | gone, session expired, persistent | resurrect |
 * | gone, persistent | reattach |
 * | gone, ephemeral | fresh: the workspace is emptied first |
 */
export function planDispatch(
  record: DispatchRecord,
  observed: ObservedSandbox,
  wanted: DispatchWanted,
): Plan {
  const agent = current(observed.agent, record);
  const sidecarUp = observed.sidecar?.state === 'running';
  const sidecar: Step[] = sidecarUp ? [] : [{ do: 'start-sidecar' }];

  if (agent !== null) {
    const upToDate = record.codeVersion === wanted.codeVersion;
    if (upToDate || wanted.live > 0) {
      return agent.state === 'paused'
        ? { case: 'unpause', reused: true, steps: [{ do: 'thaw' }, ...sidecar] }
        : { case: 'reuse', reused: true, steps: sidecar };
    }
    return replace(record, observed);
  }
  return replace(record, observed);
}

/** The agent's side, when it is one that can go on: of the generation on record, and alive. */
function current(agent: ObservedContainer | null, record: DispatchRecord): ObservedContainer | null {
  if (agent?.generation !== record.generation) return null;
  return agent.state === 'running' || agent.state === 'paused' ? agent : null;
}

function replace(record: DispatchRecord, observed: ObservedSandbox): Plan {
  const remove: Step[] = observed.agent === null ? [] : [{ do: 'remove-agent' }];
  const start: Step[] = [{ do: 'create-workspace' }, { do: 'start' }];
  if (record.generation === 0) {
    return { case: 'create', reused: false, steps: [...remove, ...start, { do: 'setup', hook: 'run' }] };
  }
  if (!record.persistent) {
    return {
      case: 'fresh',
      reused: false,
      steps: [
        ...remove,
        { do: 'create-workspace' },
        { do: 'clear-workspace' },
        { do: 'start' },
        { do: 'setup', hook: 'run' },
      ],
    };
  }
  return {
    case: record.status === 'expired' ? 'resurrect' : 'reattach',
    reused: false,
    steps: [...remove, ...start, { do: 'setup', hook: 'resume' }],
  };
}
