import { type Handlers, withBytes } from '../../protocol/wire/shapes.ts';
import { restoreWorkspaceAccess } from '../files/workspace-access.ts';
import type { SIDECAR_METHODS } from '../wire.ts';
import type { Terminals } from './terminals.ts';

type TerminalCalls = {
  [
    M in keyof typeof SIDECAR_METHODS as M extends `terminal/${string}` ? M : never
  ]: (typeof SIDECAR_METHODS)[M];
};

/** Handlers of `terminal/*`. `workspace`: where terminals start. */
export function terminalHandlers<P>(terminals: Terminals, workspace: string): Handlers<TerminalCalls, P> {
  return {
    'terminal/open': (launch, { signal }) => {
      restoreWorkspaceAccess(workspace);
      return terminals.open(launch, signal);
    },
    'terminal/progress': ({ terminalId, waitMs }, { signal }) =>
      terminals.progress(terminalId, waitMs, signal),
    'terminal/read': async ({ terminalId, ...from }, { signal }) => {
      const { progress, bytes } = await terminals.read(terminalId, from, signal);
      return withBytes(progress, bytes);
    },
    'terminal/write': async ({ terminalId }, { bytes, signal }) => {
      await terminals.write(terminalId, bytes, signal);
      return {};
    },
    'terminal/resize': ({ terminalId, ...size }) => {
      terminals.resize(terminalId, size);
      return {};
    },
    'terminal/close': async ({ terminalId }, { signal }) => {
      await terminals.close(terminalId, signal);
      return {};
    },
    'terminal/remove': ({ terminalId }) => {
      terminals.remove(terminalId);
      return {};
    },
  };
}
