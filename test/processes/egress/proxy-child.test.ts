import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { chmod, copyFile, mkdtemp, readFile, readlink, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { childProblem, startProxyChild } from '../../../supervisor/egress/proxy-child.ts';
import { proxyLauncher } from '../../../supervisor/egress/proxy-launcher.ts';
import { ProxyProcess } from '../../../supervisor/egress/proxy-process.ts';
import { InProcessEgress, silent } from '../../egress-harness/in-process-egress.ts';

const BUNDLE = join(import.meta.dirname, '../../../dist/runtime/egress-proxy.cjs');
const run = promisify(execFile);
vi.setConfig({ testTimeout: 60_000 });

let folder: string;
let program: string;
let server: Server;
beforeEach(async () => {
  // As in root's own home: the process's uid cannot go there.
  folder = await mkdtemp(join(tmpdir(), 'holdfast-child-'));
  program = join(folder, 'egress-proxy.cjs');
  await copyFile(BUNDLE, program);
  await chmod(program, 0o600);
  server = createServer((_request, response) => response.end('hello'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(async () => {
  server.close();
  await rm(folder, { recursive: true, force: true });
});

const refused = (code: 'engine_error' | 'engine_unavailable') =>
  proxyLauncher({
    startContainer: () => Promise.reject(new HoldfastError(code, 'no container here')),
    program,
    log: silent,
  });

/** The processes below this one that have our uid. */
async function proxies(): Promise<string[]> {
  const { stdout } = await run('ps', ['--ppid', String(process.pid), '-o', 'pid=,uid=']);
  return stdout
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter(([, uid]) => uid === '64321')
    .map(([pid]) => pid ?? '');
}

test('an engine that refuses now and then is asked again; one that is away is no reason for a process', async () => {
  const launch = refused('engine_error');
  await expect(launch()).rejects.toThrow('no container here');
  await expect(launch()).rejects.toThrow('no container here');
  const away = refused('engine_unavailable');
  for (let at = 0; at < 5; at += 1) await expect(away()).rejects.toThrow('no container here');
  expect(await proxies()).toEqual([]);
});

test('a machine without the tools gets an error that names them', () => {
  const why = childProblem({ PATH: '/nowhere' });
  expect(why).toMatch(process.getuid?.() === 0 ? /no unshare and no prlimit and no setpriv/ : /root/);
});

// Only root can take another uid.
describe.skipIf(childProblem() !== null)('as root, without a container for it', () => {
  test('it serves as a process without rights and network', async () => {
    const { port } = server.address() as AddressInfo;
    const proxy = new ProxyProcess({ launch: refused('engine_error'), log: silent, waitMs: 20_000 });
    const here = `127.0.0.1:${String(port)}`;
    const chain = await InProcessEgress.open([here], { proxy });
    const get = `GET http://${here}/ HTTP/1.1\r\nHost: ${here}\r\n\r\n`;
    const all = await Promise.all(Array.from({ length: 50 }, () => chain.sendRaw(get, 30_000)));
    for (const said of all) expect(said?.text).toContain('hello');
    const [pid = ''] = await proxies();
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    for (const line of [
      /^Uid:\s+64321\s+64321\s+64321\s+64321$/m,
      /^Gid:\s+64321\s+64321\s+64321\s+64321$/m,
      /^Groups:\s*(64321)?\s*$/m,
      /^CapEff:\s+0+$/m,
      /^CapBnd:\s+0+$/m,
      /^CapInh:\s+0+$/m,
      /^NoNewPrivs:\s+1$/m,
    ])
      expect(status).toMatch(line);
    expect(await readlink(`/proc/${pid}/ns/net`)).not.toBe(await readlink('/proc/self/ns/net'));
    // Nothing but a loopback that is down, and no route.
    expect((await readFile(`/proc/${pid}/net/route`, 'utf8')).trim().split('\n')).toHaveLength(1);
    expect(await readFile(`/proc/${pid}/environ`, 'utf8')).not.toContain('HOLDFAST');
    process.kill(Number(pid), 'SIGKILL');
    await expect
      .poll(async () => (await chain.sendRaw(get, 30_000))?.text ?? '', { timeout: 30_000 })
      .toContain('hello');
    await chain.dispose();
    await proxy.close();
    expect(await proxies()).toEqual([]);
  });

  test('it ends with whoever started it, and says why where it cannot run', async () => {
    const running = await startProxyChild(program);
    const [pid] = await proxies();
    expect(pid).toBeDefined();
    await running.stop();
    expect(await proxies()).toEqual([]);
    await expect(startProxyChild(join(folder, 'missing.cjs'))).rejects.toThrow('ENOENT');
  });
});
