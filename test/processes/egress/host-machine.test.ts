import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HOST_MACHINE, parseHostPattern } from '../../../protocol/egress.ts';
import { decide, type Rule } from '../../../supervisor/egress/decide.ts';
import { InProcessEgress } from '../../egress-harness/in-process-egress.ts';

const { name: HOST, address: ADDRESS } = HOST_MACHINE;

function rule(text: string, effect: Rule['effect'] = 'allow'): Rule {
  const pattern = parseHostPattern(text);
  if ('refused' in pattern) throw new Error(pattern.refused);
  return { pattern, effect, from: 'file', id: null };
}

describe('a rule for the host machine', () => {
  test('requires a port; the error shows the accepted form', () => {
    expect(parseHostPattern(HOST)).toEqual({ refused: expect.stringContaining(`${HOST}:8080`) as string });
    expect(parseHostPattern(`${HOST}:8080`)).toEqual({ host: HOST, wildcard: false, port: 8080 });
  });

  test('is never matched by a wildcard', () => {
    for (const wide of ['*.holdfast.internal:8080', '*.internal:8080']) {
      expect(decide([rule(wide)], HOST, 8080).allowed).toBe(false);
    }
    expect(decide([rule(`${HOST}:8080`)], HOST, 8080).allowed).toBe(true);
    expect(decide([rule(`${HOST}:8080`)], HOST, 8081).allowed).toBe(false);
  });

  test('is suggested by the denial of a loopback address', () => {
    for (const host of ['127.0.0.1', 'localhost', '::1', HOST]) {
      expect(decide([], host, 11434)).toMatchObject({ allowed: false, allow: `${HOST}:11434` });
    }
  });
});

describe('a port of the host machine, in a sandbox', () => {
  let server: Server;
  let port: number;
  let chain: InProcessEgress | undefined;
  const clients = new Set<Socket>();
  beforeEach(async () => {
    server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.pipe(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  });
  afterEach(async () => {
    for (const client of clients) client.destroy();
    clients.clear();
    await chain?.dispose();
    chain = undefined;
    server.close();
  });

  async function dial(): Promise<Socket> {
    const socket = connect({ host: ADDRESS, port });
    clients.add(socket);
    await once(socket, 'connect');
    socket.on('error', () => undefined);
    return socket;
  }
  /** Resolves at its end or its reset. */
  function closed(socket: Socket): Promise<void> {
    return new Promise((resolve) => socket.once('close', () => resolve()));
  }
  async function echoed(socket: Socket, text: string): Promise<string> {
    socket.write(text);
    const [bytes] = (await once(socket, 'data')) as [Buffer];
    return bytes.toString();
  }

  test('is reached with one rule, without a proxy, by any protocol', async () => {
    chain = await InProcessEgress.open([`${HOST}:${port}`]);
    const socket = await dial();
    expect(await echoed(socket, 'no HTTP\0\n')).toBe('no HTTP\0\n');
    socket.end();
    await closed(socket);
    await expect.poll(() => chain?.decisions().map(({ decision }) => decision)).toEqual(['allowed', 'ended']);
    expect(chain.decisions()[0]).toMatchObject({ host: HOST, port, method: 'TCP', rule: `${HOST}:${port}` });
  });

  test('is reached through the proxy by its name, too', async () => {
    chain = await InProcessEgress.open([`${HOST}:${port}`]);
    const said = await chain.sendRaw(
      `CONNECT ${HOST}:${port} HTTP/1.1\r\nHost: ${HOST}:${port}\r\n\r\n`,
      1500,
    );
    // The server sends nothing by itself, so this is only the response to CONNECT.
    expect(said === null || said.text.startsWith('HTTP/1.1 200')).toBe(true);
    await expect.poll(() => chain?.decisions()[0]).toMatchObject({ decision: 'allowed', host: HOST, port });
  });

  test('is closed without a rule; removing the rule closes open connections', async () => {
    chain = await InProcessEgress.open([`${HOST}:${port === 65535 ? 1024 : port + 1}`]);
    await expect(dial()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    chain.addRule('allow', `${HOST}:${port}`);
    await expect.poll(() => dial().then((socket) => echoed(socket, 'a'))).toBe('a');
    const open = await dial();
    expect(await echoed(open, 'b')).toBe('b');
    const cut = closed(open);
    chain.addRule('deny', `${HOST}:${port}`);
    await cut;
    await expect(dial()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  test('without a listener gives a reset and an event that says so', async () => {
    server.close();
    chain = await InProcessEgress.open([`${HOST}:${port}`]);
    await closed(await dial());
    await expect
      .poll(() => chain?.decisions().map(({ decision, reason }) => [decision, reason]))
      .toEqual([
        ['allowed', null],
        ['failed', 'not_reached'],
      ]);
  });
});
