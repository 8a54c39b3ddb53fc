import type { SessionStatus } from '../../protocol/entities.ts';
import type { Limit } from '../../sidecar/wire.ts';
import type { ObservedSandbox, ObservedContainer } from '../engine/port.ts';

/** The runner's exit code when it ended because no process could be started; see guest/runner.sh. */
const NO_PROCESSES = 96;

export interface ReconcileRecord {
  readonly status: SessionStatus;
  readonly generation: number;
}

/** What must be done so that the record says what the engine shows, and the engine holds nothing that is on no record. */
export type Repair =
  /** The agent container ended or vanished under us. */
  | {
      readonly do: 'record-lost';
      readonly why: string;
      readonly oomKilled: boolean;
      readonly exitCode: number | null;
    }
  /** Somebody paused or thawed it beside us, or we died between doing and recording it. */
  | { readonly do: 'record-paused' }
  | { readonly do: 'record-running' }
  /** It runs and is of our generation, but is not on record: we died between starting and recording it. */
  | { readonly do: 'adopt' }
  | { readonly do: 'remove-agent'; readonly why: string }
  | { readonly do: 'remove-sandbox'; readonly why: string };

/**
 * Level-triggered: looks at the whole of one session, whatever happened before, and asking again after its repairs gives
 * none. `record` is null where no session of that id is known.
 */
export function planRepairs(record: ReconcileRecord | null, observed: ObservedSandbox): Repair[] {
  const { agent, sidecar } = observed;
  if (record === null || record.status === 'deleted') {
    return agent === null && sidecar === null ? [] : [{ do: 'remove-sandbox', why: 'no such session' }];
  }

  const supposedToRun = record.status === 'active' || record.status === 'idle' || record.status === 'paused';
  const stale = agent !== null && agent.generation !== record.generation;
  if (agent === null || stale) {
    const lost: Repair[] = supposedToRun
      ? [{ do: 'record-lost', why: 'the container is gone', oomKilled: false, exitCode: null }]
      : [];
    return stale ? [...lost, { do: 'remove-agent', why: 'left over from an earlier sandbox' }] : lost;
  }

  switch (agent.state) {
    case 'running':
      if (record.status === 'paused') return [{ do: 'record-running' }];
      return supposedToRun ? [] : [{ do: 'adopt' }];
    case 'paused':
      if (record.status === 'paused') return [];
      return supposedToRun ? [{ do: 'record-paused' }] : [{ do: 'adopt' }, { do: 'record-paused' }];
    case 'created':
    case 'exited':
    case 'lost': {
      const why =
        agent.state === 'created'
          ? 'it was never started'
          : `the container ended${exitText(agent.exitCode, agent.oomKilled)}`;
      const lost: Repair[] = supposedToRun
        ? [{ do: 'record-lost', why, oomKilled: agent.oomKilled, exitCode: agent.exitCode }]
        : [];
      return [...lost, { do: 'remove-agent', why }];
    }
    case 'removing':
      return supposedToRun
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

/** Why an agent container that does not run any more has ended, for whoever waits for something in it. */
export function describeAgentExit(agent: ObservedContainer | null): string {
  if (agent?.state !== 'exited') return 'the container is gone';
  return `the container ended${exitText(agent.exitCode, agent.oomKilled)}`;
}

/** The limits that ended an agent container. */
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
