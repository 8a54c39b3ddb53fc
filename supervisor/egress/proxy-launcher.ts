import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import { runInside } from './local-proxy.ts';
import type { RunningProxy } from './proxy-process.ts';

export interface ProxyLauncherOptions {
  /** Errors: `not_supported` if containers of the engine cannot be reached by a socket. */
  readonly startContainer: () => Promise<RunningProxy>;
  readonly log: Log;
}

/**
 * Starts the process that reads what sandboxes send: in a container. Only an engine whose containers cannot be reached
 * by a socket of this machine has it inside the supervisor.
 */
export function proxyLauncher({ startContainer, log }: ProxyLauncherOptions): () => Promise<RunningProxy> {
  return async () => {
    try {
      return await startContainer();
    } catch (error) {
      if (HoldfastError.from(error).code !== 'not_supported') throw error;
      log.warn('the egress proxy runs inside the supervisor', { why: HoldfastError.from(error).sentence });
      return runInside();
    }
  };
}
