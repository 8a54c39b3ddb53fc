import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import {
  ClientHelloReader,
  type HelloProgress,
  MAX_HELLO_BYTES,
  parseClientHello,
} from '../../../egress-proxy/client-hello.ts';
import { openingProblem, readOpening } from '../../../egress-proxy/opening.ts';
import { ECH, helloMessage, inRecords, nodeHello } from '../../egress-harness/client-hello.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { SOAK } from '../../setup/run-length.ts';

const SEED = Number(process.env['HOLDFAST_SEED'] ?? 20_260_303);
const CASES = SOAK ? 1_000_000 : 3000;
const NOTHING = Buffer.alloc(0);

/** Pushes the pieces one by one. */
function read(...pieces: readonly Buffer[]): HelloProgress {
  const reader = new ClientHelloReader();
  return pieces.reduce<HelloProgress>((_, piece) => reader.push(piece), { state: 'more' });
}

const bytewise = (bytes: Buffer): Buffer[] => [...bytes].map((byte) => Buffer.from([byte]));
const padding = (length: number): readonly [number, Buffer] => [21, Buffer.alloc(length)];

describe('a ClientHello', () => {
  test("of Node's client has the name, or none", async () => {
    expect(read(await nodeHello('api.test'))).toEqual({
      state: 'hello',
      hello: { serverName: 'api.test', encrypted: false },
    });
    expect(read(await nodeHello(undefined))).toMatchObject({ hello: { serverName: null } });
  });

  test('is the same in whatever records and reads it comes', () => {
    const message = helloMessage({ names: ['API.test'], extensions: [padding(600), ECH] });
    const hello = { state: 'hello', hello: { serverName: 'api.test', encrypted: true } };
    for (const sizes of [[], [1], [4], [1, 1, 1, 1, 1], [50, 60], Array.from({ length: 200 }, () => 1)]) {
      const bytes = inRecords(message, sizes);
      expect(read(bytes)).toEqual(hello);
      expect(read(...bytewise(bytes))).toEqual(hello);
      for (let length = 0; length < bytes.length; length += 7)
        expect(read(bytes.subarray(0, length))).toEqual({ state: 'more' });
    }
  });

  test('may be followed by more in the same read, but not in its record', () => {
    const bytes = inRecords(helloMessage({ names: ['a.test'] }));
    expect(read(Buffer.concat([bytes, Buffer.from('anything')]))).toMatchObject({ state: 'hello' });
    const message = helloMessage({ names: ['a.test'] });
    const second = helloMessage({ names: ['b.test'] });
    expect(read(inRecords(Buffer.concat([message, second])))).toMatchObject({ state: 'bad' });
    expect(read(...bytewise(inRecords(Buffer.concat([message, second]))))).toMatchObject({ state: 'bad' });
  });

  test.each<[what: string, bytes: Buffer]>([
    ['another protocol', Buffer.from('SSH-2.0-x\r\n')],
    ['an SSL 2 hello', Buffer.from([0x80, 0x2e, 1, 3, 1])],
    ['a record of another type', Buffer.from([23, 3, 1, 0, 1, 0])],
    ['a record of another version', Buffer.from([22, 2, 0])],
    ['an empty record', Buffer.from([22, 3, 1, 0, 0])],
    ['a record that is too long', Buffer.from([22, 3, 1, 0x40, 1])],
    ['another message', inRecords(Buffer.from([2, 0, 0, 1, 0]))],
    ['a message that is too long', inRecords(Buffer.from([1, 1, 0, 0]))],
    ['too many records', inRecords(helloMessage({ extensions: [padding(900)] }), Array(300).fill(1))],
    ['another record in between', Buffer.concat([Buffer.from([22, 3, 1, 0, 1, 1]), Buffer.from([20])])],
  ])('is not %s', (_what, bytes) => {
    expect(read(bytes)).toMatchObject({ state: 'bad' });
  });

  test.each<[what: string, message: Buffer]>([
    ['two names', helloMessage({ names: ['a.test', 'b.test'] })],
    ['the extension twice', helloMessage({ names: ['a.test'], extensions: [[0, NOTHING]] })],
    ['an empty list', helloMessage({ extensions: [[0, Buffer.from([0, 0])]] })],
    ['an empty extension', helloMessage({ extensions: [[0, NOTHING]] })],
    ['an empty name', helloMessage({ names: [''] })],
    ['a NUL in the name', helloMessage({ names: ['a.test\0.b.test'] })],
    ['a name that is not ASCII', helloMessage({ names: ['ä.test'] })],
    ['an address in an odd notation', helloMessage({ names: ['127.1'] })],
    ['bytes after the list', helloMessage({ extensions: [[0, Buffer.from([0, 4, 0, 0, 1, 97, 9])]] })],
    ['a name of another type', helloMessage({ extensions: [[0, Buffer.from([0, 4, 1, 0, 1, 97])]] })],
    ['bytes after the extensions', helloMessage({ names: ['a.test'], trailing: Buffer.from([0]) })],
  ])('with %s is refused', (_what, message) => {
    expect(read(inRecords(message))).toMatchObject({ state: 'bad' });
  });

  test('as long as allowed is read, and one byte more is not', () => {
    const rest = helloMessage({ names: ['a.test'], extensions: [padding(0)] }).length;
    const longest = helloMessage({ names: ['a.test'], extensions: [padding(MAX_HELLO_BYTES + 4 - rest)] });
    expect(read(inRecords(longest, [16_000]))).toMatchObject({ state: 'hello' });
    const longer = helloMessage({ names: ['a.test'], extensions: [padding(MAX_HELLO_BYTES + 5 - rest)] });
    expect(read(inRecords(longer, [16_000]))).toMatchObject({ state: 'bad' });
  });

  test('without any extension has no name', () => {
    const body = Buffer.concat([Buffer.from([3, 1]), Buffer.alloc(32), Buffer.from([0, 0, 2, 0, 5, 1, 0])]);
    expect(parseClientHello(body)).toEqual({ serverName: null, encrypted: false });
  });
});

test(`${CASES} mutated hellos are read alike in one piece and in many, or refused`, () => {
  const random = seededRandom(SEED);
  const dice = (limit: number): number => Math.floor(random() * limit);
  const states = new Map<string, number>();
  for (let at = 0; at < CASES; at += 1) {
    const message = helloMessage({
      names: dice(4) > 0 ? ['allowed.test'] : [],
      extensions: dice(2) > 0 ? [padding(dice(40)), ECH] : [],
    });
    const bytes = inRecords(
      message,
      Array.from({ length: dice(4) }, () => 1 + dice(60)),
    );
    for (let bites = dice(3); bites > 0; bites -= 1) bytes[dice(bytes.length)] = dice(256);
    const cut = bytes.subarray(0, dice(3) > 0 ? bytes.length : dice(bytes.length));
    const whole = read(cut);
    const middle = dice(cut.length + 1);
    expect(read(cut.subarray(0, middle), cut.subarray(middle))).toEqual(
      cut.length === 0 ? { state: 'more' } : whole,
    );
    if (at % 20 === 0) expect(read(...bytewise(cut))).toEqual(whole);
    states.set(whole.state, (states.get(whole.state) ?? 0) + 1);
  }
  for (const state of ['more', 'hello', 'bad']) expect(states.get(state) ?? 0).toBeGreaterThan(CASES / 50);
}, 3_600_000);

describe('the first bytes of a client', () => {
  const hello = inRecords(helloMessage({ names: ['a.test'] }));

  test('are read as far as necessary, and the rest stays in the stream', async () => {
    const stream = new PassThrough();
    const opening = readOpening(stream, hello.subarray(0, 3));
    for (const byte of bytewise(hello.subarray(3))) stream.write(byte);
    stream.write('more');
    expect(await opening).toMatchObject({ kind: 'tls', bytes: hello });
    expect(String(stream.read())).toBe('more');
  });

  test('that look like HTTP are left to its parser', async () => {
    const stream = new PassThrough();
    stream.write('GET / HT');
    expect(await readOpening(stream, NOTHING)).toEqual({ kind: 'http', bytes: Buffer.from('GET / HT') });
  });

  test('may be missing: of a client that is gone, or waits for the server', async () => {
    const gone = new PassThrough();
    gone.end();
    expect(await readOpening(gone, NOTHING)).toBeNull();
    const torn = new PassThrough();
    torn.end(hello.subarray(0, 20));
    expect(await readOpening(torn, NOTHING)).toMatchObject({ kind: 'other' });
    expect(await readOpening(new PassThrough(), NOTHING, 5)).toMatchObject({ kind: 'other' });
    const slow = new PassThrough();
    slow.write(hello.subarray(0, 20));
    expect(await readOpening(slow, NOTHING, 5)).toMatchObject({ kind: 'other' });
  });

  test.each([
    ['api.test', 'api.test', false, undefined],
    ['api.test', 'other.test', false, 'sni_mismatch'],
    ['api.test', null, false, 'no_sni'],
    ['api.test', 'api.test', true, 'ech'],
    ['192.0.2.7', null, false, undefined],
    ['192.0.2.7', '192.0.2.7', false, undefined],
    ['192.0.2.7', 'api.test', false, 'sni_mismatch'],
  ])('to %s that name %s (ECH: %s) are judged', (host, serverName, encrypted, reason) => {
    const opening = { kind: 'tls', hello: { serverName, encrypted }, bytes: NOTHING } as const;
    expect(openingProblem(opening, host, { ech: false })?.reason).toBe(reason);
  });

  test('may encrypt a name where the rule says so, and still name the host', () => {
    const named = (serverName: string) =>
      ({ kind: 'tls', hello: { serverName, encrypted: true }, bytes: NOTHING }) as const;
    expect(openingProblem(named('api.test'), 'api.test', { ech: true })).toBeNull();
    expect(openingProblem(named('front.test'), 'api.test', { ech: true })?.reason).toBe('sni_mismatch');
  });
});
