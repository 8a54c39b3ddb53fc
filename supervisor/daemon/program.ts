import { dirname, join } from 'node:path';
import type { ClientInfo } from '../../protocol/methods.ts';

/** The build of this program, and the files and images that it uses. */
export interface Program {
  readonly info: ClientInfo;
  readonly sidecarImage: string;
  /** What a profile without `image` runs in. */
  readonly agentImage: string;
  /** Folder of the files that run inside sandboxes. */
  readonly builtPrograms: string;
  /** File of the worker thread that compares lines. */
  readonly lineWorker: string;
  /** File of the guard process that unpauses an agent when the supervisor is killed. */
  readonly thawProgram: string;
}

/** `bundle`: the running file. The files for sandboxes are beside it. */
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
