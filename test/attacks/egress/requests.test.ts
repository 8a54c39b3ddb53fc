import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ECH, helloMessage, type HelloOptions, inRecords } from '../../egress-harness/client-hello.ts';
import {
  EgressFixture,
  ALLOWED_HOST,
  ALLOWED_ADDRESS,
  type ProxyReply,
  WILDCARD_DOMAIN,
} from './egress-fixture.ts';

let fixture: EgressFixture;
/** A server that does not parse HTTP and records raw bytes. */
let gullible: { server: Server; port: number; got: Buffer[][] };
beforeAll(async () => {
  fixture = await EgressFixture.create();
  gullible = await startGullible();
  await fixture.home.runOk(['session', 'create', 'attack', '--name', 'default']);
  for (const host of [`${ALLOWED_HOST}:${gullible.port}`, `${ALLOWED_ADDRESS}:${gullible.port}`])
    await fixture.home.runOk(['policy', 'allow', 'attack/default', host]);
  // Every other name would resolve to an address that may be dialed: only the decision on the name denies it.
  fixture.names.set('*', [ALLOWED_ADDRESS]);
});
afterAll(async () => {
  await fixture.dispose();
  for (const socket of held) socket.destroy();
  gullible.server.close();
});

const held = new Set<Socket>();
async function startGullible(): Promise<typeof gullible> {
  const got: Buffer[][] = [];
  const server = createServer((socket) => {
    held.add(socket);
    const mine: Buffer[] = [];
    got.push(mine);
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => {
      mine.push(chunk);
      if (mine.length === 1)
        setTimeout(() => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'), 150);
    });
  }).listen(0, ALLOWED_ADDRESS);
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port, got };
}

const connect = (target: string): string => `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`;
const get = (host: string, said = host): string =>
  `GET http://${host}/hello HTTP/1.1\r\nHost: ${said}\r\n\r\n`;
const refused = ({ status, ended }: ProxyReply): boolean =>
  (status === 400 || status === 403) && ended === 'ended';

describe('names', () => {
  test('that only look like an allowed name are neither resolved nor dialed', async () => {
    const port = fixture.port;
    const names = [
      `${ALLOWED_HOST}.evil.test`,
      `x${ALLOWED_HOST}`,
      `evil.test${ALLOWED_HOST}`,
      WILDCARD_DOMAIN,
      `.${WILDCARD_DOMAIN}`,
      `a..${WILDCARD_DOMAIN}`,
      `a${WILDCARD_DOMAIN}`,
      `evil.test/.${WILDCARD_DOMAIN}`,
      `evil.test#.${WILDCARD_DOMAIN}`,
      `evil.test?.${WILDCARD_DOMAIN}`,
      `evil.test\\.${WILDCARD_DOMAIN}`,
      `evil.test,a.${WILDCARD_DOMAIN}`,
      `evil.test;a.${WILDCARD_DOMAIN}`,
      `evil.test%2e${WILDCARD_DOMAIN}`,
      `evil.test%00.${WILDCARD_DOMAIN}`,
      `evil.test\0.${WILDCARD_DOMAIN}`,
      `evil.test\t.${WILDCARD_DOMAIN}`,
      `evil.test\x7f.${WILDCARD_DOMAIN}`,
      `evil.test\xad.${WILDCARD_DOMAIN}`,
      `evil.test:80.${WILDCARD_DOMAIN}`,
      `evil.test:${port}@a.${WILDCARD_DOMAIN}`,
      `a.${WILDCARD_DOMAIN}@evil.test`,
      `${ALLOWED_HOST}@evil.test`,
      `evil.test@${ALLOWED_HOST}`,
      `user:pass@${ALLOWED_HOST}`,
      `${ALLOWED_HOST}\0`,
      `${ALLOWED_HOST}\0.evil.test`,
      `${ALLOWED_HOST}%00.evil.test`,
      `${ALLOWED_HOST}%0d%0aHost:evil.test`,
      `${ALLOWED_HOST}..`,
      `.${ALLOWED_HOST}`,
      `-.${WILDCARD_DOMAIN}`,
      `*.${WILDCARD_DOMAIN}`,
      `${'a'.repeat(64)}.${WILDCARD_DOMAIN}`,
      `${'a.'.repeat(150)}${WILDCARD_DOMAIN}`,
      `[${ALLOWED_HOST}]`,
      `[::ffff:127.0.0.3]`,
      `${ALLOWED_HOST}:${port}:${port}`,
      '',
    ];
    const asked = fixture.names.queries.length;
    const seen = fixture.allowedOrigin.requests.length;
    const said = await fixture.sendRequests(
      names.flatMap((name) => [
        connect(`${name}:${port}`),
        get(`${name}:${port}`),
        get(`${name}:${port}`, `${ALLOWED_HOST}:${port}`),
      ]),
    );
    const wrong = said.flatMap((one, at) => (refused(one) ? [] : [[names[Math.floor(at / 3)], one]]));
    expect(wrong).toEqual([]);
    expect(fixture.names.queries.slice(asked)).toEqual([]);
    expect(fixture.allowedOrigin.requests.slice(seen)).toEqual([]);
  });

  test('that are other notations of an allowed name are allowed', async () => {
    const { port } = fixture;
    const names = [
      ALLOWED_HOST,
      `${ALLOWED_HOST}.`,
      ALLOWED_HOST.toUpperCase(),
      `a.${WILDCARD_DOMAIN}`,
      `a.b.c.${WILDCARD_DOMAIN}`,
      `A.${WILDCARD_DOMAIN}.`,
      `_x.${WILDCARD_DOMAIN}`,
    ];
    const said = await fixture.sendRequests(names.map((name) => get(`${name}:${port}`)));
    expect(said.map(({ status }) => status)).toEqual(names.map(() => 200));
    const hosts = fixture.allowedOrigin.requests.slice(-names.length).map(({ host }) => host);
    expect(hosts).toEqual(names.map((name) => `${name.toLowerCase().replace(/\.$/, '')}:${port}`));
  });

  test('that are allowed on one port are denied on others', async () => {
    const said = await fixture.sendRequests(
      [22, 80, 443, 1, 65_535, 65_536, fixture.port + 65_536, 0].flatMap((port) => [
        connect(`${ALLOWED_HOST}:${port}`),
        connect(`a.${WILDCARD_DOMAIN}:${port}`),
      ]),
    );
    expect(said.filter((one) => !refused(one))).toEqual([]);
    const odd = [
      `${ALLOWED_HOST}:0${fixture.port}`,
      `${ALLOWED_HOST}:+${fixture.port}`,
      `${ALLOWED_HOST}:`,
      ALLOWED_HOST,
      `${ALLOWED_HOST}:0x50`,
    ];
    expect((await fixture.sendRequests(odd.map(connect))).filter((one) => !refused(one))).toEqual([]);
  });
});

test('a redirect to a denied host is followed by the client only, and denied', async () => {
  const before = fixture.allowedOrigin.requests.length;
  const to = encodeURIComponent(`http://127.0.0.1:${fixture.port}/secret`);
  const [first] = await fixture.sendRequests([
    `GET http://${ALLOWED_HOST}:${fixture.port}/redirect?to=${to} HTTP/1.1\r\nHost: ${ALLOWED_HOST}:${fixture.port}\r\n\r\n`,
  ]);
  expect([first?.status, first?.answer]).toEqual([
    302,
    expect.stringContaining(`Location: http://127.0.0.1`),
  ]);
  const output = await fixture.home.run([
    ...['exec', 'attack/default', '--', 'curl', '-sS', '-L'],
    `http://${ALLOWED_HOST}:${fixture.port}/redirect?to=http://evil.test:${fixture.port}/hello`,
  ]);
  expect(output.stdout).toContain(`no connection to evil.test:${fixture.port}: no rule names it`);
  expect(fixture.allowedOrigin.requests.slice(before).map(({ url }) => url.split('?')[0])).toEqual([
    '/redirect',
    '/redirect',
  ]);
  expect(fixture.reachedCanaries()).toEqual([]);
});

describe('requests that two parsers could split differently', () => {
  const post = (headers: string, body: string): string =>
    `POST http://${ALLOWED_HOST}:${gullible.port}/ HTTP/1.1\r\nHost: ${ALLOWED_HOST}:${gullible.port}\r\n${headers}\r\n\r\n${body}`;
  const second = `GET http://evil.test/smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n`;
  const chunked = 'Transfer-Encoding: chunked';

  test('are not forwarded', async () => {
    const here = `${ALLOWED_HOST}:${gullible.port}`;
    const attacks: Record<string, string> = {
      'length and chunks': post(`Content-Length: 5\r\n${chunked}`, `0\r\n\r\n${second}`),
      'chunks and length': post(`${chunked}\r\nContent-Length: ${5 + second.length}`, `0\r\n\r\n${second}`),
      'two lengths': post('Content-Length: 0\r\nContent-Length: 60', second),
      'a list of lengths': post('Content-Length: 0, 60', second),
      'the same length twice': post('Content-Length: 5\r\nContent-Length: 5', `12345${second}`),
      'a length with a sign': post('Content-Length: +5', `12345${second}`),
      'a length in hex': post('Content-Length: 0x5', `12345${second}`),
      'a negative length': post('Content-Length: -1', second),
      'an endless length': post('Content-Length: 99999999999999999999', second),
      'chunks and another encoding': post('Transfer-Encoding: chunked, identity', `0\r\n\r\n${second}`),
      'an encoding of that name': post('Transfer-Encoding: xchunked', `0\r\n\r\n${second}`),
      'a vertical tab before it': post('Transfer-Encoding: \x0bchunked', `0\r\n\r\n${second}`),
      'the encoding twice': post(`${chunked}\r\nTransfer-Encoding: cow`, `0\r\n\r\n${second}`),
      'a space before the colon': post('Transfer-Encoding : chunked', `0\r\n\r\n${second}`),
      'a folded encoding': post('X: y\r\n Transfer-Encoding: chunked', `0\r\n\r\n${second}`),
      'a bare CR': post(`X: y\rTransfer-Encoding: chunked`, `0\r\n\r\n${second}`),
      'a bare LF': post(`X: y\nTransfer-Encoding: chunked`, `0\r\n\r\n${second}`),
      'a NUL in a header': post(`X: y\0\r\n${chunked}`, `0\r\n\r\n${second}`),
      'a NUL in a name': post(`Transfer-Encoding\0: chunked`, `0\r\n\r\n${second}`),
      'a header without a name': post(': chunked', second),
      'two Hosts': `GET http://${here}/ HTTP/1.1\r\nHost: ${here}\r\nHost: evil.test\r\n\r\n`,
      'a Host list': `GET http://${here}/ HTTP/1.1\r\nHost: ${here}, evil.test\r\n\r\n`,
      'another Host, same port': `GET http://${here}/ HTTP/1.1\r\nHost: evil.test:${gullible.port}\r\n\r\n`,
      'no Host': `GET http://${here}/ HTTP/1.1\r\n\r\n`,
      'a Host with user info': `GET http://${here}/ HTTP/1.1\r\nHost: x@${here}\r\n\r\n`,
      'a space in the target': `GET http://${here}/a b HTTP/1.1\r\nHost: ${here}\r\n\r\n`,
      'a tab in the target': `GET http://${here}/\tHTTP/1.1\r\nHost: evil.test\r\n\r\n`,
      'another version': `GET http://${here}/ HTTP/3.7\r\nHost: ${here}\r\n\r\n`,
      'HTTP/2': `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`,
      'origin form': `GET / HTTP/1.1\r\nHost: ${here}\r\n\r\n`,
      'a scheme of its own': `GET file:///etc/passwd HTTP/1.1\r\nHost: ${here}\r\n\r\n`,
      'https in the clear': `GET https://${here}/ HTTP/1.1\r\nHost: ${here}\r\n\r\n`,
      'a CONNECT with a body': `CONNECT ${here} HTTP/1.1\r\nHost: ${here}\r\nContent-Length: 5\r\n\r\n12345`,
      'a CONNECT with chunks': `CONNECT ${here} HTTP/1.1\r\nHost: ${here}\r\n${chunked}\r\n\r\n0\r\n\r\n`,
      'a head too long': post(`X: ${'y'.repeat(20_000)}`, ''),
    };
    const before = gullible.got.length;
    const said = await fixture.sendRequests(Object.values(attacks));
    const wrong = said.flatMap((one, at) =>
      [400, 403, 431].includes(one.status) ? [] : [[Object.keys(attacks)[at], one]],
    );
    expect(wrong).toEqual([]);
    expect(gullible.got.slice(before).map((got) => Buffer.concat(got).toString('latin1'))).toEqual([]);
  });

  test('a forwarded request is rewritten: nothing follows it, and hop-by-hop headers are removed', async () => {
    const here = `${ALLOWED_HOST}:${gullible.port}`;
    const attacks = [
      post('Content-Length: 5', `12345${second}`),
      post(chunked, `5\r\n12345\r\n0\r\n\r\n${second}`),
      post(chunked, `5;ext="\n"\r\n12345\r\n0\r\nTrailer: evil\r\n\r\n${second}`),
      post('Connection: content-length\r\nContent-Length: 5', `12345${second}`),
      post(`Connection: transfer-encoding, host\r\n${chunked}`, `5\r\n12345\r\n0\r\n\r\n${second}`),
      `GET http://${here}/ HTTP/1.1\r\nHost: ${here}\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n${second}`,
      `GET http://${here}/ HTTP/1.1\r\nHost: ${here}\r\nContent-Length: ${second.length}\r\n\r\n${second}`,
      `GET http://${here}/ HTTP/1.0\r\nHost: ${here}\r\nConnection: keep-alive\r\n\r\n${second}`,
      `\r\n\r\nGET http://${here}/ HTTP/1.1\r\nHost: ${here}\r\n\r\n${second}`,
      `GET http://${here}/%0d%0aHost:%20evil.test HTTP/1.1\r\nHost: ${here}\r\n\r\n`,
      `GET http://${here}//evil.test/ HTTP/1.1\r\nHost: ${here}\r\n\r\n`,
      `GET http://${here}?@evil.test/ HTTP/1.1\r\nHost: ${here}\r\n\r\n`,
    ];
    const before = gullible.got.length;
    await fixture.sendRequests(attacks, 3);
    const heard = () =>
      gullible.got
        .slice(before)
        .map((parts) => Buffer.concat(parts).toString('latin1'))
        // An invalid body is detected only after the server was dialed: the server receives nothing.
        .filter((text) => text !== '');
    await expect.poll(() => heard().length).toBeGreaterThanOrEqual(attacks.length - 2);
    await sleep(300);
    const got = heard();
    for (const text of got) {
      const { line, headers, rest } = dissect(text);
      expect(line).toMatch(/^(GET|POST) \/\S* HTTP\/1\.1$/);
      expect(headers.filter(([name]) => name === 'host')).toEqual([['host', here]]);
      expect(headers.filter(([name]) => name === 'connection')).toEqual([['connection', 'close']]);
      expect(headers.filter(([name]) => /^(upgrade|http2-settings|te|trailer|expect)$/.test(name))).toEqual(
        [],
      );
      const lengths = headers.filter(([name]) => name === 'content-length');
      const encodings = headers.filter(([name]) => name === 'transfer-encoding');
      expect(lengths.length + encodings.length).toBeLessThanOrEqual(1);
      // Both parsers end the body where ours ends.
      if (encodings.length === 1) expect(rest).toMatch(/^(?:5\r\n12345\r\n)?0\r\n\r\n$/);
      else expect(rest).toHaveLength(Number(lengths[0]?.[1] ?? 0));
    }
    expect(got.join('').match(/smuggled/g)?.length ?? 0).toBeLessThanOrEqual(1);
  });
});

describe('TLS that asks an allowed address for another name', () => {
  const here = (): string => `${ALLOWED_HOST}:${gullible.port}`;
  /** The hello comes with the CONNECT, in one piece. */
  const tunnelled = (hello: Buffer): Buffer => Buffer.concat([Buffer.from(connect(here())), hello]);
  const hello = (names: readonly string[], ...extensions: HelloOptions['extensions'] & object): Buffer =>
    helloMessage({ names, extensions });

  test('is not forwarded, however it is cut, hidden or left out', async () => {
    const evil = 'evil.test';
    const attacks: Record<string, Buffer> = {
      'another name': inRecords(hello([evil])),
      'another name in many records': inRecords(hello([evil]), [1, 1, 1, 1, 40, 7, 1, 1, 1]),
      'the allowed name first': inRecords(hello([ALLOWED_HOST, evil])),
      'the allowed name last': inRecords(hello([evil, ALLOWED_HOST])),
      'the extension twice': inRecords(hello([ALLOWED_HOST], [0, Buffer.from('\0\x0c\0\0\x09evil.test')])),
      'a NUL after the allowed name': inRecords(hello([`${ALLOWED_HOST}\0.evil.test`])),
      'a name below the allowed one': inRecords(hello([`x.${ALLOWED_HOST}`])),
      'no name': inRecords(hello([])),
      'an encrypted name': inRecords(hello([ALLOWED_HOST], ECH)),
      'a second hello in the record': inRecords(Buffer.concat([hello([ALLOWED_HOST]), hello([evil])])),
      'a second hello over records': inRecords(Buffer.concat([hello([ALLOWED_HOST]), hello([evil])]), [60]),
      'an empty record': Buffer.concat([Buffer.from([22, 3, 1, 0, 0]), inRecords(hello([evil]))]),
      'an SSL 2 hello': Buffer.from([0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 16]),
      'another protocol': Buffer.from('\0\0\0\x08\x04\xd2\x16\x2f', 'latin1'),
      'half of a hello': inRecords(hello([ALLOWED_HOST])).subarray(0, 30),
    };
    const before = gullible.got.length;
    const said = await fixture.sendRequests(Object.values(attacks).map(tunnelled), 20);
    const wrong = said.flatMap((one, at) =>
      one.status === 200 && one.answer.endsWith('\r\n\r\n\x15\x03\x03\0\x02\x02\x31')
        ? []
        : [[Object.keys(attacks)[at], one]],
    );
    expect(wrong).toEqual([]);
    expect(Buffer.concat(gullible.got.slice(before).flat()).toString('latin1')).toBe('');
    const reasons = (await fixture.decisions()).map(({ reason }) => reason);
    for (const reason of ['sni_mismatch', 'no_sni', 'ech', 'not_tls']) expect(reasons).toContain(reason);
  });

  test('is forwarded with the allowed name, cut into records', async () => {
    const before = gullible.got.length;
    const bytes = inRecords(hello([ALLOWED_HOST]), [1, 2, 3]);
    const [said] = await fixture.sendRequests([tunnelled(bytes)]);
    expect(said?.answer).toMatch(/^HTTP\/1\.1 200 .*ok$/s);
    expect(Buffer.concat(gullible.got.slice(before).flat()).equals(bytes)).toBe(true);
  });
});

function dissect(text: string): { line: string; headers: [string, string][]; rest: string } {
  const end = text.indexOf('\r\n\r\n');
  const [line = '', ...lines] = text.slice(0, end).split('\r\n');
  const headers = lines.map((one): [string, string] => {
    const colon = one.indexOf(':');
    return [one.slice(0, colon).toLowerCase(), one.slice(colon + 1).trim()];
  });
  return { line, headers, rest: text.slice(end + 4) };
}
