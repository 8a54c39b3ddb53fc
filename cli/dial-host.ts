import { HostList } from '../hosts/base/host-list.ts';
import { HostReach } from '../hosts/connector/connect-host.ts';
import type { ConnectHostOptions } from '../hosts/connector/connect-host.ts';
import { connectSupervisor } from '../protocol/client/connect.ts';
import type { SupervisorPeer } from '../protocol/client/connect.ts';
import type { StartMode } from '../protocol/client/reconnecting-client.ts';
import type { Context } from './context.ts';
import { sanitizeLine } from './render/text.ts';
import { askOnTerminal, hasTerminal } from './terminal/questions.ts';
import { clientInfo } from './version.ts';

/** How the command line connects to a host: progress on standard error, questions on the terminal. */
export function hostOptions(context: Context, host: string): ConnectHostOptions {
  const { home, io } = context;
  new HostList(home).get(host);
  // The editor's terminals: a question among their output would be answered with what was typed for the sandbox.
  const logsIn = io.env['HOLDFAST_HOST_LOGIN'] !== 'never';
  const report = (stage: string): void =>
    context.progress.update({
      stage: withMachine(host, sanitizeLine(stage)),
      done: null,
      of: null,
      unit: null,
    });
  return {
    home,
    host,
    build: clientInfo().build,
    command: io.connectorCommand,
    environment: { ...io.env },
    logsIn,
    ui: {
      onStage: report,
      ask:
        logsIn && hasTerminal()
          ? ({ text, isSecret }) => askOnTerminal(context, { text: `${host}: ${text}`, isSecret })
          : undefined,
    },
  };
}

/** What is shown of several machines names the one that it is about. */
export function withMachine(host: string, stage: string): string {
  return stage.includes(host) ? stage : `${stage} (${host})`;
}

/** Connects to the supervisor of a host, and starts it there if need be. */
export async function dialHost(context: Context, host: string, start: StartMode): Promise<SupervisorPeer> {
  const reach = new HostReach(hostOptions(context, host), start);
  const { peer, hello } = await connectSupervisor({
    home: undefined,
    reach,
    program: clientInfo(),
    start,
    signal: context.interrupted,
  });
  new HostList(context.home).setHomeId(host, hello.homeId);
  return peer;
}
