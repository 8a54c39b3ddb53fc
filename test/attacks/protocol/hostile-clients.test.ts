import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connectSupervisor, dialSupervisor } from '../../../protocol/client/connect.ts';
import type { SupervisorConnection } from '../../../protocol/client/connect.ts';
import { waitUntil } from '../../fixtures/protocol/peers.ts';
import { printInSoak } from '../../setup/run-length.ts';

/** Programs of the same user may be broken or hostile; whatever they do, the supervisor stays small and answers the others. */
const MiB = 2 ** 20;
const home = join(mkdtempSync(join(tmpdir(), 'holdfast-hostile-')), 'home');
const daemon = join(import.meta.dirname, '../../processes/protocol/tiny-daemon.ts');
const sockets: Socket[] = [];
let polite: SupervisorConnection;

beforeAll(async () => {
  polite = await connectSupervisor({
    home,
    program: { name: 'polite', version: '1.0.0', build: 'b', builtAt: 0 },
    start: 'auto',
    command: [process.execPath, daemon],
  });
});
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});
afterAll(async () => {
  process.kill(polite.hello.supervisor.pid, 'SIGTERM');
  await polite.peer.closed;
  // Its lock and its log are in there until it is gone.
  await waitUntil(() => !existsSync(`/proc/${polite.hello.supervisor.pid}`));
  rmSync(join(home, '..'), { recursive: true, force: true });
});

/** Resident memory of the supervisor, bytes. */
function resident(): number {
  const status = readFileSync(`/proc/${polite.hello.supervisor.pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

async function hostile(): Promise<Socket> {
  const socket = await dialSupervisor(home);
  socket.on('error', () => undefined);
  sockets.push(socket);
  return socket;
}

function line(id: number, method: string, params: object): string {
  return `${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`;
}

const HELLO = line(0, 'hello', {
  client: { name: 'hostile', version: '1.0.0', build: 'b', builtAt: 0 },
  protocolVersions: ['1'],
});

/** Hello, and then nothing is read any more. */
async function deaf(): Promise<Socket> {
  const socket = await hostile();
  socket.write(HELLO);
  await new Promise<void>((resolve) => socket.once('data', () => resolve()));
  socket.pause();
  return socket;
}

/** Runs an attack, and tells by how much the supervisor grew at most and how long a polite client waited at worst. */
async function under(attack: () => Promise<void>): Promise<{ grewMiB: number; worstMs: number }> {
  const before = resident();
  let most = before;
  let worstMs = 0;
  const over = new AbortController();
  const watching = (async () => {
    while (!over.signal.aborted) {
      const started = performance.now();
      await polite.peer.call('ping', {}, { timeoutMs: 5000 });
      worstMs = Math.max(worstMs, performance.now() - started);
      most = Math.max(most, resident());
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  await attack();
  await new Promise((resolve) => setTimeout(resolve, 300));
  over.abort();
  await watching;
  const outcome = { grewMiB: Math.round((most - before) / MiB), worstMs: Math.round(worstMs) };
  printInSoak(`${expect.getState().currentTestName ?? ''}: ${JSON.stringify(outcome)}`);
  return outcome;
}

test('clients that ask for 4 GiB and read nothing of it', async () => {
  const { grewMiB, worstMs } = await under(async () => {
    const socket = await deaf();
    for (let id = 1; id <= 1000; id++) {
      socket.write(line(id, 'turn/output', { turn: 'turn-aaaaaaaaaaaaaaaa', stream: 'stdout', offset: 0 }));
    }
  });
  expect(grewMiB).toBeLessThan(200);
  expect(worstMs).toBeLessThan(3000);
});

test('a hundred clients that announce 4 MiB and send none of it', async () => {
  const { grewMiB } = await under(async () => {
    for (let count = 0; count < 100; count++) {
      (await hostile()).write('{"jsonrpc":"2.0","id":1,"method":"turn/start","params":{},"bytes":4194304}\n');
    }
  });
  expect(grewMiB).toBeLessThan(60);
});

test('twenty clients that send a line without an end', async () => {
  const { grewMiB } = await under(async () => {
    const all = await Promise.all(Array.from({ length: 20 }, hostile));
    const closed = all.map((socket) => new Promise<void>((resolve) => socket.once('close', () => resolve())));
    for (const socket of all) {
      socket.resume();
      socket.write(Buffer.alloc(8 * MiB, 'x'));
    }
    await Promise.all(closed);
  });
  expect(grewMiB).toBeLessThan(150);
});

test('a client that sends payloads to what never ends', async () => {
  const { grewMiB } = await under(async () => {
    const socket = await deaf();
    socket.resume();
    const payload = Buffer.alloc(4 * MiB, 'x');
    for (let id = 1; id <= 100; id++) {
      socket.write(
        `{"jsonrpc":"2.0","id":${id},"method":"turn/start","params":{},"bytes":${payload.length}}\n`,
      );
      if (!socket.write(payload)) await new Promise<void>((resolve) => socket.once('drain', () => resolve()));
    }
  });
  expect(grewMiB).toBeLessThan(200);
});

test('a client that floods with waits and cancels', async () => {
  const { grewMiB } = await under(async () => {
    const socket = await deaf();
    socket.resume();
    for (let id = 1; id <= 50_000; id++) {
      const wait = line(id, 'turn/wait', { turn: 'turn-aaaaaaaaaaaaaaaa' });
      const cancel = `{"jsonrpc":"2.0","method":"cancel","params":{"request":${id}}}\n`;
      if (!socket.write(wait + cancel))
        await new Promise<void>((resolve) => socket.once('drain', () => resolve()));
    }
  });
  expect(grewMiB).toBeLessThan(150);
});

test('more connections than there may be: those that are open continue, and new ones are accepted afterwards', async () => {
  await under(async () => {
    for (let count = 0; count < 600; count++) await hostile();
  });
  for (const socket of sockets.splice(0)) socket.destroy();
  await new Promise((resolve) => setTimeout(resolve, 100));
  const again = await connectSupervisor({
    home,
    program: { name: 'polite', version: '1.0.0', build: 'b', builtAt: 0 },
    start: 'never',
    timeoutMs: 5000,
  });
  expect(await again.peer.call('ping', {})).toEqual({});
  again.close();
});
