import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { duplexPair } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { acceptConnection } from '../../../sidecar/egress/accept.ts';
import { type Accepted, EgressListener } from '../../../sidecar/egress/listener.ts';
import { freePort } from '../../egress-harness/ports.ts';

const open: { close(): void }[] = [];
afterEach(() => {
  for (const one of open.splice(0)) one.close();
});

interface Setting {
  readonly accept: () => Promise<Accepted>;
  readonly dial: () => Promise<{ readonly socket: Socket; readonly ended: Promise<string> }>;
  readonly refused: () => number;
}

/** A listener whose first acceptor is there, so that it listens. */
async function listening(options: { acceptTimeoutMs: number; longestWaitMs?: number }): Promise<Setting> {
  const port = await freePort();
  const listener = new EgressListener('127.0.0.1', port, options);
  open.push(listener);
  let refused = 0;
  const ending = new AbortController();
  const accept = async (): Promise<Accepted> => {
    const accepted = await listener.accept(ending.signal, {
      listening: () => started.resolve(undefined),
      refused: (count) => (refused += count),
    });
    open.push({ close: () => accepted.socket.destroy() });
    return accepted;
  };
  const started = Promise.withResolvers<undefined>();
  const dial: Setting['dial'] = async () => {
    const socket = connect(port, '127.0.0.1');
    open.push({ close: () => socket.destroy() });
    const ended = new Promise<string>((resolve) => {
      socket.on('error', (error) => resolve('code' in error ? String(error.code) : error.message));
      socket.on('close', () => resolve('closed'));
    });
    await once(socket, 'connect');
    return { socket, ended };
  };
  const first = accept();
  await started.promise;
  await dial();
  await first;
  return { accept, dial, refused: () => refused };
}

test('on a slow machine the last of many connections waits for its turn, and none is lost', async () => {
  const { accept, dial, refused } = await listening({ acceptTimeoutMs: 400 });
  const clients = await Promise.all(Array.from({ length: 30 }, dial));
  let lost = 0;
  for (const { ended } of clients) void ended.then(() => (lost += 1));
  // Together they take three times as long as one waits while nobody is accepted.
  for (const _client of clients) {
    await accept();
    await sleep(40);
  }
  expect([lost, refused()]).toEqual([0, 0]);
});

test('connections that nobody accepts are reset together, and reported', async () => {
  const { accept, dial, refused } = await listening({ acceptTimeoutMs: 300 });
  const clients = await Promise.all(Array.from({ length: 5 }, dial));
  const began = performance.now();
  expect(await Promise.all(clients.map(({ ended }) => ended))).toEqual(clients.map(() => 'ECONNRESET'));
  expect(performance.now() - began).toBeLessThan(5000);
  const next = accept();
  await expect.poll(refused, { timeout: 5000 }).toBe(5);
  await dial();
  await next;
});

test('no connection waits longer than the longest wait, however many are accepted before it', async () => {
  const { accept, dial } = await listening({ acceptTimeoutMs: 10_000, longestWaitMs: 500 });
  const clients = await Promise.all(Array.from({ length: 3 }, dial));
  await accept();
  expect(await clients[2]?.ended).toBe('ECONNRESET');
});

test.each(['before it is told', 'when it is told', 'after it was told'] as const)(
  'a persistent port answers 503 when the supervisor dies %s of a connection, of which it has read nothing',
  async (when) => {
    const port = await freePort();
    const listener = new EgressListener('127.0.0.1', port, { persistent: true });
    open.push(listener);
    // The supervisor's connections close some time after its death.
    listener.lease(new Promise(() => undefined));
    const listens = Promise.withResolvers<undefined>();
    const first = listener.accept(new AbortController().signal, {
      listening: () => listens.resolve(undefined),
      refused: () => undefined,
    });
    await listens.promise;
    const dial = async (): Promise<Socket> => {
      const socket = connect(port, '127.0.0.1');
      open.push({ close: () => socket.destroy() });
      await once(socket, 'connect');
      return socket;
    };
    await dial();
    const { socket: taken } = await first;
    open.push({ close: () => taken.destroy() });

    const client = await dial();
    let text = '';
    const ended = new Promise<string>((resolve) => {
      client.on('data', (bytes) => (text += bytes.toString()));
      client.on('error', (error) => resolve('code' in error ? String(error.code) : error.message));
      client.on('end', () => resolve('end'));
    });
    client.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    const ending = new AbortController();
    const [carrier] = duplexPair();
    const peer = {
      pauseReading: () => () => undefined,
      detachStream: () => {
        if (when === 'after it was told') return carrier;
        ending.abort(new Error('gone'));
        throw new Error('the connection is closed');
      },
    };
    const accepted = acceptConnection(listener, peer, ending.signal, {
      listening: () => {
        if (when === 'before it is told') ending.abort(new Error('gone'));
      },
      refused: () => undefined,
    });
    if (when === 'before it is told') await expect(accepted).rejects.toThrow('gone');
    else await accepted;
    await new Promise(setImmediate);
    carrier.destroy();
    expect([await ended, text.slice(0, 13)]).toEqual(['end', 'HTTP/1.1 503 ']);
  },
);
