// A session of another machine 50 ms away, over a real sshd, beside ssh and sshfs on the same link: node bench/remote.ts [--json] [--rounds N]
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { SessionFiles } from '../extension/files/session-files.ts';
import type { ReconnectingClient } from '../protocol/client/reconnecting-client.ts';
import { onPath } from '../scripts/setup/command.mjs';
import { deployOver } from '../test/setup/deploy.ts';
import { SSHD, SshServer } from '../test/fixtures/hosts/ssh-server.ts';
import { median, p99, Report, timed } from './measure.ts';

// What sshfs is asked for at the same time is limited by the threads of this process, so it gets as many as it can use.
const TOGETHER = 32;
if (process.env['UV_THREADPOOL_SIZE'] === undefined) {
  const { status } = spawnSync(process.execPath, process.argv.slice(1), {
    stdio: 'inherit',
    env: { ...process.env, UV_THREADPOOL_SIZE: String(TOGETHER) },
  });
  process.exit(status ?? 1);
}

const ROUND_TRIP_MS = 50;
const FILES = 1000;
const LARGE_BYTES = 32 * 2 ** 20;
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 7 : Number(process.argv[wanted + 1]);
const KEYS = 10;

const built = JSON.parse(readFileSync(join(import.meta.dirname, '../dist/build.json'), 'utf8')) as {
  readonly version: string;
  readonly id: string;
  readonly time: string;
};
// The test runner puts these into the fixtures.
Object.assign(globalThis, {
  __BUILD_ID__: built.id,
  __VERSION__: built.version,
  __BUILD_TIME__: built.time,
});
const { NearMachine } = await import('../test/fixtures/hosts/near-machine.ts');

const { DOCKER_HOST } = process.env;
const server = await SshServer.start(SSHD ?? 'sshd', {
  environment: {
    PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
    ...(DOCKER_HOST === undefined ? {} : { DOCKER_HOST }),
  },
});
const link = server.overLink({ delayMs: ROUND_TRIP_MS / 2 });
const ssh = link['HOLDFAST_SSH'] ?? '';
const near = new NearMachine(server, link);
const work = mkdtempSync(join(tmpdir(), 'holdfast-bench-remote-'));
const report = new Report(`A host ${ROUND_TRIP_MS} ms away`, {
  ssh: spawnSync('ssh', ['-V'], { encoding: 'utf8' }).stderr.trim(),
});
let client: ReconnectingClient = near.client();

/** Round trips of the slowest part: what is left of the time after the link's own share is the work. */
function addRoundTrips(name: string, samples: readonly number[], atMost: number): void {
  report.add({
    name,
    ours: median(samples) / ROUND_TRIP_MS,
    unit: `round trips (${median(samples).toFixed(0)} ms)`,
    p99: p99(samples) / ROUND_TRIP_MS,
    // A tenth for the work itself.
    target: { atMost: atMost + 0.1 },
    samples: samples.length,
  });
}

async function repeated(times: number, action: () => Promise<unknown>): Promise<number[]> {
  await action();
  const samples: number[] = [];
  for (let n = 0; n < times; n += 1) samples.push(await timed(action));
  return samples;
}

/** Does it for all, so many at a time. */
async function forAll(count: number, action: (n: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) {
      const n = next;
      next += 1;
      await action(n);
    }
  };
  await Promise.all(Array.from({ length: TOGETHER }, worker));
}

async function keystrokes(session: string): Promise<number[]> {
  const { terminal } = await client.call('terminal/open', {
    session,
    command: ['sh', '-c', 'echo ready; exec cat > /dev/null'],
    columns: 80,
    rows: 24,
  });
  const id = terminal.terminalId;
  let offset = 0;
  const until = async (text: string): Promise<void> => {
    for (let seen = ''; !seen.includes(text);) {
      const { result, bytes } = await client.callWithBytes('terminal/read', {
        terminal: id,
        offset,
        waitMs: 10_000,
      });
      offset = result.offset + bytes.length;
      seen += bytes.toString('latin1');
    }
  };
  await until('ready');
  const samples: number[] = [];
  for (let n = 0; n < KEYS; n += 1) {
    const key = String.fromCharCode(97 + n);
    // As the editor's terminal does it: a read waits on the other machine before the key is typed.
    const echo = until(key);
    await new Promise((resolve) => setTimeout(resolve, 2 * ROUND_TRIP_MS));
    samples.push(
      await timed(async () => {
        await Promise.all([
          client.call('terminal/write', { terminal: id }, { bytes: Buffer.from(key) }),
          echo,
        ]);
      }),
    );
  }
  await client.call('terminal/close', { terminal: id });
  return samples;
}

/** Reads a file of the other machine with `ssh HOST cat`. */
async function sshCat(path: string): Promise<number> {
  const child = spawn(ssh, ['-p', String(server.port), '127.0.0.1', `cat '${path}'`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let bytes = 0;
  child.stdout.on('data', (chunk: Buffer) => (bytes += chunk.length));
  // From the first byte: the login is not part of the throughput.
  const [first] = (await once(child.stdout, 'data')) as [Buffer];
  const began = performance.now();
  await once(child, 'close');
  if (bytes !== LARGE_BYTES) throw new Error(`cat gave ${bytes} bytes`);
  return (LARGE_BYTES - first.length) / 2 ** 20 / ((performance.now() - began) / 1000);
}

try {
  const profile =
    'name: bench-remote\nagent: { protocol: command, command: [cat] }\nworkspace: { seed: false }\npersistence: persistent\n';
  writeFileSync(join(work, 'holdfast.yaml'), profile);
  await deployOver({ call: (method, params, options) => client.call(method, params, options) }, work);
  const { id: session } = (await client.call('session/create', { profile: 'bench-remote' })).session;
  await client.call('session/resume', { session });
  const here = { call: client.call.bind(client), callWithBytes: client.callWithBytes.bind(client) };
  const files = new SessionFiles({ ...here, of: () => ({ ready: () => client.peer() }) });
  const put = (path: string, bytes: Uint8Array): Promise<unknown> =>
    files.write(session, `/workspace/${path}`, bytes, { create: true, overwrite: true });
  await files.createFolder(session, '/workspace/many');
  await put('document.ts', Buffer.alloc(20_000, 'x'));
  await put('large.bin', randomBytes(LARGE_BYTES));
  await forAll(FILES, (n) => put(`many/${n}.txt`, Buffer.alloc(300, 97 + (n % 26))));

  addRoundTrips('a request', await repeated(rounds * 3, () => client.call('ping', {})), 1);
  addRoundTrips(
    'a folder listed',
    await repeated(rounds, () => files.list({ session }, '/workspace/many')),
    1,
  );
  const document = '/workspace/document.ts';
  addRoundTrips(
    'a file opened: its stat, then its content',
    await repeated(rounds, async () => {
      await files.stat({ session }, document);
      await files.read({ session }, document);
    }),
    2,
  );
  addRoundTrips(
    'a file saved: what the session changed meanwhile, then the write (VS Code asks nothing more)',
    await repeated(rounds, async () => {
      const { version } = await files.versionedStat(session, document);
      await files.write(session, document, randomBytes(20_000), { ifVersion: version ?? '' });
    }),
    1,
  );
  addRoundTrips(
    'the session page opened: its conversation, then its subscription to changes',
    await repeated(rounds, async () => {
      const page = await client.call('conversation/read', { session, limit: 100 });
      const { subscription } = await client.call('conversation/subscribe', { session, after: page.seq });
      void client.call('conversation/unsubscribe', { subscription });
    }),
    3,
  );
  addRoundTrips('a key, to its echo', await keystrokes(session), 1);

  const connects: number[] = [];
  for (let n = 0; n < rounds; n += 1) {
    client.close();
    await near.disconnect();
    client = near.client();
    connects.push(await timed(() => client.call('ping', {})));
  }
  report.add({
    name: 'a prepared host, connected',
    ours: median(connects),
    unit: 'ms',
    p99: p99(connects),
    target: { atMost: 2000 + 6 * ROUND_TRIP_MS },
    samples: connects.length,
  });

  const again = new SessionFiles({
    call: client.call.bind(client),
    callWithBytes: client.callWithBytes.bind(client),
    of: () => ({ ready: () => client.peer() }),
  });
  const workspace = join(server.farHome, 'workspaces', session);
  const rates = { ours: [] as number[], cat: [] as number[] };
  for (let n = 0; n < 3; n += 1) {
    const ms = await timed(() => again.read({ session }, '/workspace/large.bin'));
    rates.ours.push(LARGE_BYTES / 2 ** 20 / (ms / 1000));
    rates.cat.push(await sshCat(join(workspace, 'large.bin')));
  }
  report.add({
    name: 'a file of 32 MB read',
    ours: median(rates.ours),
    unit: 'MB/s',
    peer: { name: 'ssh HOST cat', value: median(rates.cat) },
    ratio: median(rates.ours) / median(rates.cat),
    target: { atLeast: 0.7 },
    samples: rates.ours.length,
  });

  const ours = {
    listed: () => again.list({ session }, '/workspace/many'),
    read: () => forAll(FILES, (n) => again.read({ session }, `/workspace/many/${n}.txt`)),
    written: () =>
      forAll(FILES, (n) =>
        again.write(session, `/workspace/many/${n}.txt`, Buffer.alloc(300, 65 + (n % 26)), {
          overwrite: true,
        }),
      ),
  };
  const steps = ['listed', 'read', 'written'] as const;
  const mine: Record<string, number> = {};
  for (const step of steps) mine[step] = await timed(ours[step]);
  if (onPath('sshfs') === undefined) console.error('  sshfs is not installed: nothing to compare with');
  else {
    const mount = join(work, 'mount');
    mkdirSync(mount);
    execFileSync('sshfs', [
      ...['-o', `ssh_command=${ssh}`, '-p', String(server.port)],
      ...[`127.0.0.1:${workspace}/many`, mount],
    ]);
    const theirs: Record<string, number> = {};
    try {
      const peer = {
        listed: async () => {
          const names = await readdir(mount);
          await forAll(names.length, (n) => stat(join(mount, names[n] ?? '')));
        },
        read: () => forAll(FILES, (n) => readFile(join(mount, `${n}.txt`))),
        written: () => forAll(FILES, (n) => writeFile(join(mount, `${n}.txt`), Buffer.alloc(300, 98))),
      };
      for (const step of steps) theirs[step] = await timed(peer[step]);
    } finally {
      execFileSync('fusermount3', ['-u', mount]);
    }
    for (const step of steps)
      report.add({
        name: `1,000 small files ${step}, ${TOGETHER} at a time`,
        ours: mine[step] ?? Number.NaN,
        unit: 'ms',
        peer: { name: 'sshfs', value: theirs[step] ?? Number.NaN },
        ratio: (mine[step] ?? Number.NaN) / (theirs[step] ?? Number.NaN),
        target: { atMost: 1 / 3 },
      });
  }
} finally {
  client.close();
  await near.run('purge', '--force', '--host', 'far');
  await near.dispose({ stopsFar: false });
  await server.stop();
  rmSync(work, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
