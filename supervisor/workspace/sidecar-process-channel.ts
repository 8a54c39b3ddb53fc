import { HoldfastError } from '../../protocol/errors.ts';
import { PROCESS_LIMITS, type ProcessProgress } from '../../sidecar/wire.ts';
import type {
  ProcessChannel,
  ProcessOutput,
  ProcessSpec,
  ProcessStatus,
  ProcessStream,
  ReadRequest,
} from './process-channel.ts';
import { retryIfSandboxLost } from './sidecar-access.ts';
import type { SidecarClient } from './sidecar-client.ts';

/**
 * Calls `use` with a connection to the session's sidecar, which is started if it does not run. `isSuspect`: an open
 * connection is no proof that it runs.
 */
export type UseSidecar = <T>(use: (client: SidecarClient) => Promise<T>, isSuspect: boolean) => Promise<T>;

/**
 * The durable processes of one session, through its sidecar. Every call can be repeated without a second effect, so a
 * call whose sidecar dies is repeated with the next one. Errors: those of the sidecar's `process/*` calls, and
 * `sandbox_lost` when sidecars keep dying or no agent container takes requests.
 */
export class SidecarProcessChannel implements ProcessChannel {
  readonly #useSidecar: UseSidecar;

  constructor(useSidecar: UseSidecar) {
    this.#useSidecar = useSidecar;
  }

  async start({ id, argv, env, cwd }: ProcessSpec, signal?: AbortSignal): Promise<ProcessStatus> {
    const launch = { processId: id, argv: [...argv], env: { ...env }, cwd };
    return statusOf(await this.#call((client) => client.startProcess(launch), signal));
  }

  async read({ id, ...request }: ReadRequest, signal?: AbortSignal): Promise<ProcessOutput> {
    const params = { processId: id, ...request, limit: Math.min(request.limit, PROCESS_LIMITS.chunk) };
    const { result, bytes } = await this.#call((client) => client.readProcess(params, { signal }), signal);
    return { offset: result.offset, bytes, status: statusOf(result.progress) };
  }

  acknowledge(id: string, stream: ProcessStream, offset: number): Promise<void> {
    return this.#call((client) => client.acknowledgeProcess({ processId: id, stream, offset }));
  }

  async write(id: string, offset: number, bytes: Buffer): Promise<{ accepted: number; undecided: boolean }> {
    for (let at = 0; ;) {
      const piece = bytes.subarray(at, at + PROCESS_LIMITS.chunk);
      const answer = await this.#call((client) => client.writeProcess(id, offset + at, piece));
      at += piece.length;
      if (at >= bytes.length || answer.undecided) return answer;
    }
  }

  closeInput(id: string): Promise<void> {
    return this.#call((client) => client.closeProcessInput(id));
  }

  async status(id: string): Promise<ProcessStatus> {
    return statusOf(await this.#call((client) => client.processProgress(id)));
  }

  kill(id: string, graceMs: number): Promise<void> {
    return this.#call((client) => client.killProcess(id, graceMs));
  }

  remove(id: string): Promise<void> {
    return this.#call((client) => client.removeProcess(id));
  }

  list(): Promise<readonly string[]> {
    return this.#call((client) => client.listProcesses());
  }

  #call<T>(act: (client: SidecarClient) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return retryIfSandboxLost(async (isRetry) => {
      signal?.throwIfAborted();
      try {
        return await this.#useSidecar(act, isRetry);
      } catch (cause) {
        if (!(cause instanceof HoldfastError) || cause.code !== 'connection_closed') throw cause;
        throw new HoldfastError('sandbox_lost', 'The sidecar has ended during a call', {
          why: cause.message,
          next: 'try again',
          cause,
        });
      }
    });
  }
}

function statusOf(progress: ProcessProgress): ProcessStatus {
  return progress;
}
