import { once } from 'node:events';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ECH, helloMessage, inRecords } from '../../egress-harness/client-hello.ts';
import { InProcessEgress } from '../../egress-harness/in-process-egress.ts';
import { TEST_CERTIFICATE } from '../../egress-harness/test-certificate.ts';

/** A busy machine is slow. */
const PATIENT = { timeout: 15_000 } as const;

vi.setConfig({ testTimeout: 30_000 });

/** The certificate of the tests has these names. */
const HOST = 'api.test';
const OTHER = 'other.api.test';
/** Fatal `access_denied`. */
const ALERT = '\x15\x03\x03\x00\x02\x02\x31';

let tls: Server;
/** A server that only records what it gets; with a greeting it speaks first. */
let recorder: Server;
let greeting: string;
let got: Buffer[];
let web: HttpServer;
let requested: string[];
let chain: InProcessEgress;
const sockets = new Set<Socket>();

beforeEach(async () => {
  got = [];
  greeting = '';
  requested = [];
  tls = createTlsServer(TEST_CERTIFICATE, (socket) => {
    socket.on('error', () => undefined);
    socket.end(`hello ${String(socket.servername)}`);
  });
  recorder = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => got.push(chunk));
    socket.write(greeting);
  });
  web = createHttpServer((request, response) => {
    requested.push(`${request.method ?? ''} ${request.url ?? ''} ${request.headers.host ?? ''}`);
    response.end('web');
  });
  const servers = [tls, recorder, web];
  for (const server of servers) {
    server.on('connection', (socket: Socket) => {
      sockets.add(socket);
      socket.on('error', () => undefined);
    });
    server.listen(0, '127.0.0.1');
  }
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map(portOf);
  chain = await InProcessEgress.open(
    ports.flatMap((port) => [`${HOST}:${String(port)}`, `127.0.0.1:${String(port)}`]),
    { resolve: () => Promise.resolve(['127.0.0.1']) },
  );
});
afterEach(async () => {
  await chain.dispose();
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  for (const server of [tls, recorder, web]) server.close();
});

const portOf = (server: Server): number => (server.address() as AddressInfo).port;
const connectTo = (server: Server, host = HOST): string =>
  `CONNECT ${host}:${String(portOf(server))} HTTP/1.1\r\nHost: ${host}:${String(portOf(server))}\r\n\r\n`;

/** Opens a tunnel and waits for its answer. */
async function tunnel(server: Server, host = HOST): Promise<Socket> {
  const socket = await chain.connect();
  socket.write(connectTo(server, host));
  expect(String(await once(socket, 'data'))).toBe('HTTP/1.1 200 Connection established\r\n\r\n');
  return socket;
}

/** What comes back to the end. */
async function rest(socket: Socket): Promise<string> {
  const parts: Buffer[] = [];
  for await (const chunk of socket) parts.push(chunk as Buffer);
  return Buffer.concat(parts).toString('latin1');
}

const reasons = () => chain.decisions().map(({ decision, reason }) => [decision, reason]);

describe('TLS in a tunnel', () => {
  const greet = async (servername: string): Promise<string> => {
    const socket = connectTls({ socket: await tunnel(tls), servername, rejectUnauthorized: false });
    return rest(socket);
  };

  test('is carried if it names the host of the tunnel', async () => {
    expect(await greet(HOST)).toBe(`hello ${HOST}`);
    await expect.poll(reasons, PATIENT).toEqual([
      ['allowed', null],
      ['ended', null],
    ]);
  });

  test('is carried however its first bytes are split', async () => {
    const inner = connectTls({
      socket: slowly(await tunnel(tls)),
      servername: HOST,
      rejectUnauthorized: false,
    });
    expect(await rest(inner)).toBe(`hello ${HOST}`);
    const message = helloMessage({ names: [HOST] });
    const socket = await tunnel(recorder);
    const bytes = inRecords(message, [1, 2, 3, 5, 8, 13]);
    socket.write(bytes.subarray(0, 9));
    await sleep(20);
    expect(got).toEqual([]);
    socket.write(bytes.subarray(9));
    await expect.poll(() => Buffer.concat(got).equals(bytes), PATIENT).toBe(true);
    socket.write('and more');
    await expect.poll(() => Buffer.concat(got).toString('latin1'), PATIENT).toMatch(/and more$/);
  });

  test('that names another host is refused with an alert, and the server receives nothing', async () => {
    await expect(greet(OTHER)).rejects.toMatchObject({ code: 'ERR_SSL_TLSV1_ALERT_ACCESS_DENIED' });
    expect(chain.decisions()).toMatchObject([
      { decision: 'allowed', host: HOST },
      { decision: 'denied', reason: 'sni_mismatch', host: HOST, serverName: OTHER, method: 'CONNECT' },
    ]);
    const socket = await tunnel(recorder);
    socket.write(inRecords(helloMessage({ names: [OTHER] }), [40]));
    expect(await rest(socket)).toBe(ALERT);
    expect(got).toEqual([]);
  });

  test('that came with the CONNECT is judged too', async () => {
    const hello = inRecords(helloMessage({ names: [OTHER] }));
    const said = await chain.sendRaw(Buffer.concat([Buffer.from(connectTo(recorder)), hello]));
    expect(said?.text.endsWith(`\r\n\r\n${ALERT}`)).toBe(true);
    const fine = await chain.connect();
    fine.write(Buffer.concat([Buffer.from(connectTo(recorder)), inRecords(helloMessage({ names: [HOST] }))]));
    await expect.poll(() => Buffer.concat(got).includes(HOST), PATIENT).toBe(true);
    expect(Buffer.concat(got).includes(OTHER)).toBe(false);
  });

  test('without a name is refused', async () => {
    const hello = inRecords(helloMessage({}));
    const socket = await tunnel(recorder);
    socket.write(hello);
    expect(await rest(socket)).toBe(ALERT);
    expect(reasons()).toEqual([
      ['allowed', null],
      ['denied', 'no_sni'],
    ]);
    expect(got).toEqual([]);
  });

  test('with Encrypted ClientHello is refused, unless the rule allows it', async () => {
    const hello = inRecords(helloMessage({ names: [HOST], extensions: [ECH] }));
    const socket = await tunnel(recorder);
    socket.write(hello);
    expect(await rest(socket)).toBe(ALERT);
    expect(reasons().at(-1)).toEqual(['denied', 'ech']);
    expect(got).toEqual([]);
    chain.addRule('allow', `${HOST}:${String(portOf(recorder))}`, 'session', { ech: true });
    (await tunnel(recorder)).write(hello);
    await expect.poll(() => Buffer.concat(got).equals(hello), PATIENT).toBe(true);
  });
});

/** Sends what is written to it byte by byte. */
function slowly(socket: Socket): Socket {
  const write = socket.write.bind(socket);
  socket.setNoDelay(true);
  Reflect.set(socket, 'write', (data: Buffer | string, ...more: never[]) => {
    const bytes = Buffer.from(data as string, 'latin1');
    for (let at = 0; at < bytes.length - 1; at += 1) write(bytes.subarray(at, at + 1));
    return write(bytes.subarray(-1), ...more);
  });
  return socket;
}

describe('plain HTTP in a tunnel', () => {
  const host = () => `${HOST}:${String(portOf(web))}`;

  test('is a request like any other, and the only one', async () => {
    const socket = await tunnel(web);
    socket.write(
      `GET /a?b HTTP/1.1\r\nHost: ${host()}\r\n\r\nGET /second HTTP/1.1\r\nHost: ${host()}\r\n\r\n`,
    );
    expect(await rest(socket)).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\n\r\nweb$/s);
    expect(requested).toEqual([`GET /a?b ${host()}`]);
    // On the connection that the tunnel has opened.
    expect(sockets.size).toBe(1);
    await expect.poll(() => reasons().length, PATIENT).toBe(2);
  });

  test.each([
    ['names another host', (_: string) => `GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n`],
    ['names no host', (_: string) => `GET / HTTP/1.1\r\n\r\n`],
    ['is for a proxy', (to: string) => `GET http://${to}/ HTTP/1.1\r\nHost: ${to}\r\n\r\n`],
    ['opens a tunnel', (to: string) => `CONNECT ${to} HTTP/1.1\r\nHost: ${to}\r\n\r\n`],
    ['is not HTTP after all', () => `EHLO me\r\n\r\n`],
  ])('that %s is refused', async (_what, request) => {
    const socket = await tunnel(web);
    socket.write(request(host()));
    expect(await rest(socket)).toMatch(/^HTTP\/1\.1 400 /);
    expect(requested).toEqual([]);
    expect(reasons()).toContainEqual(['denied', 'bad_request']);
  });
});

describe('any other protocol in a tunnel', () => {
  test('is refused', async () => {
    const socket = await tunnel(recorder);
    socket.write('*1\r\n$4\r\nPING\r\n');
    expect(await rest(socket)).toBe(ALERT);
    expect(reasons()).toEqual([
      ['allowed', null],
      ['denied', 'not_tls'],
    ]);
    expect(got).toEqual([]);
  });

  test('gets nothing from a server that speaks first, before its client has spoken', async () => {
    greeting = 'SSH-2.0-x\r\n';
    const socket = await tunnel(recorder);
    const heard: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => heard.push(chunk));
    await sleep(100);
    expect(heard).toEqual([]);
    socket.write('\0');
    await once(socket, 'end');
    expect(Buffer.concat(heard).toString('latin1')).toBe(ALERT);
  });

  test('is carried if the rule says so, also if the server speaks first', async () => {
    greeting = 'SSH-2.0-x\r\n';
    chain.addRule('allow', `${HOST}:${String(portOf(recorder))}`, 'session', { tcp: true });
    const socket = await chain.connect();
    const heard: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => heard.push(chunk));
    socket.write(connectTo(recorder));
    await expect
      .poll(() => Buffer.concat(heard).toString('latin1'), PATIENT)
      .toMatch(/\r\n\r\nSSH-2\.0-x\r\n$/);
    socket.write('\0anything');
    await expect.poll(() => Buffer.concat(got).toString('latin1'), PATIENT).toBe('\0anything');
  });

  test('leads to the own machine, whose rule names one service', async () => {
    const socket = await tunnel(recorder, '127.0.0.1');
    socket.write('\0anything');
    await expect.poll(() => Buffer.concat(got).toString('latin1'), PATIENT).toBe('\0anything');
  });

  test('leaves no connection to the server when its client goes without a word', async () => {
    const socket = await tunnel(recorder);
    await expect.poll(() => openSockets(), PATIENT).toBe(1);
    socket.destroy();
    await expect.poll(() => openSockets(), PATIENT).toBe(0);
    await expect.poll(reasons, PATIENT).toEqual([
      ['allowed', null],
      ['ended', null],
    ]);
  });
});

function openSockets(): number {
  return [...sockets].filter(({ destroyed }) => !destroyed).length;
}
