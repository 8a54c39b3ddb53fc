import { connectSupervisor, type SupervisorConnection } from '../../protocol/client/connect.ts';

/** The test is a client of the build under test. Client and supervisor of two builds would replace each other. */
const PROGRAM = {
  name: 'test',
  version: __VERSION__,
  build: __BUILD_ID__,
  builtAt: Date.parse(__BUILD_TIME__),
};

/** Connects to the supervisor that serves this home; starts none. */
export async function connectTo(home: string, timeoutMs?: number): Promise<SupervisorConnection> {
  return await connectSupervisor({ home, program: PROGRAM, start: 'never', timeoutMs });
}
