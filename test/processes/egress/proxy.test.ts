import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { InProcessEgress } from '../../egress-harness/in-process-egress.ts';
import { freePort } from '../../egress-harness/ports.ts';

/** A busy machine is slow. */
const PATIENT = { timeout: 15_000 } as const;

vi.setConfig({ testTimeout: 30_000 });

let seen: { method: string; url: string; headers: readonly string[]; body: string }[];
let answer: (request: IncomingMessage, response: ServerResponse) => void;
let server: Server;
let port: number;
let chain: InProcessEgress;
beforeEach(async () => {
  seen = [];
  answer = (_request, response) => response.end('hello');
  server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (chunk: Buffer) => parts.push(chunk));
    request.on('end', () => {
      const { method = '', url = '', rawHeaders } = request;
      seen.push({ method, url, headers: rawHeaders, body: Buffer.concat(parts).toString() });
      answer(request, response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  port = (server.address() as AddressInfo).port;
  chain = await InProcessEgress.open([`127.0.0.1:${port}`]);
});
afterEach(async () => {
  await chain.dispose();
  server.closeAllConnections();
  server.close();
});

const here = () => `127.0.0.1:${port}`;
const request = (lines: readonly string[], body = '') => `${lines.join('\r\n')}\r\n\r\n${body}`;
const get = (host = here(), path = '/', ...more: string[]) =>
  request([`GET http://${host}${path} HTTP/1.1`, `Host: ${host}`, ...more]);

/** Status line, headers and body. */
async function say(bytes: string | Buffer): Promise<{ status: number; head: string; body: string }> {
  const said = await chain.sendRaw(bytes);
  if (said === null) throw new Error('there was no answer');
  if (said.reset) throw new Error(`the connection was reset after ${JSON.stringify(said.text)}`);
  const [head = '', ...rest] = said.text.split('\r\n\r\n');
  return { status: Number(head.split(' ')[1]), head, body: rest.join('\r\n\r\n') };
}

describe('a plain request', () => {
  test('that is allowed is forwarded in origin form, and its response comes back', async () => {
    const { status, body } = await say(get(here(), '/a?b=c'));
    expect([status, body]).toEqual([200, 'hello']);
    expect(seen).toMatchObject([{ method: 'GET', url: '/a?b=c' }]);
    expect(chain.decisions()).toMatchObject([
      { decision: 'allowed', host: '127.0.0.1', port, method: 'GET', rule: here(), from: 'session' },
    ]);
  });

  test('is forwarded with its body and without hop-by-hop headers', async () => {
    const head = [
      `POST http://${here()}/ HTTP/1.1`,
      `Host: ${here()}`,
      'Content-Length: 5',
      'Connection: x-mine, keep-alive',
      'X-Mine: 1',
      'Proxy-Authorization: Basic eDp5',
      'X-Kept: 2',
    ];
    expect((await say(request(head, '12345'))).status).toBe(200);
    const [got] = seen;
    expect(got?.body).toBe('12345');
    const names = got?.headers.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase()) ?? [];
    expect(names.sort()).toEqual(['connection', 'content-length', 'host', 'x-kept']);
  });

  test('that is denied gets the rule that would allow it', async () => {
    const { status, head, body } = await say(get('example.com'));
    expect(status).toBe(403);
    expect(head).toContain('X-Holdfast-Egress: no_rule');
    expect(head).toContain(`X-Holdfast-Allow: holdfast policy allow ${chain.session} 'example.com'`);
    expect(body).toContain('no connection to example.com:80: no rule names it');
    expect(chain.decisions()).toMatchObject([
      { decision: 'denied', host: 'example.com', port: 80, reason: 'no_rule', allow: 'example.com' },
    ]);
  });

  test('whose Host header names another host on the same port is refused', async () => {
    const lines = [`GET http://${here()}/ HTTP/1.1`, `Host: evil.test:${port}`];
    expect((await say(request(lines))).status).toBe(400);
    const otherPort = [`GET http://${here()}/ HTTP/1.1`, `Host: 127.0.0.1:${port === 1 ? 2 : port - 1}`];
    expect((await say(request(otherPort))).status).toBe(400);
    expect(seen).toEqual([]);
  });

  test.each([
    ['two Host headers', ['Host: HERE', 'Host: evil.test']],
    ['none at all', []],
    ['two lengths', ['Host: HERE', 'Content-Length: 1', 'Content-Length: 2']],
    ['a length and chunks', ['Host: HERE', 'Content-Length: 4', 'Transfer-Encoding: chunked']],
    ['an encoding that is not chunked', ['Host: HERE', 'Transfer-Encoding: gzip, chunked']],
    ['an encoding twice', ['Host: HERE', 'Transfer-Encoding: chunked', 'Transfer-Encoding: identity']],
    ['an odd length', ['Host: HERE', 'Content-Length: +1']],
    ['a folded header', ['Host: HERE', 'X-A: 1', ' folded: 2']],
    ['a space before the colon', ['Host: HERE', 'Content-Length : 1']],
    ['a NUL in a value', ['Host: HERE', 'X-A: a\0b']],
  ])('with %s is not forwarded', async (_what, headers) => {
    const lines = [`POST http://${here()}/ HTTP/1.1`, ...headers.map((one) => one.replace('HERE', here()))];
    expect((await say(request(lines, '0\r\n\r\n'))).status).toBe(400);
    await sleep(20);
    expect(seen).toEqual([]);
  });

  test('with Expect: 100-continue gets 100 after the decision, not before', async () => {
    const head = (host: string) => [`POST http://${host}/ HTTP/1.1`, `Host: ${host}`, 'Content-Length: 2'];
    const said = await chain.sendRaw(request([...head(here()), 'Expect: 100-continue'], 'ab'));
    expect(said?.text).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/);
    expect(seen).toMatchObject([{ method: 'POST', body: 'ab' }]);
    expect((await say(request([...head('evil.test'), 'Expect: 100-continue'], 'ab'))).status).toBe(403);
    expect((await say(request([...head(here()), 'Expect: the worst'], 'ab'))).status).toBe(400);
  });

  test('is the only one on its connection', async () => {
    await say(get() + get(here(), '/second'));
    await sleep(50);
    expect(seen.map(({ url }) => url)).toEqual(['/']);
  });

  test('of an unsupported version or form is refused', async () => {
    const lines = [
      `GET / HTTP/1.1\r\nHost: ${here()}`,
      `GET ftp://${here()}/ HTTP/1.1\r\nHost: ${here()}`,
      `GET https://${here()}/ HTTP/1.1\r\nHost: ${here()}`,
      `GET http://user@${here()}/ HTTP/1.1\r\nHost: ${here()}`,
      `GET http://${here()}@evil.test/ HTTP/1.1\r\nHost: ${here()}`,
      `GET http://evil.test\\@${here()}/ HTTP/1.1\r\nHost: ${here()}`,
      `GET http:${here()}/ HTTP/1.1\r\nHost: ${here()}`,
      `OPTIONS * HTTP/1.1\r\nHost: ${here()}`,
    ];
    for (const line of lines) expect([line, (await say(request([line]))).status]).toEqual([line, 400]);
    expect(seen).toEqual([]);
  });

  test('gets an error if the server sends an invalid response', async () => {
    const odd = createTcpServer((socket) => socket.end('SSH-2.0-x\r\n')).listen(0, '127.0.0.1');
    await once(odd, 'listening');
    const place = `127.0.0.1:${(odd.address() as AddressInfo).port}`;
    chain.addRule('allow', place);
    expect((await say(get(place))).status).toBe(502);
    odd.close();
  });

  test.each([
    ['of a status that there is not', 'HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n', 502],
    ['that changes the protocol', 'HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n', 502],
    ['that changes the protocol to none', 'HTTP/1.1 101 x\r\n\r\n', 502],
    ['with a control character in its phrase', 'HTTP/1.1 200 a\x01b\r\nContent-Length: 0\r\n\r\n', 200],
  ])('gets an answer if the server sends one %s', async (_what, head, status) => {
    const odd = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => socket.write(Buffer.from(head, 'latin1')));
    }).listen(0, '127.0.0.1');
    await once(odd, 'listening');
    const place = `127.0.0.1:${(odd.address() as AddressInfo).port}`;
    chain.addRule('allow', place);
    expect((await say(get(place))).status).toBe(status);
    odd.close();
  });

  test('is reset if the response breaks off', async () => {
    answer = (_request, response) => {
      response.writeHead(200, { 'Content-Length': 1000 });
      response.write('half');
      setTimeout(() => response.socket?.resetAndDestroy(), 50);
    };
    expect(await chain.sendRaw(get())).toMatchObject({ reset: true });
  });
});

describe('CONNECT', () => {
  const connectTo = (host: string) => request([`CONNECT ${host} HTTP/1.1`, `Host: ${host}`]);

  test('opens a tunnel, whose end is reported with its byte counts', async () => {
    const socket = await chain.connect();
    socket.write(connectTo(here()));
    expect(String(await once(socket, 'data'))).toMatch(/^HTTP\/1\.1 200 /);
    socket.end(`GET / HTTP/1.0\r\nHost: x\r\n\r\n`);
    const parts: Buffer[] = [];
    for await (const chunk of socket) parts.push(chunk as Buffer);
    expect(Buffer.concat(parts).toString()).toContain('hello');
    await expect
      .poll(() => chain.decisions().map(({ decision }) => decision), PATIENT)
      .toEqual(['allowed', 'ended']);
    const [, ended] = chain.decisions();
    expect(ended?.bytesIn).toBeGreaterThan(100);
    expect(ended?.bytesOut).toBeGreaterThan(50);
  });

  test('forwards all bytes in order to fast and slow readers, also if the server speaks first and continues after our end', async () => {
    const bytes = randomBytes(6 * 2 ** 20);
    const talkative = createTcpServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => undefined);
      socket.write(bytes.subarray(0, 1000));
      const got: Buffer[] = [];
      socket.on('data', (chunk) => got.push(chunk));
      socket.on('end', () => {
        socket.write(Buffer.concat(got));
        // Pieces of all sizes, so that reads do not align with writes.
        for (let at = 1000; at < bytes.length; at += 1 + (at % 70_001))
          socket.write(bytes.subarray(at, at + 1 + (at % 70_001)));
        socket.end();
      });
    }).listen(0, '127.0.0.1');
    await once(talkative, 'listening');
    const place = `127.0.0.1:${(talkative.address() as AddressInfo).port}`;
    chain.addRule('allow', place);
    const whole = async (slow: boolean): Promise<Buffer> => {
      const socket = await chain.connect();
      socket.write(connectTo(place));
      // Its first bytes may arrive with the response.
      const parts: Buffer[] = [];
      const said = randomBytes(3000);
      socket.end(said);
      for await (const chunk of socket) {
        parts.push(chunk as Buffer);
        if (slow && parts.length % 8 === 0) await sleep(1);
      }
      const all = Buffer.concat(parts);
      const start = all.indexOf('\r\n\r\n') + 4;
      expect(all.subarray(start, start + 1000).equals(bytes.subarray(0, 1000))).toBe(true);
      expect(all.subarray(start + 1000, start + 4000).equals(said)).toBe(true);
      return all.subarray(start + 4000);
    };
    const got = await Promise.all([whole(false), whole(true), whole(false), whole(true)]);
    for (const one of got) expect(one.equals(bytes.subarray(1000))).toBe(true);
    talkative.close();
  }, 30_000);

  test('to a host without a rule gets a reason phrase, a JSON body and the command that would allow it', async () => {
    const { status, head, body } = await say(connectTo('api.example.com:443'));
    expect(status).toBe(403);
    expect(head.split('\r\n')[0]).toBe(
      'HTTP/1.1 403 Holdfast: api.example.com:443 is not allowed, no rule names it',
    );
    expect(JSON.parse(body)).toEqual({
      error: 'egress_denied',
      reason: 'no_rule',
      why: 'no rule names it',
      host: 'api.example.com',
      port: 443,
      allow: `holdfast policy allow ${chain.session} 'api.example.com'`,
    });
  });

  test('to another port of an allowed host is refused, and so is an unusual notation of a port', async () => {
    const otherPort = await say(connectTo('127.0.0.1:1'));
    expect([otherPort.status, otherPort.head]).toEqual([403, expect.stringContaining('other_port')]);
    for (const odd of [
      `127.0.0.1:0${port}`,
      `127.0.0.1:+${port}`,
      `127.0.0.1: ${port}`,
      '127.0.0.1',
      '127.0.0.1:',
    ])
      expect([odd, (await say(connectTo(odd))).status]).toEqual([odd, 400]);
  });

  test('with a body is refused', async () => {
    const lines = [`CONNECT ${here()} HTTP/1.1`, `Host: ${here()}`, 'Content-Length: 3'];
    expect((await say(request(lines, 'abc'))).status).toBe(400);
  });

  test('to a server that does not answer is refused with 502', async () => {
    const closed = `127.0.0.1:${await freePort()}`;
    chain.addRule('allow', closed);
    const { status, head } = await say(connectTo(closed));
    expect([status, head]).toEqual([502, expect.stringContaining('not_reached')]);
    await sleep(50);
    // It was never connected, so it has no end event.
    expect(chain.decisions().map(({ decision }) => decision)).toEqual(['allowed', 'failed']);
  });
});

describe('the rules of a session', () => {
  test('that are one-time allow one connection', async () => {
    const other = createServer((_request, response) => response.end('once')).listen(0, '127.0.0.1');
    await once(other, 'listening');
    const place = `127.0.0.1:${(other.address() as AddressInfo).port}`;
    chain.addRule('allow', place, 'once');
    expect((await say(get(place))).body).toBe('once');
    expect((await say(get(place))).status).toBe(403);
    other.close();
  });

  test('that deny close the connections they deny, and only those', async () => {
    const held: Socket[] = [];
    const quiet = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      held.push(socket);
    }).listen(0, '127.0.0.1');
    await once(quiet, 'listening');
    const place = `127.0.0.1:${(quiet.address() as AddressInfo).port}`;
    chain.addRule('allow', place);
    const open = async (host: string): Promise<Socket> => {
      const socket = await chain.connect();
      socket.write(request([`CONNECT ${host} HTTP/1.1`, `Host: ${host}`]));
      await once(socket, 'data');
      return socket;
    };
    const [cut, kept] = [await open(place), await open(here())];
    chain.addRule('deny', place);
    const [error] = (await once(cut, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('ECONNRESET');
    expect(kept.destroyed).toBe(false);
    for (const socket of held) socket.destroy();
    quiet.close();
  });

  test('that allow nothing leave no listener', async () => {
    chain.addRule('deny', here());
    await expect
      .poll(async () => {
        const socket = connect({ host: '127.0.0.1', port: chain.port });
        const outcome = await Promise.race([once(socket, 'connect'), once(socket, 'error')]).catch(
          (error: unknown) => (error instanceof Error && 'code' in error ? error.code : error),
        );
        socket.destroy();
        return outcome;
      }, PATIENT)
      .toBe('ECONNREFUSED');
  });
});

describe('a connection', () => {
  test('is reset when the supervisor dies, and the next one is served', async () => {
    answer = (_request, response) => {
      response.writeHead(200);
      response.write('first half');
    };
    const socket = await chain.connect();
    socket.write(get());
    await once(socket, 'data');
    chain.breakConnections();
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('ECONNRESET');
    answer = (_request, response) => response.end('again');
    await expect
      .poll(async () => (await chain.sendRaw(get()).catch(() => null))?.text ?? '', PATIENT)
      .toContain('again');
  });

  test('beyond the maximum of 1,024 per session is reset, and the resets are reported together', async () => {
    const held = await Promise.all(Array.from({ length: 1024 }, () => chain.connect()));
    const more = await Promise.all(Array.from({ length: 50 }, () => chain.connect()));
    await expect.poll(() => more.every(({ destroyed }) => destroyed), { timeout: 15_000 }).toBe(true);
    expect(held.filter(({ destroyed }) => destroyed)).toEqual([]);
    const told = () => chain.decisions().filter(({ reason }) => reason === 'too_many');
    const counted = () => told().reduce((sum, { count }) => sum + count, 0);
    await expect.poll(counted, { timeout: 20_000 }).toBe(50);
    expect(told().length).toBeLessThanOrEqual(2);
    expect(told()[0]).toMatchObject({ decision: 'denied', host: '' });
    for (const socket of held) socket.destroy();
    // Another connection is accepted again.
    await expect
      .poll(async () => (await chain.sendRaw(get()).catch(() => null))?.text ?? '', PATIENT)
      .toContain('hello');
  }, 60_000);
});
