import { type Handlers, withBytes } from '../../protocol/wire/shapes.ts';
import { restoreWorkspaceAccess } from '../files/workspace-access.ts';
import type { SIDECAR_METHODS } from '../wire.ts';
import type { Processes } from './processes.ts';

type ProcessCalls = {
  [
    M in keyof typeof SIDECAR_METHODS as M extends `process/${string}` ? M : never
  ]: (typeof SIDECAR_METHODS)[M];
};

/** Handlers of `process/*`. `workspace`: where programs start. */
export function processHandlers<P>(processes: Processes, workspace: string): Handlers<ProcessCalls, P> {
  return {
    'process/start': (launch, { signal }) => {
      restoreWorkspaceAccess(workspace);
      return processes.start(launch, signal);
    },
    'process/progress': ({ processId }) => processes.progress(processId),
    'process/read': async ({ processId, stream, ...from }, { signal }) => {
      const { bytes, ...answer } = await processes.read(processId, stream, from, signal);
      return withBytes(answer, bytes);
    },
    'process/acknowledge': async ({ processId, stream, offset }) => {
      await processes.acknowledge(processId, stream, offset);
      return {};
    },
    'process/write': ({ processId, offset }, { bytes }) => processes.write(processId, offset, bytes),
    'process/close-input': async ({ processId }) => {
      await processes.closeInput(processId);
      return {};
    },
    'process/kill': async ({ processId, graceMs }, { signal }) => {
      await processes.kill(processId, graceMs, signal);
      return {};
    },
    'process/remove': async ({ processId }, { signal }) => {
      await processes.remove(processId, signal);
      return {};
    },
    'process/list': () => ({ processes: processes.list() }),
  };
}
