import { type ChildProcess, spawn } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../test/egress-harness/ports.ts';

/** Debian's Squid as a plain allow-list without a cache, for as long as a benchmark runs. */
export class Squid {
  readonly port: number;
  readonly #folder: string;
  readonly #child: ChildProcess;

  private constructor(port: number, folder: string, child: ChildProcess) {
    this.port = port;
    this.#folder = folder;
    this.#child = child;
  }

  /** Lets through to these ports of 127.0.0.1 only. Null where it is not installed. */
  static async start(ports: readonly number[]): Promise<Squid | null> {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-bench-squid-'));
    // It gives up being root, and still has to write here.
    await chmod(folder, 0o777);
    const port = await freePort();
    const settings = join(folder, 'squid.conf');
    await writeFile(
      settings,
      [
        `http_port 127.0.0.1:${port}`,
        'acl hosts dst 127.0.0.1',
        `acl ports port ${ports.join(' ')}`,
        'http_access allow hosts ports',
        'http_access deny all',
        'cache deny all',
        `access_log stdio:${join(folder, 'access.log')}`,
        `cache_log ${join(folder, 'cache.log')}`,
        `pid_filename none`,
        `coredump_dir ${folder}`,
        'shutdown_lifetime 0 seconds',
        'max_filedescriptors 4096',
        '',
      ].join('\n'),
    );
    const child = spawn('/usr/sbin/squid', ['-N', '-f', settings], { stdio: 'ignore', cwd: folder });
    const ended = once(child, 'exit').catch((error: unknown) => [error]);
    for (let tries = 0; tries < 100; tries += 1) {
      if (await answers(port)) return new Squid(port, folder, child);
      if ((await Promise.race([ended, sleep(100)])) !== undefined) break;
    }
    child.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
    return null;
  }

  async stop(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    await ended;
    await rm(this.#folder, { recursive: true, force: true });
  }
}

async function answers(port: number): Promise<boolean> {
  const socket = connect({ host: '127.0.0.1', port });
  const connected = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return connected;
}
