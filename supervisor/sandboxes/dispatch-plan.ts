import type { DispatchCase, SessionStatus } from '../../protocol/entities.ts';
import type { ObservedSandbox, ObservedContainer } from '../engine/port.ts';

/** The part of a session's row that decides. */
export interface DispatchRecord {
  readonly status: SessionStatus;
  readonly persistent: boolean;
  /** Generation of the last sandbox; 0 when there has been none. */
  readonly generation: number;
  /** Generation of the last sandbox that became ready for work; 0 when there has been none. */
  readonly homeGeneration: number;
  /** Version of the code that the last sandbox was started with. */
  readonly codeVersion: number | null;
  /** Image that it was started from; null if that was not recorded. */
  readonly image: string | null;
}

export interface DispatchWanted {
  /** The profile's current version. */
  readonly codeVersion: number;
  /** The profile's current image: a setup that ran again made another. */
  readonly image: string;
  /** Turns, execs and terminals that are active in the sandbox now. */
  readonly activeWork: number;
}

/**
 * One step for the lifecycle. `setup` comes after `start`: with hook `run` in a first or fresh sandbox, with `resume` when the
 * workspace existed before.
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
  /** The existing agent container is used. */
  readonly reused: boolean;
  readonly steps: readonly Step[];
}

/**
 * Decides which sandbox serves the next request, from the record and the observed containers alone.
 *
 * | agent container | case |
 * |---|---|
 * | running, with current code and image, or active work | reuse |
 * | paused, with current code and image, or active work | unpause |
 * | running or paused, but `setup.resume` may have been interrupted in it | replaced: reattach |
 * | running or paused, with older code or image, and no active work | replaced: reattach, or fresh for an ephemeral session |
 * | none, and there never was one | create |
 * | none, session persistent and expired | resurrect |
 * | none, session persistent | reattach |
 * | none, session ephemeral | fresh: the workspace is emptied first |
 */
export function planDispatch(
  record: DispatchRecord,
  observed: ObservedSandbox,
  wanted: DispatchWanted,
): Plan {
  const agent = usableAgent(observed.agent, record);
  const isSidecarRunning = observed.sidecar?.state === 'running';
  const sidecar: Step[] = isSidecarRunning ? [] : [{ do: 'start-sidecar' }];

  if (agent !== null) {
    const isImageCurrent = record.image === null || record.image === wanted.image;
    const isCurrent = record.codeVersion === wanted.codeVersion && isImageCurrent;
    if (isCurrent || wanted.activeWork > 0) {
      return agent.state === 'paused'
        ? { case: 'unpause', reused: true, steps: [{ do: 'thaw' }, ...sidecar] }
        : { case: 'reuse', reused: true, steps: sidecar };
    }
    return replace(record, observed);
  }
  return replace(record, observed);
}

/** The agent container if it can be used: it belongs to the current generation and is running or paused. */
function usableAgent(agent: ObservedContainer | null, record: DispatchRecord): ObservedContainer | null {
  if (agent?.generation !== record.generation) return null;
  if (mayHaveInterruptedResume(record)) return null;
  return agent.state === 'running' || agent.state === 'paused' ? agent : null;
}

/**
 * What `setup.resume` began may still run, and would run a second time. No work has begun in a sandbox before its HOME is ready: what
 * is active waits for a sandbox too.
 */
function mayHaveInterruptedResume({ persistent, generation, homeGeneration }: DispatchRecord): boolean {
  return persistent && homeGeneration > 0 && homeGeneration !== generation;
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
