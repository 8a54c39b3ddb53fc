import { afterAll, expect, test } from 'vitest';
import { createSupervisorPeer } from '../../../protocol/client/hello.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { Peer } from '../../../protocol/wire/peer.ts';
import { EMPTY_MAP, withBytes } from '../../../protocol/wire/shapes.ts';
import type { Handler } from '../../../protocol/wire/shapes.ts';
import {
  callingPeer,
  CALLS,
  readToEnd,
  servingPeer,
  SocketPairs,
  waitUntil,
} from '../../fixtures/protocol/peers.ts';
import type { ClientPeer, ServerOptions, ServerPeer } from '../../fixtures/protocol/peers.ts';

const sockets = new SocketPairs();
afterAll(() => sockets.dispose());

async function connected(options: ServerOptions = {}): Promise<{ client: ClientPeer; server: ServerPeer }> {
  const { near, far } = await sockets.pair();
  return { server: servingPeer(far, options), client: callingPeer(near) };
}

async function failure(promise: Promise<unknown>): Promise<HoldfastError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof HoldfastError)) throw new Error(`no HoldfastError: ${String(error)}`);
  return error;
}

/** Waits for the end of its signal and tells what it was. */
function hangs(ended: string[]): Handler<typeof CALLS.hang, ServerPeer> {
  return async (_params, { signal }) => {
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    ended.push((signal.reason as HoldfastError).code);
    throw signal.reason;
  };
}

test('a call gets its response, and concurrent calls get their own', async () => {
  const { client } = await connected({
    handlers: {
      add: async ({ left, right }) => {
        await new Promise((resolve) => setTimeout(resolve, (left * 7) % 5));
        return { sum: left + right };
      },
    },
  });
  const sums = await Promise.all(
    Array.from({ length: 500 }, (_, n) => client.call('add', { left: n, right: 1 })),
  );
  expect(sums.map(({ sum }) => sum)).toEqual(Array.from({ length: 500 }, (_, n) => n + 1));
});

test('params may be omitted if none are required', async () => {
  const { near, far } = await sockets.pair();
  servingPeer(far, { handlers: { ping: () => ({}) } });
  const answer = readToEnd(near);
  near.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  await waitUntil(() => near.bytesRead > 0);
  near.end();
  expect((await answer).toString()).toBe('{"jsonrpc":"2.0","id":1,"result":{}}\n');
});

test('payloads pass in both directions unchanged, up to the limit', async () => {
  const { client } = await connected({
    handlers: {
      upload: (_params, { bytes }) => ({ bytes: bytes.length }),
      download: ({ bytes }) => withBytes({}, Buffer.alloc(bytes, 0x0a)),
    },
  });
  const limit = 4 * 2 ** 20;
  for (const size of [0, 1, 65_537, limit]) {
    expect(await client.call('upload', {}, { bytes: Buffer.alloc(size, 0x7b) })).toEqual({ bytes: size });
    const { bytes } = await client.callWithBytes('download', { bytes: size });
    expect(bytes.equals(Buffer.alloc(size, 0x0a))).toBe(true);
  }
  expect((await failure(client.call('upload', {}, { bytes: Buffer.alloc(limit + 1) }))).code).toBe(
    'invalid_request',
  );
  expect((await failure(client.call('download', { bytes: limit + 1 }))).code).toBe('internal');
  expect(await client.call('upload', {})).toEqual({ bytes: 0 });
});

test('a payload where none is allowed is refused before it is sent', async () => {
  const { client } = await connected({ handlers: { ping: () => ({}) } });
  expect((await failure(client.call('ping', {}, { bytes: Buffer.from('x') }))).code).toBe('invalid_params');
});

test('params are checked on both sides', async () => {
  const { near, far } = await sockets.pair();
  servingPeer(far, { handlers: { add: () => ({ sum: 0 }) } });
  const client = callingPeer(near);
  const wrong = { left: 1, right: 'two' } as unknown as { left: number; right: number };
  const here = await failure(client.call('add', wrong));
  expect([here.code, here.why]).toEqual(['invalid_params', expect.stringMatching(/^right: .*number/)]);

  const raw = await sockets.pair();
  servingPeer(raw.far, { handlers: { add: () => ({ sum: 0 }) } });
  const answer = readToEnd(raw.near);
  raw.near.write('{"jsonrpc":"2.0","id":"a","method":"add","params":{"left":1,"right":1.5}}\n');
  await waitUntil(() => raw.near.bytesRead > 0);
  raw.near.end();
  const { id, error } = JSON.parse((await answer).toString()) as {
    id: string;
    error: { code: number; data: { why: string } };
  };
  expect([id, error.code]).toEqual(['a', -32602]);
  expect(error.data.why).toMatch(/^right: .*whole number/);
});

test('a response that violates the protocol is an error and closes the connection', async () => {
  const { client, server } = await connected({
    handlers: { lie: () => ({ truth: 42 as unknown as string }) },
  });
  expect((await failure(client.call('lie', {}))).code).toBe('protocol_error');
  expect((await client.closed)?.code).toBe('protocol_error');
  expect((await server.closed)?.code).toBe('protocol_error');
});

test('our errors arrive complete, and other errors reveal no internals', async () => {
  const internal: unknown[] = [];
  const { client } = await connected({
    internal,
    handlers: {
      fail: ({ how }) => {
        if (how === 'foreign') throw new Error('ENOENT: /root/secret/path');
        throw new HoldfastError('no_space', 'It was not kept', {
          why: 'full',
          next: 'make room',
          details: { free: 0 },
        });
      },
    },
  });
  const ours = await failure(client.call('fail', { how: 'ours' }));
  expect({ ...ours.toData(), message: ours.message }).toEqual({
    code: 'no_space',
    message: 'It was not kept',
    why: 'full',
    next: 'make room',
    details: { free: 0 },
  });
  const foreign = await failure(client.call('fail', { how: 'foreign' }));
  expect(foreign.code).toBe('internal');
  expect(JSON.stringify([foreign.sentence, foreign.toData()])).not.toMatch(/secret|ENOENT|\.ts/);
  expect(internal).toEqual([expect.objectContaining({ message: 'ENOENT: /root/secret/path' })]);
});

test('a handler with a result that cannot be sent fails alone', async () => {
  const internal: unknown[] = [];
  const { client } = await connected({
    internal,
    handlers: { echo: ({ value }) => (value === 'long' ? { value: 'x'.repeat(2 ** 20) } : { value }) },
  });
  expect((await failure(client.call('echo', { value: 'long' }))).code).toBe('internal');
  expect(await client.call('echo', { value: 'short' })).toEqual({ value: 'short' });
  expect(internal).toHaveLength(1);
});

test('unknown methods and methods without a handler differ from failures', async () => {
  const { client } = await connected();
  expect((await failure(client.call('missing', {}))).code).toBe('method_not_found');
  // Our own client has no such methods: whoever says these words is somebody else.
  const { near, far } = await sockets.pair();
  const server = servingPeer(far);
  const answers = readToEnd(near);
  const names = ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'rpc.discover'];
  for (const [id, method] of names.entries())
    near.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params: {} })}\n`);
  const read = near.bytesRead;
  await waitUntil(() => near.bytesRead > read && server.runningRequests === 0);
  expect(server.isClosed).toBe(false);
  near.end();
  const lines = (await answers).toString().trimEnd().split('\n');
  const codes = lines.map((line) => {
    const { id, error } = JSON.parse(line) as { id: number; error?: { data: { code: string } } };
    return [id, error?.data.code];
  });
  expect(codes).toEqual(names.map((_, id) => [id, 'method_not_found']));
});

test('a method that the other side does not have yet is told with what to do', async () => {
  const { near, far } = await sockets.pair();
  servingPeer(far);
  const update = 'update it with `holdfast host update far`';
  const client = createSupervisorPeer(near, { name: 'the supervisor on far', update });
  await expect(client.call('move/identity', {})).rejects.toMatchObject({
    code: 'method_not_found',
    sentence: `The supervisor on far cannot do this yet; it is older than this program and has no move/identity; ${update}`,
  });
  client.close();
});

test('cancelling rejects at once and reaches the handler, and the late response is dropped', async () => {
  const ended: string[] = [];
  const { client, server } = await connected({ handlers: { hang: hangs(ended), ping: () => ({}) } });
  const controller = new AbortController();
  const calling = failure(client.call('hang', {}, { signal: controller.signal }));
  await waitUntil(() => server.runningRequests === 1);
  controller.abort();
  expect((await calling).code).toBe('cancelled');
  await waitUntil(() => ended.length === 1);
  expect(ended).toEqual(['cancelled']);
  expect(await client.call('ping', {})).toEqual({});
  expect(server.runningRequests).toBe(0);
  expect((await failure(client.call('ping', {}, { signal: controller.signal }))).code).toBe('cancelled');
});

test('a call that is asked to end early continues until its answer, which may be a result', async () => {
  const end = Promise.withResolvers<undefined>();
  const seen: string[] = [];
  const { client, server } = await connected({
    handlers: {
      ping: async (_params, { signal }) => {
        signal.addEventListener('abort', () => seen.push((signal.reason as HoldfastError).code));
        await end.promise;
        return {};
      },
    },
  });
  const controller = new AbortController();
  const { signal: cancel } = controller;
  const calling = client.call('ping', {}, { cancel });
  await waitUntil(() => server.runningRequests === 1);
  controller.abort();
  await waitUntil(() => seen.length === 1);
  expect(seen).toEqual(['cancelled']);
  expect(client.pendingCalls).toBe(1);
  end.resolve(undefined);
  expect(await calling).toEqual({});
  expect((await failure(client.call('ping', {}, { cancel }))).code).toBe('cancelled');
  expect(server.runningRequests).toBe(0);
});

test('a call that takes too long is cancelled with timeout', async () => {
  const ended: string[] = [];
  const { client } = await connected({ handlers: { hang: hangs(ended) } });
  const started = performance.now();
  expect((await failure(client.call('hang', {}, { timeoutMs: 30 }))).code).toBe('timeout');
  expect(performance.now() - started).toBeGreaterThan(25);
  await waitUntil(() => ended.length === 1);
});

test('progress reaches its own caller, in order', async () => {
  const { client } = await connected({
    handlers: {
      work: async ({ steps }, { progress }) => {
        for (let step = 1; step <= steps; step++) {
          progress('counting', step, steps, 'steps');
          await Promise.resolve();
        }
        return {};
      },
    },
  });
  const heard: [number, number | null][] = [];
  await Promise.all(
    [3, 5].map((steps) =>
      client.call('work', { steps }, { onProgress: ({ done, of }) => heard.push([of ?? 0, done]) }),
    ),
  );
  for (const steps of [3, 5]) {
    expect(heard.filter(([of]) => of === steps).map(([, done]) => done)).toEqual(
      Array.from({ length: steps }, (_, n) => n + 1),
    );
  }
});

test('notifications after a response arrive after its caller has continued', async () => {
  const { client, server } = await connected({
    handlers: {
      ping: () => {
        // Right behind the answer, in one write with it.
        queueMicrotask(() => setImmediate(() => undefined));
        void Promise.resolve().then(async () => {
          for (let turn = 0; turn < 20; turn++) await Promise.resolve();
          await server.notify('tick', { n: 1 });
        });
        return {};
      },
    },
  });
  for (let round = 0; round < 50; round++) {
    const order: string[] = [];
    const end = client.onNotification('tick', () => order.push('tick'));
    await client.call('ping', {});
    order.push('answer');
    await waitUntil(() => order.length === 2);
    expect(order).toEqual(['answer', 'tick']);
    end();
  }
});

test('notifications carry payloads and reach every listener, even if one throws', async () => {
  const { near, far } = await sockets.pair();
  const internal: unknown[] = [];
  const server = servingPeer(far);
  const client = callingPeer(near, undefined, internal);
  const heard: string[] = [];
  client.onNotification('chunk', () => {
    throw new Error('mine');
  });
  const end = client.onNotification('chunk', (_params, bytes) => heard.push(bytes.toString()));
  await server.notify('chunk', {}, Buffer.from('one'));
  await waitUntil(() => heard.length === 1);
  end();
  await server.notify('chunk', {}, Buffer.from('two'));
  await waitUntil(() => internal.length === 2);
  expect(heard).toEqual(['one']);
  await expect(server.notify('tick', { n: 'x' as unknown as number })).rejects.toMatchObject({
    code: 'invalid_params',
  });
  await expect(server.notify('tick', { n: 1 }, Buffer.from('x'))).rejects.toMatchObject({
    code: 'invalid_params',
  });
});

test('when the connection ends, every pending call rejects and every handler is aborted', async () => {
  const ended: string[] = [];
  for (const who of ['client', 'server'] as const) {
    const pair = await connected({ handlers: { hang: hangs(ended) } });
    const calls = [1, 2, 3].map(() => failure(pair.client.call('hang', {})));
    await waitUntil(() => pair.server.runningRequests === 3);
    pair[who].close();
    expect((await Promise.all(calls)).map(({ code }) => code)).toEqual(Array(3).fill('connection_closed'));
    await waitUntil(() => ended.length === 3);
    expect(ended.splice(0)).toEqual(Array(3).fill('connection_closed'));
    expect(await pair.client.closed).toBeUndefined();
    expect(await pair.server.closed).toBeUndefined();
    expect((await failure(pair.client.call('ping', {}))).code).toBe('connection_closed');
    expect((await failure(pair.server.notify('tick', { n: 1 }))).code).toBe('connection_closed');
  }
});

test('killing a process ends its connection', async () => {
  const { near, far } = await sockets.pair();
  const ended: string[] = [];
  const server = servingPeer(far, { handlers: { hang: hangs(ended) } });
  const client = callingPeer(near);
  const calling = failure(client.call('hang', {}));
  await waitUntil(() => server.runningRequests === 1);
  far.destroy();
  expect((await calling).code).toBe('connection_closed');
  await waitUntil(() => ended.length === 1);
});

test('closing with a reason sends it and responds to pending requests with it', async () => {
  const ended: string[] = [];
  const { client, server } = await connected({ handlers: { hang: hangs(ended) } });
  const calling = failure(client.call('hang', {}));
  await waitUntil(() => server.runningRequests === 1);
  server.close(new HoldfastError('shutting_down', 'The server leaves', { next: 'ask again' }));
  expect((await calling).code).toBe('shutting_down');
  const reason = await client.closed;
  expect([reason?.code, reason?.next]).toEqual(['shutting_down', 'ask again']);
  await waitUntil(() => ended.length === 1);
});

test('both ends can call each other on one connection', async () => {
  const { near, far } = await sockets.pair();
  const make = (stream: typeof near, name: string) =>
    new Peer({
      stream,
      name,
      serves: CALLS,
      calls: CALLS,
      sends: EMPTY_MAP,
      receives: EMPTY_MAP,
      partial: true,
      handlers: {
        echo: async ({ value }, { peer }) =>
          value === 'back' ? peer.call('echo', { value: name }) : { value },
      },
    });
  const left = make(near, 'right');
  const right = make(far, 'left');
  expect(await left.call('echo', { value: 'back' })).toEqual({ value: 'left' });
  expect(await right.call('echo', { value: 'back' })).toEqual({ value: 'right' });
});
