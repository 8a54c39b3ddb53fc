import { connectSupervisor } from '../protocol/client/connect.ts';
import type { SupervisorPeer } from '../protocol/client/connect.ts';
import type { CliIo } from './io.ts';
import type { StartMode } from '../protocol/client/reconnecting-client.ts';
import { clientInfo } from './version.ts';

/** Connects and says hello. With `start: 'auto'` starts the supervisor if none is running. */
export async function dialSupervisor(options: {
  readonly home: string;
  readonly io: CliIo;
  readonly start: StartMode;
  readonly timeoutMs?: number;
}): Promise<SupervisorPeer> {
  const { home, io, start, timeoutMs } = options;
  const { peer } = await connectSupervisor({
    home,
    program: clientInfo(),
    start,
    command: io.supervisorCommand,
    timeoutMs,
  });
  return peer;
}
