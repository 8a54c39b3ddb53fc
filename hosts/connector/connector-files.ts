import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { SocketLocation } from '../../protocol/client/socket.ts';

/** The files of a host's connector, below the home of this machine. */
export interface ConnectorFiles {
  /** 0700. */
  readonly directory: string;
  readonly socket: SocketLocation;
  /** Held by the one connector of a host, as an exclusive transaction: it ends with its process. */
  readonly lock: string;
  /** What ssh runs to ask a question. */
  readonly askpass: string;
}

/** Each build has a connector of its own: one of an earlier build brings another program, and leaves when it is idle. */
export function connectorFiles(home: string, host: string, build: string): ConnectorFiles {
  const directory = join(home, 'hosts');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  // No name of a host contains the separator.
  const name = `${host}@${build}`;
  return {
    directory,
    socket: { directory, name: `${name}.sock` },
    lock: join(directory, `${name}.lock`),
    askpass: join(directory, `${name}.askpass`),
  };
}

/** The builds whose connectors have left a socket for this host. */
export function connectorBuilds(home: string, host: string): readonly string[] {
  const { directory } = connectorFiles(home, host, '');
  return readdirSync(directory).flatMap((name) => {
    const [of = '', build = ''] = name.replace(/\.sock$/, '').split('@');
    return name.endsWith('.sock') && of === host ? [build] : [];
  });
}
