import { dirname, join } from 'node:path';
import type { ClientInfo } from '../../protocol/methods.ts';

/** What this program was built from, and what it was built to use. */
export interface Program {
  readonly info: ClientInfo;
  readonly sidecarImage: string;
  /** What a profile without `image` runs in. */
  readonly agentImage: string;
  /** The folder with the files that run inside sandboxes. */
  readonly builtPrograms: string;
  /** The file of the thread that compares lines. */
  readonly lineWorker: string;
  /** The file of the program that thaws an agent when the supervisor is killed. */
  readonly thawProgram: string;
}

/** `bundle` is the file that runs: the files for sandboxes lie beside it. */
export function thisProgram(bundle: string): Program {
  return {
    info: {
      name: 'holdfast',
      version: __VERSION__,
      build: __BUILD_ID__,
      builtAt: Date.parse(__BUILD_TIME__),
    },
    sidecarImage: __SIDECAR_IMAGE__,
    agentImage: __AGENT_IMAGE__,
    builtPrograms: join(dirname(bundle), 'runtime'),
    lineWorker: join(dirname(bundle), 'line-worker.cjs'),
    thawProgram: join(dirname(bundle), 'thaw.cjs'),
  };
}
