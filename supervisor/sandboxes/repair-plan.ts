import type { SessionStatus } from '../../protocol/entities.ts';
import type { Limit } from '../../sidecar/wire.ts';
import type { ObservedSandbox, ObservedContainer } from '../engine/port.ts';

/** The runner's exit code when it ended because no process could be started; see guest/runner.sh. */
const NO_PROCESSES = 96;

export interface ReconcileRecord {
  readonly status: SessionStatus;
  readonly generation: number;
}

/** One step that makes the record and the engine agree. */
export type Repair =
  /** The agent container ended or was removed without us. */
  | {
      readonly do: 'record-lost';
      readonly why: string;
      readonly oomKilled: boolean;
      readonly exitCode: number | null;
    }
  /** Somebody else paused or unpaused the agent, or a supervisor died before it recorded that. */
  | { readonly do: 'record-paused' }
  | { readonly do: 'record-running' }
  /** The agent runs and has the current generation, but is not recorded: a supervisor died after it started the container. */
  | { readonly do: 'adopt' }
  | { readonly do: 'remove-agent'; readonly why: string }
  | { readonly do: 'remove-sandbox'; readonly why: string };

/**
 * Level-triggered: compares the whole state of one session, whatever happened before. After the repairs a second plan is empty.
 * `record` is null for an id without a session.
 */
export function planRepairs(record: ReconcileRecord | null, observed: ObservedSandbox): Repair[] {
  const { agent, sidecar } = observed;
  if (record === null || record.status === 'deleted') {
    return agent === null && sidecar === null ? [] : [{ do: 'remove-sandbox', why: 'no such session' }];
  }

  const shouldRun = record.status === 'active' || record.status === 'idle' || record.status === 'paused';
  const isStale = agent !== null && agent.generation !== record.generation;
  if (agent === null || isStale) {
    const lost: Repair[] = shouldRun
      ? [{ do: 'record-lost', why: 'the container is gone', oomKilled: false, exitCode: null }]
      : [];
    return isStale ? [...lost, { do: 'remove-agent', why: 'left over from an earlier sandbox' }] : lost;
  }

  switch (agent.state) {
    case 'running':
      if (record.status === 'paused') return [{ do: 'record-running' }];
      return shouldRun ? [] : [{ do: 'adopt' }];
    case 'paused':
      if (record.status === 'paused') return [];
      return shouldRun ? [{ do: 'record-paused' }] : [{ do: 'adopt' }, { do: 'record-paused' }];
    case 'created':
    case 'exited':
    case 'lost': {
      const why =
        agent.state === 'created'
          ? 'it was never started'
          : `the container ended${exitText(agent.exitCode, agent.oomKilled)}`;
      const lost: Repair[] = shouldRun
        ? [{ do: 'record-lost', why, oomKilled: agent.oomKilled, exitCode: agent.exitCode }]
        : [];
      return [...lost, { do: 'remove-agent', why }];
    }
    case 'removing':
      return shouldRun
        ? [
            {
              do: 'record-lost',
              why: 'the container is being removed',
              oomKilled: agent.oomKilled,
              exitCode: agent.exitCode,
            },
          ]
        : [];
  }
}

/** Why an agent container is no longer running, as part of an error message. */
export function describeAgentExit(agent: ObservedContainer | null): string {
  if (agent?.state !== 'exited') return 'the container is gone';
  return `the container ended${exitText(agent.exitCode, agent.oomKilled)}`;
}

/** The resource limits that ended an agent container. */
export function limitsMetAtExit(
  end: { readonly exitCode: number | null; readonly oomKilled: boolean } | null,
): Limit[] {
  if (end?.oomKilled === true) return ['memory'];
  return end?.exitCode === NO_PROCESSES ? ['processes'] : [];
}

function exitText(exitCode: number | null, oomKilled: boolean): string {
  if (oomKilled) return ' because it ran out of memory';
  if (exitCode === NO_PROCESSES) return ' because it ran out of processes';
  return exitCode === null ? '' : ` with exit code ${String(exitCode)}`;
}
