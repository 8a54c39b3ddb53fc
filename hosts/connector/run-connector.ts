import { dirname, join } from 'node:path';
import { HostList } from '../base/host-list.ts';
import { Connector } from './connector.ts';
import { connectorFiles } from './connector-files.ts';
import { connectBySsh } from './ssh-connection.ts';

const IDLE_MS = 10 * 60_000;

export interface RunConnectorOptions {
  readonly home: string;
  readonly host: string;
  /** Path of the bundle, and the build that it is. */
  readonly bundle: string;
  readonly build: string;
  readonly nodeVersion: string;
  readonly environment: NodeJS.ProcessEnv;
}

/** The process of a connector: `holdfast host-connector NAME`. */
export async function runConnector(options: RunConnectorOptions): Promise<number> {
  const { home, bundle, environment } = options;
  const host = new HostList(home).get(options.host);
  const files = connectorFiles(home, host.name, options.build);
  const idle = Number(environment['HOLDFAST_HOST_IDLE_MS']);
  // The end of a terminal must not end the connection of other clients.
  process.on('SIGHUP', () => undefined);
  await new Connector({
    files,
    idleMs: idle > 0 ? idle : IDLE_MS,
    connect: (onStage, signal) =>
      connectBySsh({
        host,
        program: dirname(bundle),
        build: options.build,
        nodeVersion: options.nodeVersion,
        cache: join(home, 'hosts', 'cache'),
        askpass: files.askpass,
        askCommand: [process.execPath, bundle, 'host-askpass', home, host.name, options.build],
        environment,
        onStage,
        signal,
      }),
  }).run();
  return 0;
}
