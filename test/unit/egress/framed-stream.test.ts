import { duplexPair, type Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import { tunnelHeader } from '../../../protocol/wire/tunnel-frames.ts';
import { Tunnel } from '../../../supervisor/egress/tunnel.ts';

const COUNT = 64 * 1024;

/** All bytes as frames of one byte. */
function tinyFrames(bytes: Buffer, header: Buffer): Buffer {
  const frames = Buffer.alloc(bytes.length * (header.length + 1));
  for (const [at, byte] of bytes.entries()) {
    header.copy(frames, at * (header.length + 1));
    frames[at * (header.length + 1) + header.length] = byte;
  }
  return frames;
}

const BYTES = Buffer.from(Array.from({ length: COUNT }, (_, at) => at % 251));
const CARRIERS = [
  { name: 'tunnel', make: (stream: Duplex) => new Tunnel(stream), header: tunnelHeader(1) },
  {
    name: 'channel',
    make: (stream: Duplex) => new MessageChannel(stream),
    header: Buffer.from([0, 0, 0, 0, 1]),
  },
] as const;

/** Pieces that wait in the stream's own queue. */
function queuedPieces(stream: Duplex): number {
  const state: unknown = Reflect.get(stream, '_readableState');
  const buffer: unknown = typeof state === 'object' && state !== null ? Reflect.get(state, 'buffer') : [];
  return Array.isArray(buffer) ? buffer.filter((one) => one !== null).length : 0;
}

test.each(CARRIERS)('a $name that is not read holds few pieces, and loses none', async ({ make, header }) => {
  for (const cut of [1024 * 6, 7]) {
    const [ours, theirs] = duplexPair();
    const stream = make(ours);
    theirs.resume();
    stream.pause();
    const frames = tinyFrames(BYTES, header);
    let most = 0;
    for (let at = 0; at < frames.length; at += cut) {
      theirs.write(frames.subarray(at, at + cut));
      if (at % (cut * 32) === 0) await new Promise(setImmediate);
      most = Math.max(most, queuedPieces(stream));
    }
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(65);
    const parts: Buffer[] = [];
    stream.on('data', (part: Buffer) => parts.push(part));
    stream.resume();
    await expect.poll(() => parts.reduce((sum, part) => sum + part.length, 0)).toBe(COUNT);
    expect(Buffer.concat(parts).equals(BYTES)).toBe(true);
    stream.on('error', () => undefined);
    stream.destroy();
  }
});

test.each(CARRIERS)('small writes to a $name whose other end is slow become few frames', async ({ make }) => {
  const [ours, theirs] = duplexPair();
  const stream = make(ours);
  for (const byte of BYTES) stream.write(Buffer.from([byte]));
  const parts: Buffer[] = [];
  let frames = 0;
  let last = -1;
  theirs.on('data', (part: Buffer) => {
    parts.push(part);
    frames += 1;
  });
  await expect
    .poll(() => {
      const now = parts.reduce((sum, part) => sum + part.length, 0);
      const settled = now === last && now >= COUNT;
      last = now;
      return settled;
    })
    .toBe(true);
  expect(frames).toBeLessThan(50);
  // Each frame costs its header only.
  expect(last).toBeLessThan(COUNT + 50 * 5 + 10);
  stream.on('error', () => undefined);
  stream.destroy();
});

test('a channel holds few messages for who reads none, and loses none of who reads', async () => {
  const [ours, theirs] = duplexPair();
  const channel = new MessageChannel(ours);
  let count = 0;
  while (!channel.destroyed && count < 100_000) {
    channel.send({ refused: true });
    count += 1;
  }
  expect(count).toBeGreaterThan(500);
  expect(count).toBeLessThan(1100);
  theirs.destroy();

  const [near, far] = duplexPair();
  const [sender, reader] = [new MessageChannel(near), new MessageChannel(far)];
  let heard = 0;
  reader.on('message', () => (heard += 1));
  for (let at = 0; at < 20_000; at += 1) {
    sender.send({ at });
    if (at % 500 === 0) await new Promise(setImmediate);
  }
  await expect.poll(() => heard).toBe(20_000);
  for (const one of [sender, reader]) one.on('error', () => undefined);
  sender.destroy();
  reader.destroy();
});
