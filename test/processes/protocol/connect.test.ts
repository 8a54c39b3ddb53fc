import { execFileSync, spawn } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, test } from 'vitest';
import { connectSupervisor } from '../../../protocol/client/connect.ts';
import type { ConnectOptions, SupervisorConnection } from '../../../protocol/client/connect.ts';
import { listenAt } from '../../../protocol/client/socket.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { homePaths } from '../../../protocol/home.ts';
import { METHODS } from '../../../protocol/methods.ts';
import { Peer } from '../../../protocol/wire/peer.ts';
import { EMPTY_MAP } from '../../../protocol/wire/shapes.ts';
import { waitUntil } from '../../fixtures/protocol/peers.ts';

const root = mkdtempSync(join(tmpdir(), 'holdfast-connect-'));
const daemon = join(import.meta.dirname, 'tiny-daemon.ts');
const pids = new Set<number>();
const open: SupervisorConnection[] = [];
let homes = 0;

afterEach(async () => {
  for (const connection of open.splice(0)) connection.close();
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGTERM');
    } catch {
      // gone already
    }
  }
  await waitUntil(() => [...pids].every((pid) => !isAlive(pid)));
  pids.clear();
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

function isAlive(pid: number): boolean {
  try {
    // A zombie that nobody has waited for yet has ended too.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

function newHome(): string {
  return join(root, `home${homes++}`);
}

interface Program {
  readonly version?: string;
  readonly builtAt?: number;
  readonly behaviour?: string;
}

function options(
  home: string,
  { version = '1.0.0', builtAt = 0, behaviour = 'normal' }: Program = {},
): ConnectOptions {
  return {
    home,
    program: { name: 'test', version, build: `${version}-${builtAt}`, builtAt },
    start: 'auto',
    command: [process.execPath, daemon, version, String(builtAt), behaviour],
  };
}

async function connect(given: ConnectOptions): Promise<SupervisorConnection> {
  const connection = await connectSupervisor(given);
  open.push(connection);
  pids.add(connection.hello.supervisor.pid);
  return connection;
}

async function failure(promise: Promise<unknown>): Promise<HoldfastError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof HoldfastError)) throw new Error(`no HoldfastError: ${String(error)}`);
  return error;
}

test('without a supervisor and with start: never it fails and starts none', async () => {
  const home = newHome();
  const error = await failure(connectSupervisor({ ...options(home), start: 'never' }));
  expect([error.code, error.next]).toEqual(['not_found', 'start one with `holdfast supervisor start`']);
  expect(() => statSync(home)).toThrow();
});

test('the first client starts a detached supervisor, the next one uses it', async () => {
  const home = newHome();
  const { hello, peer } = await connect(options(home));
  expect(hello).toMatchObject({ protocolVersion: '1', home, supervisor: { name: 'tiny', version: '1.0.0' } });
  expect(await peer.call('ping', {})).toEqual({});
  const { pid } = hello.supervisor;
  const session = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[3];
  expect(Number(session)).toBe(pid);
  expect(readlinkSync(`/proc/${pid}/cwd`)).toBe('/');
  for (const fd of [0, 1, 2]) expect(readlinkSync(`/proc/${pid}/fd/${fd}`)).toBe('/dev/null');
  expect(statSync(homePaths(home).socket).mode & 0o777).toBe(0o600);
  expect((await connect({ ...options(home), start: 'never' })).hello.supervisor.pid).toBe(pid);
});

test('the supervisor does not inherit file descriptors of the client', async () => {
  const home = newHome();
  const marker = join(root, 'marker');
  writeFileSync(marker, '');
  const script = `import { connectSupervisor } from ${JSON.stringify(join(import.meta.dirname, '../../../protocol/client/connect.ts'))};
    import { openSync } from 'node:fs';
    openSync(process.argv[1], 'r');
    const { hello } = await connectSupervisor(JSON.parse(process.argv[2]));
    console.log(hello.supervisor.pid);
    process.exit(0);`;
  const args = ['--input-type=module', '-e', script, marker, JSON.stringify(options(home))];
  const said = execFileSync('/bin/sh', ['-c', 'exec "$@" 9<"$0"', marker, process.execPath, ...args], {
    encoding: 'utf8',
  });
  const pid = Number(said);
  pids.add(pid);
  const targets = readdirSync(`/proc/${pid}/fd`).map((fd) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${fd}`);
    } catch {
      return 'closed in the meantime';
    }
  });
  expect(targets).not.toContain(marker);
});

test('many clients at once start only one supervisor', async () => {
  const home = newHome();
  const connections = await Promise.all(
    Array.from({ length: 6 }, () => connect(options(home, { behaviour: 'slow' }))),
  );
  expect(new Set(connections.map(({ hello }) => hello.supervisor.pid)).size).toBe(1);
});

test('the socket of a killed supervisor is replaced', async () => {
  const home = newHome();
  const first = await connect(options(home));
  const { pid } = first.hello.supervisor;
  process.kill(pid, 'SIGKILL');
  await first.peer.closed;
  expect(statSync(homePaths(home).socket).isSocket()).toBe(true);
  const second = await connect(options(home));
  expect(second.hello.supervisor.pid).not.toBe(pid);
});

test('an older supervisor hands over, for many clients at once', async () => {
  const home = newHome();
  const old = await connect(options(home, { version: '1.0.0' }));
  const newer = await Promise.all([1, 2, 3].map(() => connect(options(home, { version: '1.1.0' }))));
  const found = new Set(newer.map(({ hello }) => `${hello.supervisor.version} ${hello.supervisor.pid}`));
  expect(found.size).toBe(1);
  expect([...found][0]).toMatch(/^1\.1\.0 /);
  expect((await old.peer.closed)?.code).toBe('shutting_down');
});

test('of two builds of one version the later one wins', async () => {
  const home = newHome();
  const old = await connect(options(home, { builtAt: 1000 }));
  const later = await connect(options(home, { builtAt: 2000 }));
  expect(later.hello.supervisor.builtAt).toBe(2000);
  expect(later.hello.supervisor.pid).not.toBe(old.hello.supervisor.pid);
  const earlier = await connect(options(home, { builtAt: 1500 }));
  expect(earlier.hello.supervisor.pid).toBe(later.hello.supervisor.pid);
});

test('a newer supervisor, one that refuses to hand over, and one that may not be replaced are used unchanged', async () => {
  const home = newHome();
  const { hello } = await connect(options(home, { version: '2.0.0', behaviour: 'stays' }));
  for (const given of [
    options(home, { version: '1.0.0' }),
    options(home, { version: '3.0.0' }),
    { ...options(home, { version: '3.0.0' }), start: 'never' as const },
  ]) {
    expect((await connect(given)).hello.supervisor.pid).toBe(hello.supervisor.pid);
  }
});

test('a supervisor of another protocol is replaced when older and refused when newer', async () => {
  const home = newHome();
  mkdirSync(home, { mode: 0o700 });
  let supervisor = { name: 'other', version: '9.0.0', build: 'x', builtAt: 0 };
  let askedToLeave = 0;
  const server = createServer((stream) => {
    new Peer({
      stream,
      name: 'client',
      serves: METHODS,
      calls: EMPTY_MAP,
      sends: EMPTY_MAP,
      receives: EMPTY_MAP,
      partial: true,
      handlers: {
        hello: () => {
          throw new HoldfastError('version_mismatch', 'No word in common', { details: { supervisor } });
        },
        'supervisor/handover': () => {
          askedToLeave += 1;
          setImmediate(() => void end());
          setTimeout(() => stream.end(), 10);
          return { leaving: true };
        },
      },
    });
  });
  const end = await listenAt(server, { directory: home, name: 'supervisor.sock' });
  expect((await failure(connectSupervisor(options(home)))).code).toBe('version_mismatch');
  expect(askedToLeave).toBe(0);
  supervisor = { ...supervisor, version: '0.1.0' };
  const { hello } = await connect(options(home));
  expect([askedToLeave, hello.supervisor.name]).toEqual([1, 'tiny']);
});

test('a supervisor that cannot start says why, and where its log is', async () => {
  const home = newHome();
  const known = await failure(connectSupervisor(options(home, { behaviour: 'crash' })));
  expect([known.code, known.why]).toEqual(['home_newer', 'The home is newer: schema 9']);
  expect(known.next).toContain(homePaths(home).log);

  const silent = await failure(connectSupervisor({ ...options(newHome()), command: ['/bin/false'] }));
  expect([silent.code, silent.why]).toEqual(['internal', 'it exited with code 1']);

  const missing = await failure(connectSupervisor({ ...options(newHome()), command: ['/no/such/program'] }));
  expect(missing.why).toContain('/no/such/program');
});

test('a supervisor that never responds is a timeout, with the end of its log', async () => {
  const home = newHome();
  mkdirSync(homePaths(home).logs, { recursive: true, mode: 0o700 });
  writeFileSync(homePaths(home).log, 'first\nsecond\n');
  const started = performance.now();
  const child = { ...options(home, { behaviour: 'hang' }), timeoutMs: 1000 };
  const error = await failure(connectSupervisor(child));
  // By its own patience, not by the usual one of 15 s.
  expect(performance.now() - started).toBeLessThan(10_000);
  expect(error.code).toBe('timeout');
  expect(error.why).toContain('first\nsecond');
  const pidFile = join(home, 'run', 'pid');
  await waitUntil(() => statSync(pidFile, { throwIfNoEntry: false })?.size !== undefined, 20_000);
  pids.add(Number(readFileSync(pidFile, 'utf8')));
});

test('a supervisor that accepts the connection and says nothing is a timeout', async () => {
  const home = newHome();
  const { hello } = await connect(options(home));
  process.kill(hello.supervisor.pid, 'SIGSTOP');
  try {
    expect((await failure(connectSupervisor({ ...options(home), timeoutMs: 300 }))).code).toBe('timeout');
  } finally {
    process.kill(hello.supervisor.pid, 'SIGCONT');
  }
});

test('a supervisor that closes every connection at once is a timeout', async () => {
  const home = newHome();
  mkdirSync(home, { mode: 0o700 });
  const server = createServer((socket) => socket.destroy());
  const end = await listenAt(server, { directory: home, name: 'supervisor.sock' });
  const started = performance.now();
  const error = await failure(connectSupervisor({ ...options(home), timeoutMs: 300 }));
  await end();
  expect(error.code).toBe('timeout');
  expect(performance.now() - started).toBeLessThan(10_000);
});

test('cancelling takes effect at once', async () => {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 50);
  const started = performance.now();
  const error = await failure(
    connectSupervisor({ ...options(newHome()), command: ['/bin/sleep', '30'], signal: controller.signal }),
  );
  expect(error.code).toBe('cancelled');
  expect(performance.now() - started).toBeLessThan(10_000);
});

test('a home may have a long path with spaces', async () => {
  const home = join(root, `a home ${'x'.repeat(100)}`, 'y'.repeat(100));
  mkdirSync(join(home, '..'), { recursive: true });
  expect((await connect(options(home))).hello.home).toBe(home);
});

test('a home that other users may write to, or that is a file, is refused', async () => {
  const open = newHome();
  mkdirSync(open);
  execFileSync('chmod', ['777', open]);
  expect((await failure(connectSupervisor(options(open)))).code).toBe('permission_denied');
  const file = newHome();
  writeFileSync(file, '');
  expect((await failure(connectSupervisor(options(file)))).code).toBe('home_damaged');
});

test('the client that starts the supervisor may die meanwhile', async () => {
  const home = newHome();
  const script = `import { connectSupervisor } from ${JSON.stringify(join(import.meta.dirname, '../../../protocol/client/connect.ts'))};
    void connectSupervisor(JSON.parse(process.argv[1]));`;
  const client = spawn(
    process.execPath,
    ['--input-type=module', '-e', script, JSON.stringify(options(home, { behaviour: 'slow' }))],
    { stdio: 'ignore', detached: true },
  );
  await waitUntil(() => statSync(homePaths(home).lock, { throwIfNoEntry: false }) !== undefined);
  if (client.pid !== undefined) process.kill(-client.pid, 'SIGKILL');
  const { hello } = await connect({ ...options(home), command: ['/bin/sleep', '5'], timeoutMs: 5000 });
  expect(isAlive(hello.supervisor.pid)).toBe(true);
});
