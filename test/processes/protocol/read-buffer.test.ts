import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { encodeFrame, type Frame, FrameDecoder } from '../../../protocol/wire/framing.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import {
  acceptWithReadBuffer,
  connectWithReadBuffer,
  readChunks,
} from '../../../protocol/wire/read-buffer.ts';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { callingPeer, servingPeer, waitUntil } from '../../fixtures/protocol/peers.ts';

const MiB = 2 ** 20;
const directory = mkdtempSync(join(tmpdir(), 'holdfast-read-buffer-'));
const path = join(directory, 'socket');
const server = createServer({ pauseOnConnect: true });
const open: Socket[] = [];
await new Promise<void>((resolve) => server.listen(path, resolve));
afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy();
});
afterAll(async () => {
  // Resolves only when the server knows of no connection any more.
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true });
});

async function pair(): Promise<{ near: Socket; far: Socket; given: Socket }> {
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
  const near = connectWithReadBuffer(path);
  const given = await accepted;
  const far = acceptWithReadBuffer(given);
  open.push(near, far);
  return { near, far, given };
}

/** Bytes of which each shows where it belongs. */
function numbered(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at + 4 <= length; at += 4) bytes.writeUInt32LE(at, at);
  return bytes;
}

test('both ends of a connection read every chunk into a buffer of their own', async () => {
  const { near, far, given } = await pair();
  expect(far).not.toBe(given);
  const all = new Set<ArrayBufferLike>();
  for (const [from, to] of [
    [near, far],
    [far, near],
  ] as const) {
    const mine = new Set<ArrayBufferLike>();
    let got = 0;
    const stop = readChunks(to, (chunk) => {
      mine.add(chunk.buffer);
      got += chunk.length;
    });
    from.write(Buffer.alloc(8 * MiB));
    await waitUntil(() => got === 8 * MiB);
    expect(mine.size).toBe(1);
    for (const buffer of mine) all.add(buffer);
    stop();
  }
  expect(all.size).toBe(2);
});

test.each([
  ['that connects', 'near', 'far'],
  ['that accepts', 'far', 'near'],
] as const)(
  'a chunk that a reader retains at the side %s never shows the bytes of another connection',
  async (_side, reads, writes) => {
    const [first, second] = [await pair(), await pair()];
    const retained: Buffer[] = [];
    readChunks(first[reads], (chunk) => retained.push(chunk));
    first[writes].write('of the first');
    await waitUntil(() => retained.length === 1);
    let got = 0;
    readChunks(second[reads], (chunk) => (got += chunk.length));
    second[writes].write(Buffer.alloc(8 * MiB, 'secret'));
    await waitUntil(() => got === 8 * MiB);
    expect(retained[0]?.toString()).toBe('of the first');
  },
);

test('no message or payload of a peer retains a chunk', async () => {
  const { near, far } = await pair();
  const frames: Frame[] = [];
  const decoder = new FrameDecoder((frame) => frames.push(frame));
  readChunks(near, (chunk) => {
    decoder.push(chunk);
    // What still refers to the chunk is lost now.
    chunk.fill(0);
  });
  const texts = [10, 70_000, 300_000].map((length) => 'x'.repeat(length));
  for (const text of texts) {
    for (const bytes of [undefined, numbered(5), numbered(70_000), numbered(3 * MiB)]) {
      const frame = encodeFrame({ text }, bytes);
      far.write(frame.line);
      if (frame.bytes !== undefined) far.write(frame.bytes);
    }
  }
  await waitUntil(() => frames.length === 4 * texts.length);
  expect(frames.map(({ message }) => message['text'])).toEqual(
    texts.flatMap((text) => [text, text, text, text]),
  );
  for (const { bytes } of frames) {
    if (bytes !== undefined) expect(bytes.equals(numbered(bytes.length))).toBe(true);
  }
});

test('a reader of the plain stream may keep its chunks', async () => {
  const { near, far } = await pair();
  const sent = numbered(8 * MiB);
  const kept: Buffer[] = [];
  far.on('data', (chunk: Buffer) => kept.push(chunk));
  near.write(sent);
  await waitUntil(() => kept.reduce((sum, { length }) => sum + length, 0) === sent.length);
  expect(Buffer.concat(kept).equals(sent)).toBe(true);
});

test.each(['as pieces', 'as a stream'])('a reader that pauses stops the writer, read %s', async (how) => {
  const { near, far } = await pair();
  const sent = numbered(16 * MiB);
  const kept: Buffer[] = [];
  const take = (chunk: Buffer): void => {
    kept.push(Buffer.from(chunk));
    far.pause();
    // The first time until the test has looked.
    if (kept.length > 1) setImmediate(() => far.resume());
  };
  if (how === 'as pieces') readChunks(far, take);
  else far.on('data', take);
  let written = false;
  near.write(sent, () => (written = true));
  await waitUntil(() => kept.length > 0);
  await sleep(100);
  expect([kept.length, written]).toEqual([1, false]);
  far.resume();
  await waitUntil(() => kept.reduce((sum, { length }) => sum + length, 0) === sent.length, 20_000);
  expect(Buffer.concat(kept).equals(sent)).toBe(true);
});

test('data that arrived before the first reader is not lost, and the end follows it', async () => {
  const { near, far } = await pair();
  near.end('early');
  await sleep(50);
  const seen: string[] = [];
  readChunks(far, (chunk) => seen.push(chunk.toString()));
  far.on('end', () => seen.push('end'));
  far.on('close', () => seen.push('close'));
  await waitUntil(() => seen.length === 3);
  expect(seen).toEqual(['early', 'end', 'close']);
});

test('a server counts accepted connections until they are closed', async () => {
  const { near, far } = await pair();
  const count = () => new Promise<number>((resolve) => server.getConnections((_error, n) => resolve(n)));
  expect(await count()).toBe(1);
  near.destroy();
  await new Promise((resolve) => far.once('close', resolve));
  await waitUntil(() => far.destroyed);
  await expect.poll(count).toBe(0);
});

test.each([
  ['has no handle there', undefined],
  ['has one that takes no memory of ours', {}],
])('with a Node whose socket %s, it stays what it is and is read as any other', async (_, handle) => {
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
  const near = connectWithReadBuffer(path);
  const given = await accepted;
  open.push(near, given);
  const real = Reflect.get;
  const looked = vi
    .spyOn(Reflect, 'get')
    .mockImplementation((target: object, key: PropertyKey) =>
      key === '_handle' ? handle : (real(target, key) as unknown),
    );
  const far = acceptWithReadBuffer(given);
  looked.mockRestore();
  expect(far).toBe(given);
  servingPeer(far, { handlers: { download: ({ bytes }) => withBytes({}, numbered(bytes)) } });
  const { bytes } = await callingPeer(near).callWithBytes('download', { bytes: 3 * MiB });
  expect(bytes.equals(numbered(3 * MiB))).toBe(true);
});

test('messages and payloads of two peers are intact in chunks of any size, and later data can be kept after a release', async () => {
  const { near, far } = await pair();
  const random = new SeededRandom(11);
  servingPeer(far, {
    handlers: {
      download: ({ bytes }) => withBytes({}, numbered(bytes)),
      echo: ({ value }) => ({ value }),
      upload: (_params, { bytes }) => ({ bytes: bytes.equals(numbered(bytes.length)) ? bytes.length : -1 }),
    },
  });
  const client = callingPeer(near);
  await Promise.all(
    Array.from({ length: 60 }, async (_, n) => {
      const size = random.below(n % 3 === 0 ? 3 * MiB : 5000);
      const text = 'x'.repeat(random.below(n % 7 === 0 ? 300_000 : 100)) + String(n);
      const [down, echo, up] = await Promise.all([
        client.callWithBytes('download', { bytes: size }),
        client.call('echo', { value: text }),
        client.call('upload', {}, { bytes: numbered(size) }),
      ]);
      expect([down.bytes.equals(numbered(size)), echo.value, up.bytes]).toEqual([true, text, size]);
    }),
  );
  const raw = client.detachStream();
  const kept: Buffer[] = [];
  raw.on('data', (chunk: Buffer) => kept.push(chunk));
  raw.resume();
  const after = numbered(4 * MiB);
  far.write(after);
  await waitUntil(() => kept.reduce((sum, { length }) => sum + length, 0) === after.length);
  expect(Buffer.concat(kept).equals(after)).toBe(true);
});
