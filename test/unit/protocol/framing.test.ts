import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { encodeFrame, FrameDecoder } from '../../../protocol/wire/framing.ts';
import type { Frame } from '../../../protocol/wire/framing.ts';
import { FRAME_LIMITS } from '../../../protocol/wire/limits.ts';

function decode(chunks: readonly Buffer[]): Frame[] {
  const frames: Frame[] = [];
  const decoder = new FrameDecoder((frame) => frames.push(frame));
  for (const chunk of chunks) decoder.push(chunk);
  decoder.end();
  return frames;
}

function reasonOf(run: () => unknown): unknown {
  try {
    run();
  } catch (error) {
    const reason = error instanceof HoldfastError ? error.details?.['reason'] : undefined;
    if (error instanceof HoldfastError && typeof reason === 'string') return `${error.code} ${reason}`;
    throw error;
  }
  return 'no error';
}

function wire(message: Record<string, unknown>, bytes?: Uint8Array): Buffer {
  const { line, bytes: payload } = encodeFrame(message, bytes);
  return Buffer.concat([line, payload ?? Buffer.alloc(0)]);
}

function nested(depth: number): string {
  return `{"a":${'['.repeat(depth - 1)}${']'.repeat(depth - 1)}}`;
}

test('messages and payloads arrive unchanged in chunks of any size', () => {
  const payload = Buffer.from([0, 10, 13, 255, 123, 125, 10, 10]);
  const stream = Buffer.concat([
    wire({ n: 1, text: 'ü\n"{[' }),
    wire({ n: 2 }, payload),
    wire({ n: 3 }, Buffer.alloc(0)),
    wire({ n: 4 }),
  ]);
  for (let size = 1; size <= stream.length; size++) {
    const chunks: Buffer[] = [];
    for (let at = 0; at < stream.length; at += size) chunks.push(stream.subarray(at, at + size));
    const frames = decode(chunks);
    expect(frames.map(({ message }) => message['n'])).toEqual([1, 2, 3, 4]);
    expect(frames.map(({ bytes }) => bytes?.toString('hex'))).toEqual([
      undefined,
      payload.toString('hex'),
      '',
      undefined,
    ]);
    expect(frames[0]?.message['text']).toBe('ü\n"{[');
    expect(frames.reduce((sum, frame) => sum + frame.size, 0)).toBe(stream.length);
  }
});

test('a payload does not share memory with the chunk it came in', () => {
  const chunk = wire({}, Buffer.from('abc'));
  const [frame] = decode([chunk]);
  chunk.fill(0);
  expect(frame?.bytes?.toString()).toBe('abc');
});

test.each([
  ['not UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d, 0x0a]), 'not_utf8'],
  ['an overlong UTF-8 form', Buffer.from('7b22c0af223a317d0a', 'hex'), 'not_utf8'],
  ['no JSON', Buffer.from('{"a":\n'), 'not_json'],
  ['an empty line', Buffer.from('\n'), 'not_json'],
  ['an array', Buffer.from('[{"jsonrpc":"2.0"}]\n'), 'not_an_object'],
  ['null', Buffer.from('null\n'), 'not_an_object'],
  ['a negative count', Buffer.from('{"bytes":-1}\n'), 'bytes_invalid'],
  ['a fraction', Buffer.from('{"bytes":1.5}\n'), 'bytes_invalid'],
  ['a count in quotes', Buffer.from('{"bytes":"3"}\n'), 'bytes_invalid'],
  ['null as a count', Buffer.from('{"bytes":null}\n'), 'bytes_invalid'],
  ['a count beyond all numbers', Buffer.from('{"bytes":1e999}\n'), 'bytes_invalid'],
  ['too many bytes', Buffer.from(`{"bytes":${FRAME_LIMITS.payloadBytes + 1}}\n`), 'bytes_too_large'],
  ['nesting too deep', Buffer.from(`${nested(FRAME_LIMITS.depth + 1)}\n`), 'too_deep'],
  ['__proto__', Buffer.from('{"params":{"__proto__":{"admin":true}}}\n'), 'forbidden_key'],
  ['__proto__ in an array', Buffer.from('{"params":[[{"__proto__":1}]]}\n'), 'forbidden_key'],
  ['__proto__ in escapes', Buffer.from('{"params":{"\\u005f_pr\\u006fto__":1}}\n'), 'forbidden_key'],
  ['constructor.prototype', Buffer.from('{"a":{"constructor":{"prototype":{"x":1}}}}\n'), 'forbidden_key'],
  [
    'constructor.prototype in escapes',
    Buffer.from('{"\\u0063onstructor":{"p\\u0072ototype":1}}\n'),
    'forbidden_key',
  ],
])('%s is refused', (_what, line, reason) => {
  expect(reasonOf(() => decode([line]))).toBe(`protocol_error ${reason}`);
});

test('a key that only resembles a forbidden one is accepted', () => {
  const message = {
    constructor: 'Ford',
    text: '__proto__',
    list: ['prototype', { prototype: 1, constructor: [1] }],
  };
  const [frame] = decode([wire(message)]);
  expect(JSON.stringify(frame?.message)).toBe(JSON.stringify(message));
});

test('a line may have the maximum length and no more', () => {
  const longest = `{"a":"${'x'.repeat(FRAME_LIMITS.lineBytes - 8)}"}`;
  expect(longest).toHaveLength(FRAME_LIMITS.lineBytes);
  expect(decode([Buffer.from(`${longest}\n`)])).toHaveLength(1);
  expect(reasonOf(() => decode([Buffer.from(` ${longest}\n`)]))).toBe('protocol_error line_too_long');
});

test('a line without an end is refused at the limit, and no more than the limit is buffered', () => {
  const decoder = new FrameDecoder(() => undefined);
  const piece = Buffer.alloc(1000, 'x');
  let pushed = 0;
  const reason = reasonOf(() => {
    for (let pieces = 0; pieces < 2000; pieces++) {
      decoder.push(piece);
      pushed += piece.length;
      expect(decoder.buffered).toBeLessThanOrEqual(FRAME_LIMITS.lineBytes);
    }
  });
  expect(reason).toBe('protocol_error line_too_long');
  expect(pushed).toBeLessThanOrEqual(FRAME_LIMITS.lineBytes);
  expect(decoder.buffered).toBe(0);
});

test('a payload may have the maximum size', () => {
  const payload = Buffer.alloc(FRAME_LIMITS.payloadBytes, 7);
  const [frame] = decode([wire({}, payload)]);
  expect(frame?.bytes?.equals(payload)).toBe(true);
});

test('nesting up to the limit is accepted, and brackets in strings do not count', () => {
  expect(decode([Buffer.from(`${nested(FRAME_LIMITS.depth)}\n`)])).toHaveLength(1);
  const quoted = JSON.stringify({ a: `\\"${'['.repeat(500)}\\` });
  expect(decode([Buffer.from(`${quoted}\n`)])).toHaveLength(1);
  expect(reasonOf(() => decode([Buffer.from(`{"a":"\\\\","b":${nested(FRAME_LIMITS.depth)}}\n`)]))).toBe(
    'protocol_error too_deep',
  );
});

test('a million brackets do not overflow the stack', () => {
  expect(reasonOf(() => decode([Buffer.from(`${'['.repeat(1_000_000)}\n`)]))).toBe('protocol_error too_deep');
});

test('frames before an invalid one are delivered, and none after it', () => {
  const seen: unknown[] = [];
  const decoder = new FrameDecoder((frame) => seen.push(frame.message['n']));
  const stream = Buffer.concat([wire({ n: 1 }), Buffer.from('broken\n'), wire({ n: 2 })]);
  expect(reasonOf(() => decoder.push(stream))).toBe('protocol_error not_json');
  expect(reasonOf(() => decoder.push(wire({ n: 3 })))).toBe('protocol_error not_json');
  expect(seen).toEqual([1]);
});

test('an end inside a line or a payload is an error', () => {
  for (const cut of [Buffer.from('{"a"'), Buffer.from('{"bytes":3}\nab')]) {
    expect(reasonOf(() => decode([cut]))).toBe('protocol_error cut_off');
  }
});

test('a listener may stop the decoder in the middle of a chunk', () => {
  const seen: unknown[] = [];
  const decoder = new FrameDecoder((frame) => {
    seen.push(frame.message['n']);
    decoder.stop();
  });
  decoder.push(Buffer.concat([wire({ n: 1 }), wire({ n: 2 })]));
  decoder.end();
  expect(seen).toEqual([1]);
});

test('a sender refuses what the receiver would refuse', () => {
  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level++) deep = [deep];
  const refused: [string, () => unknown][] = [
    ['bytes_too_large', () => encodeFrame({}, Buffer.alloc(FRAME_LIMITS.payloadBytes + 1))],
    ['line_too_long', () => encodeFrame({ a: 'x'.repeat(FRAME_LIMITS.lineBytes) })],
    ['too_deep', () => encodeFrame(JSON.parse(nested(FRAME_LIMITS.depth + 1)) as Record<string, unknown>)],
    ['not_json', () => encodeFrame({ deep })],
    ['not_json', () => encodeFrame(cycle)],
    ['not_json', () => encodeFrame({ big: 1n })],
    ['forbidden_key', () => encodeFrame(JSON.parse('{"a":{"__proto__":1}}') as Record<string, unknown>)],
  ];
  for (const [reason, run] of refused) expect(reasonOf(run)).toBe(`invalid_request ${reason}`);
});

test('decoding a line that arrives byte by byte takes linear time', () => {
  const feed = (length: number): number => {
    const line = Buffer.from(`{"a":"${'x'.repeat(length)}"}\n`);
    const frames: Frame[] = [];
    const decoder = new FrameDecoder((frame) => frames.push(frame));
    // Processor time of this thread: other work of the machine does not count.
    const started = process.threadCpuUsage();
    for (let at = 0; at < line.length; at++) decoder.push(line.subarray(at, at + 1));
    expect(frames).toHaveLength(1);
    const { user, system } = process.threadCpuUsage(started);
    return (user + system) / 1000;
  };
  feed(50_000);
  // Sixteen times the length: 16 when linear, 256 when quadratic.
  expect(feed(800_000) / Math.max(1, feed(50_000))).toBeLessThan(100);
});
