import type { Socket } from 'node:net';
import { afterAll, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import {
  callingPeer,
  readToEnd,
  servingPeer,
  SocketPairs,
  waitUntil,
} from '../../fixtures/protocol/peers.ts';
import { printInSoak } from '../../setup/run-length.ts';

const MiB = 2 ** 20;
const sockets = new SocketPairs();
afterAll(() => sockets.dispose());

interface Answer {
  readonly id: string | number | null;
  readonly result?: unknown;
  readonly error?: {
    readonly code: number;
    readonly data: { readonly code: string; readonly why?: string; details?: object };
  };
}

function request(id: unknown, method: string, params: object = {}): string {
  return `${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`;
}

function codeOf(error: unknown): string {
  return error instanceof HoldfastError ? error.code : String(error);
}

/** Answers that came as lines without payloads. */
function answersIn(received: Buffer): Answer[] {
  return received
    .toString()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Answer);
}

/** Writes at the pace of the other side; false if that side ended the connection. */
async function push(socket: Socket, data: Buffer | string): Promise<boolean> {
  if (!socket.writable) return false;
  if (socket.write(data)) return true;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      socket.off('drain', done);
      socket.off('close', done);
      resolve();
    };
    socket.on('drain', done);
    socket.on('close', done);
  });
  return socket.writable;
}

test.each([
  ['a line without an end', 'line_too_long', Buffer.alloc(3 * MiB, 'x')],
  [
    'a payload beyond the limit',
    'bytes_too_large',
    Buffer.from('{"jsonrpc":"2.0","method":"x","bytes":5000000}\n'),
  ],
  ['nesting beyond the limit', 'too_deep', Buffer.from(`{"a":${'['.repeat(100)}\n`)],
  ['bytes that are no text', 'not_utf8', Buffer.from([0x80, 0x0a])],
  ['no JSON', 'not_json', Buffer.from('GET / HTTP/1.1\r\n')],
  [
    'a prototype',
    'forbidden_key',
    Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"__proto__":{"x":1}}}\n'),
  ],
])('%s is answered with protocol_error, and then the connection ends', async (_what, reason, garbage) => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far, { handlers: { ping: () => ({}) } });
  const received = readToEnd(near);
  await push(near, request(1, 'ping'));
  await waitUntil(() => near.bytesRead > 0);
  await push(near, garbage);
  expect((await server.closed)?.details).toEqual({ reason });
  const [pong, last, ...more] = answersIn(await received);
  expect(pong).toEqual({ jsonrpc: '2.0', id: 1, result: {} });
  expect(last).toMatchObject({
    id: null,
    error: { code: -32700, data: { code: 'protocol_error', details: { reason } } },
  });
  expect(more).toEqual([]);
});

test.each([
  ['no version', '{"id":1,"method":"ping"}'],
  ['another version', '{"jsonrpc":"1.0","id":1,"method":"ping"}'],
  ['an id that is null', '{"jsonrpc":"2.0","id":null,"method":"ping"}'],
  ['an id that is a fraction', '{"jsonrpc":"2.0","id":1.5,"method":"ping"}'],
  ['an id that is an object', '{"jsonrpc":"2.0","id":{},"method":"ping"}'],
  ['an endless id', JSON.stringify({ jsonrpc: '2.0', id: 'x'.repeat(101), method: 'ping' })],
  ['a method that is a number', '{"jsonrpc":"2.0","id":1,"method":7}'],
  ['neither request nor answer', '{"jsonrpc":"2.0","id":1}'],
  ['both result and error', '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}'],
  ['an answer that nobody asked for', '{"jsonrpc":"2.0","id":77,"result":{}}'],
  ['a cancel of nothing', '{"jsonrpc":"2.0","method":"cancel","params":{}}'],
])('%s ends the connection with a reason', async (_what, line) => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far, { handlers: { ping: () => ({}) } });
  const received = readToEnd(near);
  near.write(`${line}\n`);
  expect((await server.closed)?.code).toBe('protocol_error');
  expect(answersIn(await received)).toMatchObject([
    { id: null, error: { data: { code: 'protocol_error' } } },
  ]);
});

test('the id of a running request is refused; that of a finished one may be reused', async () => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far, {
    handlers: { ping: () => ({}), hang: () => new Promise(() => undefined) },
  });
  const received = readToEnd(near);
  near.write(request('same', 'ping'));
  await waitUntil(() => near.bytesRead > 0);
  near.write(request('same', 'hang') + request('same', 'ping'));
  expect((await server.closed)?.why).toContain('"same"');
  const answers = answersIn(await received);
  expect(answers.map(({ id, error }) => [id, error?.data.code])).toEqual([
    ['same', undefined],
    ['same', 'protocol_error'],
    [null, 'protocol_error'],
  ]);
});

test(
  'a flood of 100,000 requests runs 1,000 and refuses the rest, in bounded memory',
  { timeout: 60_000 },
  async () => {
    const { near, far } = await sockets.pair();
    let most = 0;
    const server = servingPeer(far, {
      handlers: { hang: () => new Promise(() => (most = Math.max(most, server.runningRequests))) },
    });
    const flood = 100_000;
    let refused = 0;
    let rest = '';
    near.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      refused += lines.filter((line) => line.includes('"overloaded"')).length;
    });
    globalThis.gc?.();
    const before = process.memoryUsage().rss;
    let peak = 0;
    for (let id = 0; id < flood; id++) {
      await push(near, request(id, 'hang'));
      if (id % 1000 === 0) peak = Math.max(peak, process.memoryUsage().rss - before);
    }
    await waitUntil(() => refused === flood - 1000, 30_000);
    expect(most).toBe(1000);
    expect(server.runningRequests).toBe(1000);
    printInSoak(`flood of ${flood} requests: ${Math.round(peak / MiB)} MiB more`);
    expect(peak).toBeLessThan(200 * MiB);
    near.destroy();
    await server.closed;
    expect(server.runningRequests).toBe(0);
  },
);

test('a flood whose sender never reads stops being read', { timeout: 60_000 }, async () => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far, { handlers: { hang: () => new Promise(() => undefined) } });
  let taken = 0;
  const feeding = (async () => {
    for (let id = 0; id < 200_000; id++) {
      if (!(await push(near, request(id, 'hang')))) return;
      taken = id;
    }
  })();
  const isStuck = async (): Promise<boolean> => {
    const before = taken;
    await new Promise((resolve) => setTimeout(resolve, 100));
    return far.isPaused() && taken === before && server.queuedBytes > 7 * MiB;
  };
  await expect.poll(isStuck, { timeout: 30_000 }).toBe(true);
  expect(server.queuedBytes).toBeLessThan(9 * MiB);
  expect(taken).toBeLessThan(100_000);
  near.destroy();
  await feeding;
});

test(
  'a slow reader gets everything, and the server buffers no more than its limit',
  { timeout: 60_000 },
  async () => {
    const { near, far } = await sockets.pair();
    const size = MiB;
    const server = servingPeer(far, {
      handlers: { download: ({ bytes }) => withBytes({}, Buffer.alloc(bytes, 1)) },
    });
    const client = callingPeer(near);
    let most = 0;
    let answered = 0;
    near.pause();
    const calls = Array.from({ length: 200 }, async () => {
      const { bytes } = await client.callWithBytes('download', { bytes: size });
      answered += 1;
      return bytes.length;
    });
    const watching = setInterval(() => (most = Math.max(most, server.queuedBytes)), 1);
    for (let burst = 0; burst < 20 && answered === 0; burst++) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      near.pause();
    }
    near.resume();
    const outcomes = await Promise.allSettled(calls);
    clearInterval(watching);
    const whole = outcomes.filter(
      (outcome) => outcome.status === 'fulfilled' && outcome.value === size,
    ).length;
    printInSoak(`200 answers of 1 MiB to a stopped reader: at most ${Math.round(most / MiB)} MiB kept`);
    expect(whole).toBe(200);
    // The bound, and the answers of the requests that were started when it was not yet reached.
    expect(most).toBeLessThan((8 + 16 + 1) * MiB);
  },
);

test('requests together may not exceed their limit of bytes', async () => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far, {
    handlers: { upload: () => new Promise(() => undefined) },
    limits: { incomingBytes: 3 * MiB },
  });
  const client = callingPeer(near);
  const codes = await Promise.all(
    Array.from({ length: 5 }, () =>
      client.call('upload', {}, { bytes: Buffer.alloc(MiB - 1000), timeoutMs: 300 }).catch(codeOf),
    ),
  );
  expect(codes.toSorted()).toEqual(['overloaded', 'overloaded', 'timeout', 'timeout', 'timeout']);
  expect(server.isClosed).toBe(false);
});

test('pending calls are limited on the caller’s side too', async () => {
  const { near, far } = await sockets.pair();
  servingPeer(far, { handlers: { hang: () => new Promise(() => undefined) } });
  const client = callingPeer(near, { outgoingCalls: 3 });
  const waiting = [1, 2, 3].map(() => client.call('hang', {}).catch(codeOf));
  await expect(client.call('hang', {})).rejects.toMatchObject({ code: 'overloaded' });
  client.close();
  expect(await Promise.all(waiting)).toEqual(Array(3).fill('connection_closed'));
});

test(
  'a sender that awaits is slowed down by a slow reader; one that does not is disconnected',
  { timeout: 60_000 },
  async () => {
    const chunk = Buffer.alloc(MiB, 2);
    const patient = await sockets.pair();
    const polite = servingPeer(patient.far);
    const slow = callingPeer(patient.near);
    let heard = 0;
    slow.onNotification('chunk', (_params, bytes) => (heard += bytes.length));
    patient.near.pause();
    let most = 0;
    const sending = (async () => {
      for (let n = 0; n < 40; n++) {
        await polite.notify('chunk', {}, chunk);
        most = Math.max(most, polite.queuedBytes);
      }
    })();
    await new Promise((resolve) => setTimeout(resolve, 50));
    patient.near.resume();
    await sending;
    await waitUntil(() => heard === 40 * MiB);
    expect(most).toBeLessThan(3 * MiB);

    const rude = await sockets.pair();
    const hasty = servingPeer(rude.far);
    rude.near.pause();
    const sent = Array.from({ length: 40 }, () => hasty.notify('chunk', {}, chunk).catch(codeOf));
    expect(hasty.queuedBytes).toBeLessThanOrEqual(16 * MiB + 1000);
    expect((await hasty.closed)?.code).toBe('overloaded');
    expect(new Set(await Promise.all(sent))).toContain('connection_closed');
  },
);

test('a slow listener makes the other side wait', async () => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far);
  const client = callingPeer(near);
  let heard = 0;
  client.onNotification('tick', () => (heard += 1));
  const [first, second] = [client.pauseReading(), client.pauseReading()];
  let sent = 0;
  const sending = (async () => {
    for (; sent < 50_000; sent++) await server.notify('tick', { n: sent });
  })();
  await new Promise((resolve) => setTimeout(resolve, 100));
  first();
  first();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(heard).toBeLessThan(2000);
  expect(sent).toBeLessThan(20_000);
  second();
  await sending;
  await waitUntil(() => heard === 50_000);
});

test('progress is dropped while the other side does not read', async () => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far, {
    handlers: {
      work: ({ steps }, { progress }) => {
        for (let step = 1; step <= steps; step++) progress('counting', step, steps);
        return {};
      },
    },
  });
  near.pause();
  near.write(request(1, 'work', { steps: 100_000 }));
  await waitUntil(() => server.queuedBytes > 0);
  expect(server.queuedBytes).toBeLessThan(2 * MiB);
  expect(server.isClosed).toBe(false);
});

test('final messages to a reader that never reads do not keep the connection open', async () => {
  const { near, far } = await sockets.pair();
  const server = servingPeer(far, { limits: { lingerMs: 50 } });
  near.pause();
  for (let n = 0; n < 5; n++) void server.notify('chunk', {}, Buffer.alloc(MiB)).catch(() => undefined);
  server.close();
  const started = performance.now();
  await server.closed;
  expect(performance.now() - started).toBeLessThan(10_000);
  expect(far.destroyed).toBe(true);
});
