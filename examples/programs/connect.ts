// What every program begins with: a client of the supervisor of HOLDFAST_HOME (default ~/.holdfast), which survives lost connections.
import { randomUUID } from 'node:crypto';
import { connectSupervisor } from '../../protocol/client/connect.ts';
import { ReconnectingClient } from '../../protocol/client/reconnecting-client.ts';
import { homeFromEnvironment } from '../../protocol/home.ts';

/** The name is shown beside what this program does, for example in `agent.chosen`. */
const PROGRAM = { name: 'my-program', version: '1.0.0', build: '', builtAt: 0 };

export async function withHoldfast(work: (client: ReconnectingClient) => Promise<void>): Promise<void> {
  const home = homeFromEnvironment(process.env);
  // `never`: the CLI or the editor has started a supervisor. Starting one takes `auto` and the `command` that does.
  const client = new ReconnectingClient({
    start: 'never',
    connect: async (start, signal) =>
      (await connectSupervisor({ home, program: PROGRAM, start, signal })).peer,
  });
  try {
    await work(client);
  } finally {
    client.close();
  }
}

/** Names a request: with it a repeated one gets the first answer, and nothing happens twice. */
export const newOpId = (): string => `my-program-${randomUUID()}`;
