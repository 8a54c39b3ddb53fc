import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import type { Log } from '../../../supervisor/base/log.ts';
import { LocalProxy } from '../../egress-harness/local-proxy.ts';
import { ProxyProcess, type ProxyProcessOptions } from '../../../supervisor/egress/proxy-process.ts';
import { ChildProxies } from '../../egress-harness/child-proxy.ts';
import { InProcessEgress } from '../../egress-harness/in-process-egress.ts';

/** A busy machine is slow. */
const PATIENT = { timeout: 20_000, interval: 20 } as const;

vi.setConfig({ testTimeout: 60_000, hookTimeout: 30_000 });

const silent: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {}, child: () => silent };

let server: Server;
let port: number;
/** Answers to `/held` wait for it. */
let hold: PromiseWithResolvers<undefined>;
let held: number;
beforeEach(async () => {
  held = 0;
  hold = Promise.withResolvers();
  server = createServer((request, response) => {
    if (request.url !== '/held') {
      response.end('hello');
      return;
    }
    held += 1;
    response.write('begun ');
    void hold.promise.then(() => response.end('done'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  port = (server.address() as AddressInfo).port;
});
afterEach(() => {
  hold.resolve(undefined);
  server.closeAllConnections();
  server.close();
});

const here = () => `127.0.0.1:${port}`;
const get = (path = '/') => `GET http://${here()}${path} HTTP/1.1\r\nHost: ${here()}\r\n\r\n`;

interface Chain {
  readonly children: ChildProxies;
  readonly chain: InProcessEgress;
}

async function withProcess(
  work: (parts: Chain) => Promise<void>,
  options: Partial<ProxyProcessOptions> = {},
): Promise<void> {
  const children = new ChildProxies();
  const proxy = new ProxyProcess({ launch: children.launch, log: silent, waitMs: 20_000, ...options });
  const chain = await InProcessEgress.open([here()], { proxy });
  try {
    await work({ children, chain });
  } finally {
    await chain.dispose();
    await proxy.close();
    for (const child of children.started) expect(child.exitCode ?? child.signalCode).not.toBeNull();
  }
}

/** The status of the answer; 0 if there is none. */
async function status(chain: InProcessEgress, text = get()): Promise<number> {
  const said = await chain.sendRaw(text, 20_000);
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(said?.text ?? '')?.[1] ?? 0);
}

describe('the egress proxy', () => {
  test('that is killed ends its requests, is started again, and loses no tunnel', async () => {
    await withProcess(async ({ children, chain }) => {
      chain.addRule('allow', here(), 'session', { tcp: true });
      const tunnel = await chain.connect();
      tunnel.write(`CONNECT ${here()} HTTP/1.1\r\nHost: ${here()}\r\n\r\n`);
      expect(String((await once(tunnel, 'data'))[0])).toContain(' 200 ');
      const plain = chain.sendRaw(get('/held'), 20_000);
      await expect.poll(() => held, PATIENT).toBe(1);
      children.latest.kill('SIGKILL');
      // Its server has heard of it, so it is not told to try again.
      expect(await plain).toMatchObject({ reset: true });
      // Nobody reads what a tunnel carries, so nobody misses the process.
      tunnel.write(`GET / HTTP/1.1\r\nHost: ${here()}\r\n\r\n`);
      expect(String((await once(tunnel, 'data'))[0])).toContain('hello');
      await expect.poll(() => status(chain), PATIENT).toBe(200);
      expect(children.started).toHaveLength(2);
      expect(held).toBe(1);
    });
  });

  test('that is killed under 200 requests ends each, and serves 200 more', async () => {
    await withProcess(async ({ children, chain }) => {
      const many = (path: string) => Array.from({ length: 200 }, () => chain.sendRaw(get(path), 30_000));
      const first = many('/held');
      await expect.poll(() => held, PATIENT).toBeGreaterThan(20);
      children.latest.kill('SIGKILL');
      hold.resolve(undefined);
      for (const said of await Promise.all(first)) {
        expect(said).not.toBeNull();
        // A part of an answer never looks like all of it.
        const whole =
          said?.text.includes(' 503 ') === true || said?.text.endsWith('done\r\n0\r\n\r\n') === true;
        expect([said?.reset, said?.text]).toEqual([whole ? false : true, said?.text]);
      }
      await expect.poll(() => status(chain), PATIENT).toBe(200);
      for (const said of await Promise.all(many('/'))) expect(said?.text).toContain('hello');
      await expect.poll(() => chain.connectionCount, PATIENT).toBeLessThan(50);
    });
  });

  test('that is frozen is replaced', async () => {
    await withProcess(
      async ({ children, chain }) => {
        expect(await status(chain)).toBe(200);
        children.latest.kill('SIGSTOP');
        const said = await chain.sendRaw(get(), 20_000);
        expect(said?.text).toContain('HTTP/1.1 503 ');
        expect(said?.text).toContain('X-Holdfast-Egress: no_proxy');
        await expect.poll(() => status(chain), PATIENT).toBe(200);
        expect(children.started).toHaveLength(2);
        expect(chain.decisions()).toContainEqual(
          expect.objectContaining({ decision: 'failed', reason: 'no_proxy' }),
        );
      },
      { pulseMs: 100, frozenMs: 1500 },
    );
  });

  test('whose connections are carried by its input and output serves 400 at once, and is replaced when killed', async () => {
    const children = new ChildProxies();
    await withProcess(
      async ({ chain }) => {
        const all = await Promise.all(Array.from({ length: 400 }, () => chain.sendRaw(get(), 30_000)));
        for (const said of all) expect(said).toMatchObject({ reset: false });
        for (const said of all) expect(said?.text).toContain('hello');
        const plain = chain.sendRaw(get('/held'), 20_000);
        await expect.poll(() => held, PATIENT).toBe(1);
        children.latest.kill('SIGKILL');
        expect(await plain).toMatchObject({ reset: true });
        await expect.poll(() => status(chain), PATIENT).toBe(200);
        expect(children.started).toHaveLength(2);
      },
      { launch: children.launchCarried },
    );
  });

  test('that cannot be reached any more is replaced', async () => {
    const children = new ChildProxies();
    let isReachable = true;
    const launch: ProxyProcessOptions['launch'] = async () => {
      const running = await children.launch();
      const isFirst = children.started.length === 1;
      const dial = () => (isFirst && !isReachable ? Promise.reject(new Error('no')) : running.dial());
      return { ...running, dial };
    };
    await withProcess(
      async ({ chain }) => {
        expect(await status(chain)).toBe(200);
        isReachable = false;
        // The streams that are open already serve a few clients.
        await expect.poll(() => status(chain), { timeout: 20_000, interval: 1 }).toBe(503);
        await expect.poll(() => status(chain), PATIENT).toBe(200);
        expect(children.started).toHaveLength(2);
      },
      { launch, pulseMs: 100, frozenMs: 5000 },
    );
    for (const child of children.started) expect(child.exitCode ?? child.signalCode).not.toBeNull();
  });

  test('that starts too late, when another one runs, leaves that one alone', async () => {
    const children = new ChildProxies();
    const late = Promise.withResolvers<undefined>();
    let launches = 0;
    const launch: ProxyProcessOptions['launch'] = async () => {
      launches += 1;
      if (launches === 1) await late.promise;
      return await children.launch();
    };
    const proxy = new ProxyProcess({ launch, log: silent, restMs: 1, waitMs: 5000 });
    proxy.acquireLease()();
    await sleep(50);
    const release = proxy.acquireLease();
    (await proxy.openClient('ses-1')).channel.destroy();
    late.resolve(undefined);
    await expect.poll(() => children.started[1]?.signalCode, PATIENT).toBe('SIGKILL');
    (await proxy.openClient('ses-1')).channel.destroy();
    expect(launches).toBe(2);
    release();
    await proxy.close();
  });

  test('gets no server that has broken its connection meanwhile: the request is refused', async () => {
    const breaking = createTcpServer((socket) => void setTimeout(() => socket.resetAndDestroy(), 50));
    breaking.listen(0, '127.0.0.1');
    await once(breaking, 'listening');
    const place = `127.0.0.1:${(breaking.address() as AddressInfo).port}`;
    const honest = new LocalProxy();
    const chain = await InProcessEgress.open([place], {
      proxy: {
        acquireLease: () => honest.acquireLease(),
        openClient: (session) => honest.openClient(session),
        openCredential: () => honest.openCredential(),
        openExchange: (...of) => honest.openExchange(...of),
        openServer: async (id) => {
          await sleep(200);
          return await honest.openServer(id);
        },
      },
    });
    expect(await status(chain, `GET http://${place}/ HTTP/1.1\r\nHost: ${place}\r\n\r\n`)).toBe(502);
    await chain.dispose();
    breaking.close();
  });

  test('that cannot be started means no network, with a status line, until it can', async () => {
    let isBroken = true;
    const children = new ChildProxies();
    const launch: ProxyProcessOptions['launch'] = () =>
      isBroken ? Promise.reject(new Error('no')) : children.launch();
    await withProcess(
      async ({ chain }) => {
        expect(await status(chain)).toBe(503);
        isBroken = false;
        await expect.poll(() => status(chain), PATIENT).toBe(200);
      },
      { launch, waitMs: 300 },
    );
  });

  test('ends with its stdin, as when the supervisor is killed', async () => {
    const children = new ChildProxies();
    const { exited } = await children.launch();
    children.latest.stdin.end();
    expect(await exited).toBe('it ended with 0');
  });

  test('rests when no sandbox needs it, and is there again for the next', async () => {
    const children = new ChildProxies();
    const proxy = new ProxyProcess({ launch: children.launch, log: silent, restMs: 1 });
    const release = proxy.acquireLease();
    (await proxy.openClient('ses-1')).channel.destroy();
    release();
    await expect.poll(() => children.latest.signalCode, PATIENT).toBe('SIGKILL');
    const again = proxy.acquireLease();
    (await proxy.openClient('ses-1')).channel.destroy();
    expect(children.started).toHaveLength(2);
    again();
    await proxy.close();
  });

  test('reads a request that comes byte by byte', async () => {
    await withProcess(async ({ chain }) => {
      const socket = await chain.connect();
      const text = once(socket, 'data');
      for (const byte of get()) {
        socket.write(byte);
        await new Promise(setImmediate);
      }
      expect(String((await text)[0])).toContain(' 200 ');
    });
  });
});

describe('a proxy that was taken over', () => {
  type Say = (channel: MessageChannel) => void;

  /** Serves one client of the sandbox with a process that says this. */
  async function taken(say: Say, answers: unknown[] = []): Promise<{ text: string; chain: InProcessEgress }> {
    const honest = new LocalProxy();
    const chain = await InProcessEgress.open([here()], {
      proxy: {
        acquireLease: () => honest.acquireLease(),
        openServer: (id) => honest.openServer(id),
        openCredential: () => honest.openCredential(),
        openExchange: (...of) => honest.openExchange(...of),
        openClient: () => {
          const [ours, theirs] = duplexPair();
          const evil = new MessageChannel(theirs);
          evil.on('message', (message: unknown) => answers.push(message));
          evil.on('error', () => undefined);
          evil.resume();
          const channel = new MessageChannel(ours);
          say(evil);
          return Promise.resolve({ id: 1, channel });
        },
      },
    });
    const said = await chain.sendRaw(get(), 10_000);
    return { text: said === null ? 'nothing' : said.reset ? 'reset' : said.text, chain };
  }

  test.each<[string, Say]>([
    ['carry what was never decided', (evil) => evil.send({ say: 'carry', from: 0 })],
    [
      'dial a host in another form',
      (evil) => evil.send({ say: 'dial', method: 'GET', host: 'OPEN.test.', port: 1 }),
    ],
    [
      'dial an address in another form',
      (evil) => evil.send({ say: 'dial', method: 'GET', host: '127.1', port: 1 }),
    ],
    ['dial no port', (evil) => evil.send({ say: 'dial', method: 'GET', host: 'open.test', port: 70_000 })],
    [
      'use a method with a line break',
      (evil) => evil.send({ say: 'dial', method: 'GET\n', host: 'open.test', port: 1 }),
    ],
    ['request from what was never dialled', (evil) => evil.send({ say: 'request', method: 'GET' })],
    ['say what it never says', (evil) => evil.send({ say: 'allow', host: 'evil.test' })],
  ])('cannot %s', async (_what, say) => {
    const { text, chain } = await taken(say);
    expect(text).toBe('reset');
    expect(chain.decisions()).toEqual([]);
    await chain.dispose();
  });

  test('gets no server that the rules do not allow, however it asks', async () => {
    const other = createTcpServer();
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    let reached = 0;
    other.on('connection', () => (reached += 1));
    const { port: denied } = other.address() as AddressInfo;
    const answers: unknown[] = [];
    const { text, chain } = await taken((evil) => {
      evil.send({ say: 'dial', method: 'CONNECT', host: '127.0.0.1', port: denied });
      evil.on('message', () => evil.end('over'));
    }, answers);
    expect(text).toBe('over');
    expect(answers).toMatchObject([{ answer: 'refused', reason: 'other_port' }]);
    expect(chain.decisions()).toMatchObject([{ decision: 'denied', port: denied }]);
    expect(reached).toBe(0);
    await chain.dispose();
    other.close();
  });

  test('cannot dial twice for one connection', async () => {
    const answers: unknown[] = [];
    const { text, chain } = await taken((evil) => {
      const dial = { say: 'dial', method: 'CONNECT', host: '127.0.0.1', port };
      evil.send(dial);
      evil.once('message', () => evil.send(dial));
    }, answers);
    expect(text).toBe('reset');
    expect(chain.decisions().filter(({ decision }) => decision === 'allowed')).toHaveLength(1);
    await chain.dispose();
  });

  test('cannot make the supervisor keep what it sends: a message has a limit, a frame a kind', async () => {
    for (const frame of [
      Buffer.from([2, 0, 1, 0, 1]),
      Buffer.from([2, 255, 255, 255, 255]),
      Buffer.from([0, 255, 255, 255, 255]),
      Buffer.from([7, 0, 0, 0, 1, 0]),
      Buffer.concat([Buffer.from([2, 0, 0, 0, 16]), Buffer.from('{"__proto__":{}}')]),
      Buffer.concat([Buffer.from([2, 0, 0, 0, 3]), Buffer.from('[1]')]),
    ]) {
      const [ours, theirs]: [Duplex, Duplex] = duplexPair();
      const channel = new MessageChannel(ours);
      const lost = new Promise((resolve) => channel.once('close', resolve));
      channel.on('error', () => undefined);
      theirs.write(frame);
      await lost;
    }
  });
});

test('who does not say what a connection is for gets nothing', async () => {
  const children = new ChildProxies();
  const { exited, stop, dial } = await children.launch();
  const stream = await dial();
  stream.write(Buffer.from([2, 0, 0, 0, 2, 0x7b, 0x7d]));
  await once(stream.resume(), 'close');
  await stop();
  await exited;
});
