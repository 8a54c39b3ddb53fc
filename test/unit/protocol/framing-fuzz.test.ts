import { isUtf8 } from 'node:buffer';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { encodeFrame, FrameDecoder } from '../../../protocol/wire/framing.ts';
import { FRAME_LIMITS } from '../../../protocol/wire/limits.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

interface Outcome {
  readonly frames: readonly string[];
  /** `details.reason` of the error that ended it, or undefined. */
  readonly reason: unknown;
}

const NASTY = [
  '\n',
  '\n\n',
  '{',
  '}',
  '[',
  ']',
  '"',
  '\\',
  '\\u',
  '\\u005f',
  '"bytes":',
  '"bytes":99999999999999',
  '"bytes":-0',
  '1e9',
  '\0',
  '__proto__',
  '"__proto__":{}',
  '"constructor":{"prototype":1}',
  '\ud800',
  'ü',
  '{"bytes":4}\n',
  '{"bytes":5000000}\n',
  'null',
  '['.repeat(70),
  '{"a":'.repeat(65),
  '\r\n',
  '{}\n',
  '\u2028',
] as const;

/** Put behind an opening brace, these make a message that is JSON and must be refused all the same, or just may not. */
const MEMBERS = [
  '"__proto__":{"admin":true},',
  '"constructor":{"prototype":1},',
  '"constructor":"prototype",',
  '"bytes":-1,',
  '"bytes":3,',
  '"bytes":4194305,',
  '"\\u005f_proto__":1,',
  `"deep":${'['.repeat(63)}${']'.repeat(63)},`,
  `"deep":${'['.repeat(64)}${']'.repeat(64)},`,
] as const;

function randomValue(random: SeededRandom, depth: number): unknown {
  switch (random.below(depth > 5 ? 5 : 7)) {
    case 0:
      return random.next() * 1e9;
    case 1:
      return random.below(2) === 0;
    case 2:
      return null;
    case 3:
      return 'x"\\\n{}[]ü'.repeat(random.below(8));
    case 4:
      return random.pick(['__proto__', 'prototype', 'bytes', '\u2028']);
    case 5:
      return Array.from({ length: random.below(4) }, () => randomValue(random, depth + 1));
    default:
      return Object.fromEntries(
        Array.from({ length: random.below(4) }, (_, at) => [`k${at}`, randomValue(random, depth + 1)]),
      );
  }
}

function randomStream(random: SeededRandom): Buffer {
  const parts: Buffer[] = [];
  for (let count = 1 + random.below(5); count > 0; count--) {
    const payload = random.below(3) === 0 ? randomBytes(random, random.below(200)) : undefined;
    const { line, bytes } = encodeFrame(
      { jsonrpc: '2.0', id: count, value: randomValue(random, 0) },
      payload,
    );
    parts.push(line, Buffer.from(bytes ?? []));
  }
  return Buffer.concat(parts);
}

function randomBytes(random: SeededRandom, length: number): Buffer {
  return Buffer.from(Array.from({ length }, () => random.below(256)));
}

function mutate(random: SeededRandom, stream: Buffer): Buffer {
  const at = random.below(stream.length + 1);
  const to = Math.min(stream.length, at + random.below(20));
  switch (random.below(8)) {
    case 6: {
      const brace = stream.indexOf('{', at) + 1;
      return Buffer.concat([
        stream.subarray(0, brace),
        Buffer.from(random.pick(MEMBERS)),
        stream.subarray(brace),
      ]);
    }
    case 0: {
      const flipped = Buffer.from(stream);
      if (at < flipped.length) flipped[at] = random.below(256);
      return flipped;
    }
    case 1:
      return Buffer.concat([stream.subarray(0, at), Buffer.from(random.pick(NASTY)), stream.subarray(at)]);
    case 2:
      return Buffer.concat([stream.subarray(0, at), stream.subarray(to)]);
    case 3:
      return stream.subarray(0, at);
    case 4:
      return Buffer.concat([stream.subarray(0, to), stream.subarray(at)]);
    case 5:
      return Buffer.concat([
        stream.subarray(0, at),
        randomBytes(random, random.below(40)),
        stream.subarray(at),
      ]);
    default:
      return stream;
  }
}

/** What the rules say about a whole stream, in the plainest way: no pieces, no state. */
function expected(stream: Buffer): Outcome {
  const frames: string[] = [];
  let at = 0;
  while (at < stream.length) {
    const newline = stream.indexOf(10, at);
    if ((newline === -1 ? stream.length : newline) - at > FRAME_LIMITS.lineBytes)
      return { frames, reason: 'line_too_long' };
    if (newline === -1) return { frames, reason: 'cut_off' };
    const line = stream.subarray(at, newline);
    if (!isUtf8(line)) return { frames, reason: 'not_utf8' };
    const text = line.toString();
    if (depthOf(text) > FRAME_LIMITS.depth) return { frames, reason: 'too_deep' };
    let message: unknown;
    let forbidden = false;
    try {
      message = JSON.parse(text, (key, value: unknown) => {
        forbidden ||= key === '__proto__';
        forbidden ||=
          key === 'constructor' &&
          typeof value === 'object' &&
          value !== null &&
          Object.hasOwn(value, 'prototype');
        return value;
      });
      // The reviver hands over nothing for a key that it has set aside: ask a plain parse for those.
      forbidden ||= hasProto(JSON.parse(text));
    } catch {
      return { frames, reason: 'not_json' };
    }
    if (typeof message !== 'object' || message === null || Array.isArray(message))
      return { frames, reason: 'not_an_object' };
    if (forbidden) return { frames, reason: 'forbidden_key' };
    at = newline + 1;
    const bytes = 'bytes' in message ? message.bytes : 0;
    if (typeof bytes !== 'number' || !Number.isSafeInteger(bytes) || bytes < 0)
      return { frames, reason: 'bytes_invalid' };
    if (bytes > FRAME_LIMITS.payloadBytes) return { frames, reason: 'bytes_too_large' };
    if (at + bytes > stream.length) return { frames, reason: 'cut_off' };
    frames.push(`${JSON.stringify(message)} ${stream.toString('hex', at, at + bytes)}`);
    at += bytes;
  }
  return { frames, reason: undefined };
}

function hasProto(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return Object.hasOwn(value, '__proto__') || Object.values(value).some(hasProto);
}

function depthOf(text: string): number {
  const bare = text.replace(/"(?:[^"\\]|\\.|\\$)*("|$)/gs, '');
  let depth = 0;
  let deepest = 0;
  for (const letter of bare) {
    if (letter === '{' || letter === '[') deepest = Math.max(deepest, ++depth);
    if (letter === '}' || letter === ']') depth--;
  }
  return deepest;
}

function decodeInPieces(random: SeededRandom, stream: Buffer): Outcome {
  const frames: string[] = [];
  const decoder = new FrameDecoder(({ message, bytes }) => {
    frames.push(`${JSON.stringify(message)} ${bytes?.toString('hex') ?? ''}`);
  });
  const largest = 1 + random.below(random.pick([3, 30, 3000]));
  try {
    for (let at = 0; at < stream.length;) {
      const size = 1 + random.below(largest);
      decoder.push(stream.subarray(at, at + size));
      if (decoder.buffered > FRAME_LIMITS.lineBytes + FRAME_LIMITS.payloadBytes)
        throw new Error('it holds too much');
      at += size;
    }
    decoder.end();
    return { frames, reason: undefined };
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'protocol_error') {
      if (decoder.buffered !== 0) throw new Error('it holds bytes after an error', { cause: error });
      return { frames, reason: error.details?.['reason'] };
    }
    throw error;
  }
}

test(
  'any input in chunks of any size is decoded correctly or ends with a typed error',
  { timeout: 1_200_000 },
  () => {
    const seed = seedOfRun('frames');
    const cases = soakCount(1500, 1_000_000);
    const seen = new Map<unknown, number>();
    const before = process.memoryUsage().heapUsed;
    for (let n = 0; n < cases; n++) {
      const random = new SeededRandom(seed + n);
      let stream = randomStream(random);
      for (let mutations = random.below(4); mutations > 0; mutations--) stream = mutate(random, stream);
      const wanted = expected(stream);
      const got = decodeInPieces(random, stream);
      if (JSON.stringify(got) !== JSON.stringify(wanted)) {
        expect(
          got,
          `case ${n}, HOLDFAST_SEED=${seed + n}: ${JSON.stringify(stream.toString('latin1'))}`,
        ).toEqual(wanted);
      }
      seen.set(got.reason, (seen.get(got.reason) ?? 0) + 1);
    }
    // A fuzzer that never comes near a rule says nothing about it.
    for (const reason of [
      'not_utf8',
      'not_json',
      'too_deep',
      'forbidden_key',
      'bytes_invalid',
      'bytes_too_large',
      'cut_off',
      undefined,
    ]) {
      expect(seen.get(reason) ?? 0, String(reason)).toBeGreaterThan(cases / 10_000);
    }
    expect(({} as Record<string, unknown>)['admin']).toBeUndefined();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(256 * 2 ** 20);
  },
);
