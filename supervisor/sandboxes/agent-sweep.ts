import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import type { KeyedMutex } from '../base/keyed-mutex.ts';
import type { Log } from '../base/log.ts';
import type { Engine } from '../engine/port.ts';
import type { SessionRecords } from '../history/session-records.ts';
import type { ActiveWork } from './active-work.ts';
import type { Lifecycle } from './lifecycle.ts';

/** How long the runner may take to kill everything. */
const SWEEP_MS = 10_000;
/** How long processes that were killed may take to be gone. */
const GONE_MS = 2000;
const CHECK_MS = 50;

export interface AgentSweepOptions {
  readonly engine: Pick<Engine, 'countAgentProcesses' | 'observeSession'>;
  readonly lifecycle: Pick<Lifecycle, 'ensureSidecarLocked' | 'endAgentLocked' | 'thaw'>;
  readonly records: SessionRecords;
  readonly activeWork: ActiveWork;
  readonly sessionMutex: KeyedMutex;
  readonly log: Log;
}

/**
 * Ends everything that an agent has started, after a turn of it was terminated. Open terminals and execs stay. The
 * runner kills; the engine, which the agent cannot deceive, counts what is left. If anything is, the container is
 * ended, and the next request gets another one.
 */
export class AgentSweep {
  readonly #options: AgentSweepOptions;

  constructor(options: AgentSweepOptions) {
    this.#options = options;
  }

  /**
   * `why` begins the reason in the history where the container had to be ended. `forWork`: the active work that is over.
   * Can be repeated. Errors: those of the engine and the sidecar.
   */
  async run(sessionId: string, forWork: string, why: string): Promise<void> {
    const { lifecycle, sessionMutex, records } = this.#options;
    // A paused process does not end.
    await lifecycle.thaw(sessionId);
    await sessionMutex.run(sessionId, async () => {
      const row = records.get(sessionId);
      const { agent } = await this.#options.engine.observeSession(sessionId);
      if (agent?.generation !== row.generation) return;
      if (agent.state === 'paused') {
        throw new HoldfastError('timeout', "The agent's container is frozen", {
          why: 'a snapshot of its session is under way',
          next: 'try again',
        });
      }
      if (agent.state !== 'running') return;
      const client = await lifecycle.ensureSidecarLocked(row);
      const left = await this.#countLeft(sessionId, forWork, await client.sweepAgent(SWEEP_MS));
      if (left === 0) return;
      const what =
        left === null
          ? 'the runner did not end what it had left'
          : `${left === 1 ? 'a process' : `${left} processes`} that it had left did not end`;
      this.#options.log.warn('the container of an agent is ended', { session: sessionId, why: what });
      await lifecycle.endAgentLocked(row, `${why}, and ${what}`);
    });
  }

  /** `reported`: what the runner says, which the agent can forge. */
  async #countLeft(sessionId: string, forWork: string, reported: number | null): Promise<number | null> {
    const { activeWork, engine, log } = this.#options;
    if (reported !== 0 || activeWork.countOthers(sessionId, forWork) > 0) return reported;
    const deadline = performance.now() + GONE_MS;
    for (;;) {
      let left: number;
      try {
        left = await engine.countAgentProcesses(sessionId);
      } catch (error) {
        if (!(error instanceof HoldfastError) || error.code !== 'engine_error') throw error;
        log.warn('the processes of a container cannot be listed', { session: sessionId, cause: error });
        return reported;
      }
      // A terminal or an exec that began meanwhile is none of the agent's.
      if (activeWork.countOthers(sessionId, forWork) > 0) return reported;
      if (left === 0 || performance.now() >= deadline) return left;
      await sleep(CHECK_MS);
    }
  }
}
