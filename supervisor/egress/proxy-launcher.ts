import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import { childProblem, startProxyChild } from './proxy-child.ts';
import type { RunningProxy } from './proxy-process.ts';

/** One that is busy refuses now and then. */
const MOST_REFUSALS = 3;

export interface ProxyLauncherOptions {
  readonly startContainer: () => Promise<RunningProxy>;
  /** The bundle of the process. */
  readonly program: string;
  readonly log: Log;
}

/**
 * Starts the process that reads what sandboxes send: in a container; where the engine refuses that one, as a process of
 * this machine without rights and network, if the supervisor is root. Never inside the supervisor.
 */
export function proxyLauncher(options: ProxyLauncherOptions): () => Promise<RunningProxy> {
  const { startContainer, program, log } = options;
  let refusals = 0;
  return async () => {
    try {
      const running = await startContainer();
      refusals = 0;
      return running;
    } catch (error) {
      const { code, sentence } = HoldfastError.from(error);
      // Without an engine there are no sandboxes either.
      refusals = code === 'engine_error' || code === 'not_supported' ? refusals + 1 : 0;
      if (refusals < MOST_REFUSALS || childProblem() !== null) throw error;
      log.warn('the egress proxy has no container; it runs as a process of this machine', { why: sentence });
      return await startProxyChild(program);
    }
  };
}
