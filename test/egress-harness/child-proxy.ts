import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { Duplex } from 'node:stream';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Multiplexer } from '../../protocol/wire/multiplexer.ts';
import { IN_PROXY } from '../../egress-proxy/wire.ts';
import type { RunningProxy } from '../../supervisor/egress/proxy-process.ts';

const PROGRAM = join(import.meta.dirname, '../../dist/runtime/egress-proxy.cjs');

/** The real process without its container. */
export class ChildProxies {
  /** Like `launch`; all connections on the child's input and output. */
  readonly launchCarried = async (): Promise<RunningProxy> => {
    const child = spawn(process.execPath, [PROGRAM], { env: {} });
    this.started.push(child);
    child.stdin.on('error', () => undefined);
    child.stderr.resume();
    const exited = once(child, 'exit').then(([code, signal]) => `it ended with ${String(code ?? signal)}`);
    const carrier = Duplex.from({ readable: child.stdout, writable: child.stdin });
    const multiplexer = new Multiplexer({ carrier });
    if (!(await multiplexer.greeted)) throw new Error(await exited);
    return {
      dial: () => Promise.resolve(multiplexer.open()),
      exited,
      stop: async () => {
        child.kill('SIGKILL');
        await exited;
      },
    };
  };

  /** All that were started. */
  readonly started: ChildProcessWithoutNullStreams[] = [];

  get latest(): ChildProcessWithoutNullStreams {
    const child = this.started.at(-1);
    if (child === undefined) throw new Error('no proxy has been started');
    return child;
  }

  readonly launch = async (): Promise<RunningProxy> => {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-proxy-'));
    const child = spawn(process.execPath, [PROGRAM], { env: { HOLDFAST_CONTROL: folder } });
    this.started.push(child);
    child.stdin.on('error', () => undefined);
    child.stderr.resume();
    const exited = once(child, 'exit').then(async ([code, signal]) => {
      await rm(folder, { recursive: true, force: true });
      return `it ended with ${String(code ?? signal)}`;
    });
    const listening = await Promise.race([once(child.stdout, 'data'), exited]);
    if (typeof listening === 'string') throw new Error(listening);
    return {
      dial: async () => {
        const socket = connect(join(folder, IN_PROXY.socketName));
        await once(socket, 'connect');
        return socket;
      },
      exited,
      stop: async () => {
        child.kill('SIGKILL');
        await exited;
      },
    };
  };
}
