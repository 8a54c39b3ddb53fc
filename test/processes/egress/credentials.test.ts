import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { request as httpRequest } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, onTestFinished, describe, expect, test, vi } from 'vitest';
import {
  CredentialChain,
  type CredentialChainOptions,
  SECRET,
} from '../../egress-harness/credential-chain.ts';
import { ProxyProcess } from '../../../supervisor/egress/proxy-process.ts';
import { ChildProxies } from '../../egress-harness/child-proxy.ts';
import { silent } from '../../egress-harness/in-process-egress.ts';
import { PLACEHOLDER_MARK } from '../../../protocol/credential-presets.ts';

const PATIENT = { timeout: 15_000 } as const;
vi.setConfig({ testTimeout: 30_000 });

/** One process for all tests, as for all sandboxes of a home. */
const children = new ChildProxies();
const proxy = new ProxyProcess({ launch: children.launch, log: silent, restMs: 60_000 });
afterAll(async () => {
  await proxy.close();
  // None of the tests has ended it.
  expect(children.started).toHaveLength(1);
});

async function open(options: CredentialChainOptions = {}): Promise<CredentialChain> {
  const chain = await CredentialChain.open({ proxy, ...options });
  onTestFinished(() => chain.dispose());
  return chain;
}

/** Answers with what arrived: method, path, headers, body. The credential in it is masked, or the guard would cut it. */
function mirror(request: IncomingMessage, response: ServerResponse): void {
  const parts: Buffer[] = [];
  request.on('data', (chunk: Buffer) => parts.push(chunk));
  request.on('end', () => {
    const { method, url, rawHeaders } = request;
    const text = JSON.stringify({ method, url, rawHeaders, body: Buffer.concat(parts).toString() });
    const masked = [SECRET, encodeURIComponent(SECRET), Buffer.from(SECRET).toString('base64')].reduce(
      (all, form) => all.replaceAll(JSON.stringify(form).slice(1, -1), 'THE-CREDENTIAL'),
      text,
    );
    response.end(masked);
  });
}
interface Mirrored {
  readonly method: string;
  readonly url: string;
  readonly rawHeaders: string[];
  readonly body: string;
}
const headersOf = ({ rawHeaders }: Mirrored): [string, string][] =>
  rawHeaders.flatMap((name, at): [string, string][] =>
    at % 2 === 0 ? [[name.toLowerCase(), rawHeaders[at + 1] ?? '']] : [],
  );

describe('a request with a credential', () => {
  test('has it, the real host, and nothing that the client sent in its place', async () => {
    const { request } = await opened({ answer: mirror });
    const said = await request('/v1/x?a=b', {
      method: 'POST',
      headers: {
        Host: 'evil.test',
        Authorization: 'Bearer sk-client',
        'X-Api-Key': 'client',
        X_Api_Key: 'client',
        Cookie: 'a=client',
        Range: 'bytes=0-1',
        'Accept-Encoding': 'gzip',
        'X-Kept': 'yes',
        Connection: 'keep-alive, X-Dropped',
        'X-Dropped': 'yes',
      },
      body: 'the body',
    });
    const arrived = JSON.parse(said.body) as Mirrored;
    const headers = headersOf(arrived);
    expect(arrived).toMatchObject({ method: 'POST', url: '/v1/x?a=b', body: 'the body' });
    expect(headers).toContainEqual(['authorization', 'Bearer THE-CREDENTIAL']);
    expect(headers).toContainEqual(['x-kept', 'yes']);
    expect(headers).toContainEqual(['accept-encoding', 'identity']);
    expect(headers.find(([name]) => name === 'host')?.[1]).toMatch(/^api\.test:/);
    const names = headers.map(([name]) => name);
    for (const dropped of ['x-api-key', 'x_api_key', 'cookie', 'range', 'x-dropped'])
      expect(names).not.toContain(dropped);
    expect(names.filter((name) => ['authorization', 'host'].includes(name))).toHaveLength(2);
    expect(said.body).not.toContain('client');
  });

  test.each([
    ['bearer', 'authorization', 'Bearer THE-CREDENTIAL'],
    ['basic', 'authorization', 'Basic THE-CREDENTIAL'],
    [{ header: 'X-Goog-Api-Key' }, 'x-goog-api-key', 'THE-CREDENTIAL'],
  ] as const)('as %j', async (as, name, value) => {
    const { request } = await opened({ answer: mirror, as });
    const { body } = await request('/');
    expect(headersOf(JSON.parse(body) as Mirrored)).toContainEqual([name, value]);
  });

  test('as a parameter, in place of one of the client', async () => {
    const { request } = await opened({ answer: mirror, as: { query: 'key' } });
    const { body } = await request('/v1?key=client&a=1&k%65y=client');
    expect((JSON.parse(body) as Mirrored).url).toBe('/v1?a=1&key=THE-CREDENTIAL');
  });

  test('without a secret is refused and reported; with one it works at once', async () => {
    const { chain, request } = await opened();
    chain.secret.value = null;
    const refused = await request('/');
    expect(refused.status).toBe(401);
    expect(refused.body).toContain('holdfast secret set KEY');
    chain.secret.value = 'another secret';
    expect((await request('/')).body).toBe('hello');
    expect(chain.egress.decisions().map(({ decision, reason }) => [decision, reason])).toContainEqual([
      'denied',
      'no_secret',
    ]);
  });

  test('whose secret cannot stand in a header is refused, and does not end the process', async () => {
    const { request } = await opened({ secret: 'two lines\r\nX-Evil: yes' });
    expect((await request('/')).status).toBe(401);
  });

  test('to a host that a person denies is refused; what runs ends', async () => {
    const { chain, request } = await opened({ answer: (_request, response) => void response.write('begun') });
    const socket = await chain.connect();
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await once(socket, 'data');
    const { host, port } = chain.credential;
    const closed = new Promise((resolve) => socket.once('close', resolve));
    chain.egress.addRule('deny', `${host}:${port}`);
    await closed;
    expect((await request('/')).status).toBe(403);
  });

  test('to a name that stands for a private address is refused', async () => {
    const chain = await open();
    chain.egress.policies.setRule(
      chain.egress.session,
      'deny',
      `127.0.0.1:${chain.credential.port}`,
      'session',
    );
    chain.egress.egress.applyRules();
    expect((await chain.request('/')).status).toBe(403);
  });

  test('goes out over TLS with a certificate for the host, or not at all', async () => {
    const chain = await open();
    const { credential } = chain;
    chain.egress.credentials = [{ ...credential, host: 'not-the-one.api.test.evil' }];
    chain.egress.egress.applyRules();
    const said = await chain.request('/');
    expect(said.status).toBe(502);
    expect(said.body).not.toMatch(/\/(tmp|home|root|usr|work)\b/);
  });
});

describe('what an answer may be', () => {
  test('a redirect is the client’s to follow', async () => {
    const { request } = await opened({
      answer: (_request, response) => response.writeHead(302, { Location: 'https://evil.test/x' }).end(),
    });
    const said = await request('/');
    expect([said.status, said.headers.location]).toEqual([302, 'https://evil.test/x']);
  });

  test('cookies, trailers and headers of the connection stay behind', async () => {
    const { request } = await opened({
      answer: (_request, response) => {
        response.writeHead(200, {
          'Set-Cookie': 'session=1',
          Trailer: 'X-Trailer',
          'X-Hop': 'yes',
          Connection: 'X-Hop',
          'X-Kept': 'yes',
        });
        response.write('body');
        response.addTrailers({ 'X-Trailer': 'yes' });
        response.end();
      },
    });
    const { headers, body } = await request('/');
    expect(body).toBe('body');
    expect(headers).toMatchObject({ 'x-kept': 'yes' });
    for (const name of ['set-cookie', 'trailer', 'x-hop', 'x-trailer'])
      expect(headers).not.toHaveProperty(name);
  });

  test('a stream arrives event by event', async () => {
    let push: (text: string) => void = () => undefined;
    const chain = await open({
      answer: (_request, response) => {
        response.writeHead(200, { 'Content-Type': 'text/event-stream' });
        response.flushHeaders();
        push = (text) => void response.write(text);
      },
    });
    const sent = httpRequest({ host: '127.0.0.1', port: chain.port, path: '/' }).end();
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    for (const text of ['data: one\n\n', 'data: two\n\n']) {
      push(text);
      const [chunk] = (await once(response, 'data')) as [Buffer];
      expect(chunk.toString()).toBe(text);
    }
    sent.destroy();
  });

  test('a broken one looks broken', async () => {
    const { request } = await opened({
      answer: (_request, response) => {
        response.writeHead(200, { 'Content-Length': '1000' });
        response.write('half');
        setTimeout(() => response.destroy(), 50);
      },
    });
    await expect(request('/')).rejects.toThrow();
  });

  test.each([
    ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
    ['a status out of range', 'HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n'],
    ['a status of 0', 'HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n'],
    ['an upgrade', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'],
    ['both lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['a header with a control character', 'HTTP/1.1 200 OK\r\nX: a\x01b\r\nContent-Length: 0\r\n\r\n'],
    ['too large a head', `HTTP/1.1 200 OK\r\nX: ${'a'.repeat(100_000)}\r\n\r\n`],
    ['too many headers', `HTTP/1.1 200 OK\r\n${'X: a\r\n'.repeat(500)}\r\n`],
    ['compressed', 'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx'],
    ['a part', 'HTTP/1.1 206 Partial\r\nContent-Length: 1\r\n\r\nx'],
    ['no HTTP', '\x00\xff\x00 nothing that anybody knows\r\n\r\n'],
    ['nothing', ''],
  ])('%s is withheld, and everything goes on', async (_what, bytes) => {
    let connections = 0;
    const chain = await open({
      raw: (socket) => {
        connections += 1;
        socket.on('error', () => undefined);
        socket.once('data', () => socket.end(Buffer.from(bytes, 'latin1')));
      },
    });
    const { status, body } = await chain.request('/', { method: 'POST', body: 'once' });
    expect(status).toBe(502);
    expect(JSON.parse(body)).toMatchObject({ type: 'error' });
    // It may have arrived, so it is not sent again.
    await sleep(50);
    expect(connections).toBe(1);
  });

  test('an invalid phrase is dropped, not the answer', async () => {
    const chain = await open({
      raw: (socket) =>
        void socket.once('data', () =>
          socket.end('HTTP/1.1 200 caf\xe9\x80\r\nContent-Length: 2\r\n\r\nok', 'latin1'),
        ),
    });
    expect(await chain.request('/')).toMatchObject({ status: 200, body: 'ok' });
  });
});

describe('an answer that repeats the credential', () => {
  const inside = Buffer.from(SECRET);
  const base64 = (before: string): string => Buffer.from(`${before}${SECRET}tail`).toString('base64');
  test.each([
    ['plain', SECRET],
    ['base64, first alignment', base64('')],
    ['base64, second alignment', base64('a')],
    ['base64, third alignment', base64('ab')],
    ['base64 for URLs', Buffer.from(`ab${SECRET}`).toString('base64url')],
    ['hex', inside.toString('hex')],
    ['hex in capitals', inside.toString('hex').toUpperCase()],
    ['percent-encoded', encodeURIComponent(SECRET)],
    ['percent-encoded, small', encodeURIComponent(SECRET).replaceAll(/%../g, (hex) => hex.toLowerCase())],
    ['form-encoded', new URLSearchParams({ a: SECRET }).toString().slice(2)],
    ['JSON', JSON.stringify({ a: SECRET })],
    [
      'JSON, escaped',
      `"${Array.from(SECRET, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')}"`,
    ],
  ])('%s is cut before its end, in whatever pieces it comes', async (_what, form) => {
    for (const size of [form.length, 7, 1]) {
      const chain = await open({
        answer: (_request, response) => {
          response.writeHead(200);
          response.write('before ');
          for (let at = 0; at < form.length; at += size) response.write(form.slice(at, at + size));
          response.end(' after');
        },
      });
      const said = await chain.sendRaw('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
      expect(said?.reset, String(size)).toBe(true);
      expect(said?.text).not.toContain('after');
      const body = said?.text.replaceAll(/\r\n[0-9a-f]+\r\n/g, '') ?? '';
      // What may stand there is a beginning of it that could have been something else.
      expect(body).not.toContain(form.slice(0, Math.ceil(form.length * 0.8)));
      chain.egress.egress.close();
      await sleep(10);
      expect(chain.egress.decisions().map(({ reason }) => reason)).toContain('echo');
      expect(JSON.stringify(chain.egress.decisions())).not.toContain('0123');
    }
  });

  test.each([
    ['in a header', 'HTTP/1.1 200 OK\r\nX-You-Sent: Bearer VALUE\r\nContent-Length: 0\r\n\r\n'],
    [
      'in a redirect',
      'HTTP/1.1 302 Found\r\nLocation: https://evil.test/?t=VALUE\r\nContent-Length: 0\r\n\r\n',
    ],
    ['in a cookie', 'HTTP/1.1 200 OK\r\nSet-Cookie: t=VALUE\r\nContent-Length: 0\r\n\r\n'],
    ['in the phrase', 'HTTP/1.1 200 VALUE\r\nContent-Length: 0\r\n\r\n'],
  ])('%s is withheld', async (_what, head) => {
    const secret = 'shortkey';
    const chain = await open({
      secret,
      raw: (socket) => void socket.once('data', () => socket.end(head.replace('VALUE', secret))),
    });
    const said = await chain.request('/');
    expect(said.status).toBe(502);
    expect(JSON.stringify([said.headers, said.body])).not.toContain(secret);
  });

  test('and other text passes whole, whatever its ends look like', async () => {
    const text = `sk-test/0123+4 ${'sk-'.repeat(1000)} ${SECRET.slice(0, -1)}`;
    const { request } = await opened({ answer: (_request, response) => response.end(text) });
    expect((await request('/')).body).toBe(text);
  });
});

describe('a hostile request', () => {
  const head = (...lines: string[]): string => `${lines.join('\r\n')}\r\n\r\n`;
  test.each([
    ['absolute form', head('GET http://evil.test/ HTTP/1.1', 'Host: x'), 400],
    ['absolute form of the host', head('GET https://api.test/ HTTP/1.1', 'Host: x'), 400],
    ['CONNECT', head('CONNECT evil.test:443 HTTP/1.1', 'Host: x'), 405],
    ['TRACE', head('TRACE / HTTP/1.1', 'Host: x'), 405],
    ['a star', head('OPTIONS * HTTP/1.1', 'Host: x'), 400],
    ['two lengths', head('POST / HTTP/1.1', 'Host: x', 'Content-Length: 1', 'Content-Length: 2') + 'ab', 400],
    [
      'equal lengths',
      head('POST / HTTP/1.1', 'Host: x', 'Content-Length: 1', 'Content-Length: 1') + 'a',
      400,
    ],
    [
      'a length and chunks',
      head('POST / HTTP/1.1', 'Host: x', 'Content-Length: 5', 'Transfer-Encoding: chunked') + '0\r\n\r\n',
      400,
    ],
    [
      'an odd encoding',
      head('POST / HTTP/1.1', 'Host: x', 'Transfer-Encoding: gzip, chunked') + '0\r\n\r\n',
      400,
    ],
    ['an upgrade', head('GET / HTTP/1.1', 'Host: x', 'Connection: upgrade', 'Upgrade: websocket'), 400],
    ['an expectation', head('GET / HTTP/1.1', 'Host: x', 'Expect: more'), 417],
    ['201 headers', head('GET / HTTP/1.1', ...Array.from({ length: 201 }, (_, at) => `X-${at}: a`)), 431],
    ['3,000 headers', head('GET / HTTP/1.1', ...Array.from({ length: 3000 }, () => 'X: a')), 431],
    ['a head of 1 MB', head('GET / HTTP/1.1', `X: ${'a'.repeat(1_000_000)}`), 431],
    ['a folded header', head('GET / HTTP/1.1', 'Host: x', ' folded'), 400],
    ['a space before the colon', head('GET / HTTP/1.1', 'Host: x', 'Authorization : a'), 400],
    ['another placeholder', head('GET / HTTP/1.1', 'Host: x', `A: sk-${PLACEHOLDER_MARK}`), 403],
    ['no HTTP', 'hello\r\n\r\n', 400],
  ])('with %s is refused with a status line, and never arrives', async (_what, bytes, status) => {
    let arrived = 0;
    const chain = await open({
      answer: (_request, response) => {
        arrived += 1;
        response.end('hello');
      },
    });
    const said = await chain.sendRaw(bytes);
    expect(said?.text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(said?.text).not.toMatch(/\/(tmp|home|root|usr|work)\//);
    expect(arrived).toBe(0);
    expect((await chain.request('/')).body).toBe('hello');
  });

  test('cannot smuggle a second one: what follows is a request of its own, with the credential and without the trailers', async () => {
    const { chain } = await opened({ answer: mirror });
    const said = await chain.sendRaw(
      head('POST /a HTTP/1.1', 'Host: x', 'Transfer-Encoding: chunked', 'Trailer: Authorization') +
        `2\r\nhi\r\n0\r\nAuthorization: Bearer client\r\n\r\n` +
        head('GET /b HTTP/1.1', 'Host: x', 'Connection: close'),
    );
    expect(said?.text.match(/HTTP\/1\.1 200/g)).toHaveLength(2);
    expect(said?.text.match(/THE-CREDENTIAL/g)).toHaveLength(2);
    expect(said?.text).not.toContain('client');
  });

  test('with Expect gets its 100 and its answer', async () => {
    const { request } = await opened({ answer: mirror });
    const said = await request('/', { method: 'POST', headers: { Expect: '100-continue' }, body: 'body' });
    expect(JSON.parse(said.body)).toMatchObject({ body: 'body' });
  });
});

describe('long requests', () => {
  test('100 MB up, slowly pipelined and down, whole', async () => {
    const size = 100 * 2 ** 20;
    const piece = randomBytes(2 ** 20);
    const { chain } = await opened({
      answer: (request, response) => {
        let got = 0;
        request.on('data', (chunk: Buffer) => (got += chunk.length));
        request.on('end', () => response.end(String(got)));
      },
    });
    const sent = httpRequest({
      host: '127.0.0.1',
      port: chain.port,
      method: 'POST',
      headers: { 'Content-Length': size },
    });
    for (let at = 0; at < size; at += piece.length) if (!sent.write(piece)) await once(sent, 'drain');
    sent.end();
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    const [body] = (await once(response, 'data')) as [Buffer];
    expect(body.toString()).toBe(String(size));
  });

  test('a new version of the secret cuts nothing', async () => {
    const begun = Promise.withResolvers<() => void>();
    const chain = await open({
      answer: (_request, response) => {
        response.write('begun ');
        begun.resolve(() => void response.end('ended'));
      },
    });
    const running = chain.request('/');
    const finish = await begun.promise;
    chain.secret.value = 'another value of it';
    chain.secret.version = 2;
    finish();
    expect((await running).body).toBe('begun ended');
  });

  test('one that thinks for longer than an unused connection is kept, on a connection that was used before', async () => {
    const served: unknown[] = [];
    const chain = await open({
      answer: (request, response) => {
        served.push(request.socket);
        setTimeout(() => response.end('thought'), request.url === '/think' ? 6000 : 0);
      },
    });
    await chain.request('/');
    expect((await chain.request('/think')).body).toBe('thought');
    expect(served[1]).toBe(served[0]);
  });

  test('one that waits behind a slow one is not cut', async () => {
    const { chain } = await opened({
      answer: (request, response) =>
        void setTimeout(() => response.end(request.url), request.url === '/slow' ? 1500 : 0),
    });
    const said = await chain.sendRaw(
      'GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /fast HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
    );
    expect(said?.text.match(/\/slow|\/fast/g)).toEqual(['/slow', '/fast']);
  });
});

describe('limits and events', () => {
  test('requests at a time', async () => {
    const chain = await open({
      limits: { concurrent: 2 },
      answer: (_request, response) => void setTimeout(() => response.end('ok'), 300),
    });
    const all = await Promise.all(['/1', '/2', '/3'].map((path) => chain.request(path)));
    expect(all.map(({ status }) => status).sort()).toEqual([200, 200, 429]);
    expect((await chain.request('/')).status).toBe(200);
  });

  test('requests a minute', async () => {
    const chain = await open({ limits: { requests: 3 } });
    const all: number[] = [];
    for (let at = 0; at < 5; at += 1) all.push((await chain.request('/')).status);
    expect(all).toEqual([200, 200, 200, 429, 429]);
  });

  test('bytes an hour, in the middle of an answer', async () => {
    const chain = await open({
      limits: { bytes: 100_000 },
      answer: (_request, response) => response.end(Buffer.alloc(1_000_000, 'a')),
    });
    await expect(chain.request('/')).rejects.toThrow();
    expect((await chain.request('/')).status).toBe(429);
  });

  test('a long answer reports its bytes before it ends, each once', async () => {
    const chain = await open({
      carriedMs: 50,
      answer: (_request, response) => {
        response.write('0123456789');
        setTimeout(() => response.end('01234'), 400);
      },
    });
    const running = chain.request('/');
    await expect
      .poll(() => chain.egress.decisions().find(({ decision }) => decision === 'carried'), PATIENT)
      .toMatchObject({ bytesIn: 10, credential: chain.credential.name });
    expect(chain.egress.decisions().map(({ decision }) => decision)).not.toContain('ended');
    await running;
    await expect
      .poll(() => chain.egress.decisions().find(({ decision }) => decision === 'ended'), PATIENT)
      .toMatchObject({ bytesIn: 5 });
  });

  test('a thousand requests are a few events, and no event has a value', async () => {
    const chain = await open({ limits: { requests: 5000 } });
    for (let at = 0; at < 20; at += 1)
      await Promise.all(Array.from({ length: 50 }, () => chain.request('/x')));
    const events = chain.egress.decisions();
    expect(events.length).toBeLessThan(10);
    expect(events[0]).toMatchObject({
      decision: 'allowed',
      method: 'GET',
      credential: chain.credential.name,
    });
    chain.egress.egress.close();
    await sleep(20);
    const told = chain.egress.decisions().filter(({ decision }) => decision === 'ended');
    expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(1000);
    expect(told.reduce((sum, { bytesIn }) => sum + bytesIn, 0)).toBe(5000);
    expect(JSON.stringify(chain.egress.decisions())).not.toContain('sk-test');
  });
});

describe('the port', () => {
  test('stays while no supervisor is there, and answers 503', async () => {
    const chain = await open();
    expect((await chain.request('/')).status).toBe(200);
    chain.egress.egress.close();
    await vi.waitFor(async () => {
      const said = await chain.sendRaw('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
      expect(said?.text).toMatch(/^HTTP\/1.1 503 /);
      expect(said?.reset).toBe(false);
    }, PATIENT);
  });
});

test('a placeholder that is sent through the proxy is refused and reported', async () => {
  const chain = await open();
  const target = `127.0.0.1:${chain.credential.port}`;
  const said = await chain.egress.sendRaw(
    `GET http://${target}/ HTTP/1.1\r\nHost: ${target}\r\nX-Api-Key: sk-${PLACEHOLDER_MARK}\r\n\r\n`,
  );
  expect(said?.text).toMatch(/^HTTP\/1.1 403 /);
  expect(said?.text).toContain('X-Holdfast-Egress: placeholder');
  expect(chain.egress.decisions()).toMatchObject([{ decision: 'denied', reason: 'placeholder' }]);
});

async function opened(options: CredentialChainOptions = {}) {
  const chain = await open(options);
  return { chain, request: chain.request.bind(chain) };
}
