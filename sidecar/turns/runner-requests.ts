import { HoldfastError } from '../../protocol/errors.ts';
import type { Directory } from '../files/directory.ts';
import { type SendResult, sendLine } from '../files/fifo.ts';
import { delay } from './wait.ts';

/** The FIFO of the run directory that the runner reads. */
export const REQUESTS = 'requests';
/** How long a request waits for space in the FIFO, or for the runner to open it. */
const TIMEOUT_MS = 2000;
const RETRY_MS = 50;

/** Requests to the runner, the main process of the agent container. It takes a line twice without harm. */
export class RunnerRequests {
  readonly #run: Directory;

  constructor(run: Directory) {
    this.#run = run;
  }

  send(line: string): SendResult {
    return sendLine(this.#run, REQUESTS, line);
  }

  /** Sends it as soon as the runner takes it. Errors: `sandbox_lost` if it does not in time. */
  async request(line: string, signal: AbortSignal): Promise<void> {
    const deadline = performance.now() + TIMEOUT_MS;
    for (let sent = this.send(line); sent !== 'sent'; sent = this.send(line)) {
      if (performance.now() > deadline) {
        throw new HoldfastError('sandbox_lost', "The agent's container does not answer", {
          why: 'its main process does not read its requests',
        });
      }
      await delay(RETRY_MS, signal);
    }
  }
}
