import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { type IncomingMessage, request as httpRequest, type ServerResponse } from 'node:http';
import { duplexPair } from 'node:stream';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { CREDENTIAL_MESSAGE_BYTES } from '../../../egress-proxy/wire.ts';
import { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import { LocalProxy } from '../../egress-harness/local-proxy.ts';
import { ProxyProcess } from '../../../supervisor/egress/proxy-process.ts';
import { ChildProxies } from '../../egress-harness/child-proxy.ts';
import {
  CredentialChain,
  type CredentialChainOptions,
  SECRET,
} from '../../egress-harness/credential-chain.ts';
import { silent } from '../../egress-harness/in-process-egress.ts';

const PATIENT = { timeout: 20_000, interval: 20 } as const;
vi.setConfig({ testTimeout: 60_000 });

interface Setting {
  readonly chain: CredentialChain;
  readonly children: ChildProxies;
}

async function withProcess(options: CredentialChainOptions = {}): Promise<Setting> {
  const children = new ChildProxies();
  const proxy = new ProxyProcess({ launch: children.launch, log: silent });
  const chain = await CredentialChain.open({ ...options, proxy });
  onTestFinished(async () => {
    await chain.dispose();
    await proxy.close();
  });
  return { chain, children };
}

/** Whether a process has these bytes anywhere in its memory. */
async function hasInMemory(pid: number, wanted: Buffer): Promise<boolean> {
  const maps = await readFile(`/proc/${String(pid)}/maps`, 'utf8');
  const memory = await open(`/proc/${String(pid)}/mem`, 'r');
  try {
    for (const line of maps.split('\n')) {
      const [, from, to] = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(line) ?? [];
      if (from === undefined || to === undefined) continue;
      const start = Number.parseInt(from, 16);
      const bytes = Buffer.alloc(Number.parseInt(to, 16) - start);
      const got = await memory.read(bytes, 0, bytes.length, start).catch(() => null);
      if (got !== null && bytes.subarray(0, got.bytesRead).includes(wanted)) return true;
    }
    return false;
  } finally {
    await memory.close();
  }
}

describe('the process that reads requests with a credential', () => {
  test('never has the key in its memory', async () => {
    const { chain, children } = await withProcess({
      answer: (request, response) => response.end(String(request.headers.authorization?.length)),
    });
    const mark = 'a-header-that-is-looked-for';
    for (let at = 0; at < 20; at += 1) {
      const { body } = await chain.request('/', { headers: { 'X-Mark': mark } });
      expect(body).toBe(String(`Bearer ${SECRET}`.length));
    }
    const { pid } = children.latest;
    if (pid === undefined) throw new Error('it does not run');
    // What the client sent is there, so the search finds what there is.
    expect(await hasInMemory(pid, Buffer.from(mark))).toBe(true);
    for (const form of [SECRET, Buffer.from(SECRET).toString('base64'), encodeURIComponent(SECRET)])
      expect(await hasInMemory(pid, Buffer.from(form))).toBe(false);
  });

  test('that is killed in the middle of an answer resets it, and no request is sent twice', async () => {
    let served = 0;
    let aborted = 0;
    const { chain, children } = await withProcess({
      answer: (request, response) => {
        served += 1;
        request.once('close', () => (aborted += response.writableEnded ? 0 : 1));
        if (request.url === '/long') response.write('begun');
        else response.end('hello');
      },
    });
    const long = chain.sendRaw('GET /long HTTP/1.1\r\nHost: x\r\n\r\n', 20_000);
    await expect.poll(() => served, PATIENT).toBe(1);
    children.latest.kill('SIGKILL');
    expect(await long).toMatchObject({ reset: true });
    await expect.poll(() => aborted, PATIENT).toBe(1);
    await expect
      .poll(
        () =>
          chain
            .request('/')
            .then(({ body }) => body)
            .catch(() => ''),
        PATIENT,
      )
      .toBe('hello');
    expect(children.started).toHaveLength(2);
    expect(served).toBe(2);
  });

  test('that cannot be started lets nothing out: 503, and nothing reaches the server', async () => {
    let served = 0;
    const proxy = new ProxyProcess({
      launch: () => Promise.reject(new Error('no')),
      log: silent,
      waitMs: 200,
    });
    const chain = await CredentialChain.open({ proxy, answer: () => (served += 1) });
    const { status, body, headers } = await chain.request('/');
    expect([status, headers['x-holdfast-egress']]).toEqual([503, 'no_proxy']);
    expect(body).toContain('holdfast_no_proxy');
    expect(served).toBe(0);
    expect(chain.egress.decisions()).toContainEqual(
      expect.objectContaining({ decision: 'failed', reason: 'no_proxy' }),
    );
    await chain.dispose();
    await proxy.close();
  });
});

describe('one that was taken over', () => {
  type Say = (client: MessageChannel, exchange: (number: number) => Promise<MessageChannel>) => void;

  const request = {
    say: 'request',
    exchange: 1,
    method: 'GET',
    path: '/',
    headers: ['Host', 'x'],
  } as const;

  /** Serves the only connection of the sandbox with a process that says this. */
  async function taken(
    say: Say,
    answer?: (request: IncomingMessage, response: ServerResponse) => void,
  ): Promise<{ readonly text: string; readonly told: string; readonly chain: CredentialChain }> {
    const honest = new LocalProxy();
    const exchanges = new Map<number, PromiseWithResolvers<MessageChannel>>();
    const heard: unknown[] = [];
    const pair = (): [MessageChannel, MessageChannel] => {
      const [ours, theirs] = duplexPair();
      const channels: [MessageChannel, MessageChannel] = [
        new MessageChannel(ours, CREDENTIAL_MESSAGE_BYTES),
        new MessageChannel(theirs, CREDENTIAL_MESSAGE_BYTES),
      ];
      channels[1].on('message', (message: unknown) => heard.push(message));
      for (const channel of channels) channel.on('error', () => channel.destroy());
      return channels;
    };
    const of = (number: number): PromiseWithResolvers<MessageChannel> => {
      const known = exchanges.get(number) ?? Promise.withResolvers<MessageChannel>();
      exchanges.set(number, known);
      return known;
    };
    const chain = await CredentialChain.open({
      ...(answer === undefined ? {} : { answer }),
      proxy: {
        acquireLease: () => honest.acquireLease(),
        openClient: (session) => honest.openClient(session),
        openServer: (id) => honest.openServer(id),
        openCredential: () => {
          const [ours, evil] = pair();
          evil.resume();
          say(evil, (number) => of(number).promise);
          return Promise.resolve({ id: 1, channel: ours });
        },
        openExchange: (_id, number) => {
          const [ours, evil] = pair();
          of(number).resolve(evil);
          return Promise.resolve(ours);
        },
      },
    });
    onTestFinished(() => chain.dispose());
    const said = await chain.sendRaw('GET / HTTP/1.1\r\nHost: x\r\n\r\n', 3000);
    const text = said === null ? 'nothing' : said.reset ? 'reset' : said.text;
    return { text, told: JSON.stringify(heard), chain };
  }

  test.each<[string, object]>([
    ['a line break in its path', { ...request, path: '/ HTTP/1.1\r\nX: y' }],
    ['a space in its path', { ...request, path: '/ x' }],
    ['a line break in a value', { ...request, headers: ['X', 'a\r\nAuthorization: b'] }],
    ['a colon in a name', { ...request, headers: ['X: y', 'a'] }],
    ['a name without a value', { ...request, headers: ['X'] }],
    ['a method that is none', { ...request, method: 'GET /evil' }],
    ['a number of none', { ...request, exchange: 0 }],
    ['201 headers', { ...request, headers: Array.from({ length: 402 }, () => 'x') }],
    ['another kind of message', { say: 'secret' }],
  ])('cannot send a request with %s', async (_what, message) => {
    let served = 0;
    const { text, chain } = await taken(
      (client) => client.send(message),
      (_request, response) => {
        served += 1;
        response.end();
      },
    );
    expect(text).toBe('reset');
    expect(served).toBe(0);
    expect(chain.egress.decisions()).toEqual([]);
  });

  test('cannot name one request twice', async () => {
    const { text } = await taken((client, exchange) => {
      client.send(request);
      void exchange(1).then(() => client.send(request));
    });
    expect(text).toBe('reset');
  });

  test('is refused what the sandbox would be refused', async () => {
    const { told, chain } = await taken((client) => {
      client.send({ ...request, method: 'TRACE' });
      client.send({
        ...request,
        exchange: 2,
        headers: ['Content-Length', '1', 'Transfer-Encoding', 'chunked'],
      });
      client.send({ ...request, exchange: 3, path: 'http://evil.test/' });
    });
    expect(JSON.parse(told)).toMatchObject([
      { answer: 'refused', exchange: 1, status: 405 },
      { answer: 'refused', exchange: 2, status: 400 },
      { answer: 'refused', exchange: 3, status: 400 },
    ]);
    expect(chain.egress.decisions().map(({ decision }) => decision)).not.toContain('allowed');
  });

  test.each([
    ['longer', 'hi\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n'],
    ['shorter', 'h'],
  ])('cannot send a %s body than it says', async (_what, body) => {
    const paths: (string | undefined)[] = [];
    let whole = 0;
    const { text } = await taken(
      (client, exchange) => {
        client.send({ ...request, method: 'POST', headers: ['Content-Length', '2'] });
        void exchange(1).then((channel) => channel.end(body));
      },
      (served, response) => {
        paths.push(served.url);
        served.resume();
        served.on('error', () => undefined);
        served.on('end', () => {
          whole += 1;
          response.end();
        });
      },
    );
    expect(text).toBe('reset');
    expect(paths).not.toContain('/smuggled');
    expect(whole).toBe(0);
  });

  test('gets no key, whatever it asks', async () => {
    const { told } = await taken(
      (client, exchange) => {
        client.send(request);
        void exchange(1).then((channel) => {
          channel.end();
          channel.resume();
          channel.once('end', () => client.end('over'));
        });
      },
      (served, response) => response.end(String(served.headers.authorization?.length)),
    );
    expect(told).toContain('"status":200');
    expect(told).not.toContain(SECRET);
    expect(told).not.toContain(JSON.stringify(SECRET).slice(1, -1));
  });
});

test('100 MB up and down pass through a process that is reached by its input and output', async () => {
  const children = new ChildProxies();
  const proxy = new ProxyProcess({ launch: children.launchCarried, log: silent });
  const size = 100 * 2 ** 20;
  const chain = await CredentialChain.open({ proxy, answer: (request, response) => request.pipe(response) });
  const sent = httpRequest({ host: '127.0.0.1', port: chain.port, method: 'POST' });
  const answered = once(sent, 'response') as Promise<[IncomingMessage]>;
  const got = answered.then(async ([response]) => {
    const hash = createHash('sha256');
    for await (const part of response) hash.update(part as Buffer);
    return hash.digest('hex');
  });
  const hash = createHash('sha256');
  const piece = randomBytes(2 ** 20);
  for (let at = 0; at < size; at += piece.length) {
    hash.update(piece);
    if (!sent.write(piece)) await once(sent, 'drain');
  }
  sent.end();
  expect(await got).toBe(hash.digest('hex'));
  await chain.dispose();
  await proxy.close();
});

test('many requests at once on one connection are answered in order by the process', async () => {
  const { chain } = await withProcess({ answer: (request, response) => void response.end(request.url) });
  const socket = await chain.connect();
  const parts: Buffer[] = [];
  socket.on('data', (part: Buffer) => parts.push(part));
  const paths = Array.from({ length: 30 }, (_, at) => `/${String(at)}/`);
  const texts = paths.map(
    (path, at) => `GET ${path} HTTP/1.1\r\nHost: x\r\n${at === 29 ? 'Connection: close\r\n' : ''}\r\n`,
  );
  socket.write(texts.join(''));
  await once(socket, 'end');
  expect(
    Buffer.concat(parts)
      .toString()
      .match(/\/\d+\//g),
  ).toEqual(paths);
});
