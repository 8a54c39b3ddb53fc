import { connectSupervisor, type SupervisorConnection } from '../../protocol/client/connect.ts';

/** A test as a client of the build that it was compiled with: of another one, it and its supervisor would replace each other. */
const PROGRAM = {
  name: 'test',
  version: __VERSION__,
  build: __BUILD_ID__,
  builtAt: Date.parse(__BUILD_TIME__),
};

/** Connects to the supervisor that serves this home now, and starts none. */
export async function connectTo(home: string, timeoutMs?: number): Promise<SupervisorConnection> {
  return await connectSupervisor({ home, program: PROGRAM, start: 'never', timeoutMs });
}
