import { createHash, randomBytes } from 'node:crypto';
import { duplexPair, PassThrough, Readable } from 'node:stream';
import { afterAll, expect, test } from 'vitest';
import { bridgeStdio } from '../../../protocol/client/bridge.ts';
import { readToEnd, SocketPairs, waitUntil } from '../../fixtures/protocol/peers.ts';

const sockets = new SocketPairs();
afterAll(() => sockets.dispose());

function hash(data: Buffer): string {
  return createHash('sha256').update(data).digest('hex');
}

test('every byte passes in both directions, and the end of stdin ends the bridge', async () => {
  const { near, far } = await sockets.pair();
  const data = randomBytes(20 * 2 ** 20);
  far.pipe(far);
  const stdout = new PassThrough();
  const received: Buffer[] = [];
  stdout.on('data', (chunk: Buffer) => received.push(chunk));
  await bridgeStdio(near, Readable.from(chunksOf(data)), stdout);
  expect(hash(Buffer.concat(received))).toBe(hash(data));
  expect(near.destroyed).toBe(true);
  expect(stdout.writableEnded).toBe(false);
});

function* chunksOf(data: Buffer): Generator<Buffer> {
  for (let at = 0; at < data.length; at += 100_003) yield data.subarray(at, at + 100_003);
}

test('a reader of stdout that stops reading slows the supervisor down', async () => {
  const { near, far } = await sockets.pair();
  const stdout = new PassThrough();
  const stdin = new PassThrough();
  const bridging = bridgeStdio(near, stdin, stdout);
  let written = 0;
  const chunk = Buffer.alloc(65_536);
  while (far.write(chunk)) written += chunk.length;
  await new Promise((resolve) => setTimeout(resolve, 50));
  for (let more = 0; more < 100; more++) far.write(chunk);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(far.writableLength).toBeGreaterThan(50 * chunk.length);
  expect(stdout.readableLength + near.readableLength).toBeLessThan(2 ** 20);
  let read = 0;
  stdout.on('data', (data: Buffer) => (read += data.length));
  far.end();
  await bridging;
  expect(read).toBe(written + 101 * chunk.length);
});

test('the end of the supervisor ends the bridge although stdin stays open, and its last output arrives', async () => {
  const { near, far } = await sockets.pair();
  const stdin = new PassThrough();
  const stdout = new PassThrough();
  const bridging = bridgeStdio(near, stdin, stdout);
  far.end('last words');
  await bridging;
  expect(String(stdout.read())).toBe('last words');
  expect(stdin.destroyed).toBe(true);
});

test('a closed stdout ends the bridge without an error', async () => {
  const { near, far } = await sockets.pair();
  const closed = readToEnd(far);
  const [stdout, reader] = duplexPair();
  const bridging = bridgeStdio(near, new PassThrough(), stdout);
  far.write('x');
  await waitUntil(() => reader.readableLength > 0);
  stdout.destroy();
  far.write('y');
  await bridging;
  await closed;
});
