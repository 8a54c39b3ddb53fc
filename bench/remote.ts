// A session of another machine 50 ms away, over a real sshd, beside ssh and sshfs on the same link: node bench/remote.ts [--json] [--rounds N]
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { SessionFiles } from '../extension/files/session-files.ts';
import { connectSupervisor } from '../protocol/client/connect.ts';
import { ReconnectingClient } from '../protocol/client/reconnecting-client.ts';
import { onPath } from '../scripts/setup/command.mjs';
import { beside, typeKeys } from '../test/fixtures/hosts/keystrokes.ts';
import type { Caller } from '../test/fixtures/hosts/keystrokes.ts';
import { deployOver } from '../test/setup/deploy.ts';
import { SSHD, SshServer } from '../test/fixtures/hosts/ssh-server.ts';
import { interleave, median, p99, Report, timed } from './measure.ts';

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
/** What is on its way before a key may keep it so much longer. */
const BESIDE_BULK_MS = 60;

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

interface RemoteSamples {
  /** Over the link. */
  readonly far: readonly number[];
  /** The same, asked of that supervisor without the link: the work, which a busy machine makes longer. */
  readonly straight: readonly number[];
}

/** Round trips: what the link adds to the work. */
function addRoundTrips(name: string, { far, straight }: RemoteSamples, atMost: number): void {
  report.add({
    name: `${name}: ${median(far).toFixed(0)} ms, of it ${median(straight).toFixed(0)} ms of work`,
    ours: (median(far) - median(straight)) / ROUND_TRIP_MS,
    unit: 'round trips',
    // A fifth for timers of the link, which are some milliseconds late on a busy machine.
    target: { atMost: atMost * 1.2 },
    samples: far.length,
  });
}

interface Way {
  readonly client: Caller;
  readonly files: SessionFiles;
}

function wayOf(client: Caller): Way {
  const peer = client instanceof ReconnectingClient ? () => client.peer() : () => Promise.resolve(client);
  const files = new SessionFiles({
    call: client.call.bind(client),
    callWithBytes: client.callWithBytes.bind(client),
    of: () => ({ ready: peer }),
  });
  return { client, files };
}

/** In turn over the link and straight, so that a busy moment hits both alike. */
async function repeated(
  ways: { readonly far: Way; readonly straight: Way },
  action: (way: Way) => Promise<unknown>,
): Promise<RemoteSamples> {
  await action(ways.far);
  await action(ways.straight);
  return interleave(rounds * 3, {
    far: () => timed(() => action(ways.far)),
    straight: () => timed(() => action(ways.straight)),
  });
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
  const { peer } = await connectSupervisor({
    home: server.farHome,
    start: 'never',
    program: { name: 'bench', version: built.version, build: built.id, builtAt: Date.parse(built.time) },
  });
  const ways = { far: wayOf(client), straight: wayOf(peer) };
  const put = (path: string, bytes: Uint8Array): Promise<unknown> =>
    ways.straight.files.write(session, `/workspace/${path}`, bytes, { create: true, overwrite: true });
  for (const folder of ['some', 'many'])
    await peer.call('files/mkdir', { session, path: `/workspace/${folder}` });
  await put('document.ts', Buffer.alloc(20_000, 'x'));
  await put('large.bin', randomBytes(LARGE_BYTES));
  await forAll(100, (n) => put(`some/${n}.txt`, Buffer.alloc(300, 97)));
  await forAll(FILES, (n) => put(`many/${n}.txt`, Buffer.alloc(300, 97 + (n % 26))));

  addRoundTrips('a request', await repeated(ways, (way) => way.client.call('ping', {})), 1);
  addRoundTrips(
    'a folder of 100 files listed',
    await repeated(ways, ({ files }) => files.list({ session }, '/workspace/some')),
    1,
  );
  const document = '/workspace/document.ts';
  addRoundTrips(
    'a file opened (its stat, then its content)',
    await repeated(ways, async ({ files }) => {
      await files.stat({ session }, document);
      await files.read({ session }, document);
    }),
    2,
  );
  // The editor knows the version from its last read or write, and asks for nothing else (test/editor/suite/round-trips.ts).
  let { version } = await peer.call('files/stat', { session, path: document, version: true });
  addRoundTrips(
    'a file saved (its write, which names the version that it replaces)',
    await repeated(ways, async ({ files }) => {
      const written = await files.write(session, document, randomBytes(20_000), { ifVersion: version ?? '' });
      ({ version } = written);
    }),
    1,
  );
  addRoundTrips(
    'the session page opened (its conversation, then its subscription)',
    await repeated(ways, async ({ client: caller }) => {
      const page = await caller.call('conversation/read', { session, limit: 100 });
      const { subscription } = await caller.call('conversation/subscribe', { session, after: page.seq });
      void caller.call('conversation/unsubscribe', { subscription });
    }),
    3,
  );
  addRoundTrips(
    'a key, to its echo',
    { far: await typeKeys(client, session, KEYS), straight: await typeKeys(peer, session, KEYS) },
    1,
  );
  const large = randomBytes(LARGE_BYTES);
  const { files } = ways.far;
  const carried = {
    uploaded: () => files.write(session, '/workspace/up.bin', large, { create: true, overwrite: true }),
    downloaded: () => files.read({ session }, '/workspace/large.bin'),
  };
  for (const [what, carry] of Object.entries(carried)) {
    const samples = await beside(carry, () => typeKeys(client, session, 3 * KEYS));
    report.add({
      name: `a key, to its echo, while files of 32 MB are ${what} over the same connection`,
      ours: median(samples),
      unit: 'ms',
      p99: p99(samples),
      target: { atMost: ROUND_TRIP_MS + BESIDE_BULK_MS },
      samples: samples.length,
    });
  }

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

  const again = wayOf(client).files;
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
  peer.close();
} finally {
  client.close();
  await near.run('purge', '--force', '--host', 'far');
  await near.dispose({ stopsFar: false });
  await server.stop();
  rmSync(work, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
