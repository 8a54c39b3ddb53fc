import { once } from 'node:events';
import { type Duplex, duplexPair } from 'node:stream';
import { expect, test } from 'vitest';
import { Multiplexer } from '../../../protocol/wire/multiplexer.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

const SEED = Number(process.env['HOLDFAST_SEED'] ?? 20_260_101);

/** A multiplexer, and what the other side serves each stream with. */
function pair(serve: (stream: Duplex) => void): { mux: Multiplexer; near: Duplex; far: Duplex } {
  const [near, far] = duplexPair();
  new Multiplexer({
    carrier: far,
    onStream: (stream) => {
      stream.on('error', () => undefined);
      serve(stream);
    },
  });
  return { mux: new Multiplexer({ carrier: near }), near, far };
}

async function readAll(stream: Duplex): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

function frame(kind: number, id: number, length: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const header = Buffer.alloc(9);
  header.writeUInt8(kind);
  header.writeUInt32BE(id, 1);
  header.writeUInt32BE(length, 5);
  return Buffer.concat([header, payload]);
}

test('many streams carry their bytes in order, whatever the pieces, and end each by itself', async () => {
  const random = seededRandom(SEED);
  const dice = (limit: number): number => Math.floor(random() * limit);
  const { mux } = pair((stream) => stream.pipe(stream));
  expect(await mux.greeted).toBe(true);
  const streams = Array.from({ length: soakCount(60, 600) }, async (_, at) => {
    const stream = mux.open();
    const length = dice(4) === 0 ? dice(2 ** 20) : dice(3000);
    const bytes = Buffer.from(Array.from({ length: Math.min(length, 5000) }, () => dice(256)));
    const sent = Buffer.concat(Array.from({ length: Math.ceil(length / 5000) }, () => bytes));
    const got = readAll(stream);
    for (let from = 0; from < sent.length;) {
      const count = 1 + dice(at % 2 === 0 ? 50_000 : 300);
      if (!stream.write(sent.subarray(from, from + count))) await once(stream, 'drain');
      from += count;
    }
    stream.end();
    expect((await got).equals(sent)).toBe(true);
  });
  await Promise.all(streams);
});

test('a stream that nobody reads takes its window and holds up no other', async () => {
  const served: Duplex[] = [];
  const { mux } = pair((stream) => served.push(stream));
  const stuck = mux.open();
  stuck.write(Buffer.alloc(600 * 1024));
  const other = mux.open();
  other.end('hello');
  await expect.poll(() => served.length).toBe(2);
  const [first, second] = served;
  if (first === undefined || second === undefined) throw new Error('not served');
  expect((await readAll(second)).toString()).toBe('hello');
  // What is beyond the window has not left.
  expect(stuck.writableLength).toBe(600 * 1024);
  first.resume();
  await expect.poll(() => stuck.writableLength).toBe(0);
});

test('a destroyed stream is reset on the other side, and the end of the carrier ends all', async () => {
  const served: Duplex[] = [];
  const { mux, near } = pair((stream) => served.push(stream));
  const one = mux.open();
  const two = mux.open();
  await expect.poll(() => served.length).toBe(2);
  one.destroy();
  await expect.poll(() => served[0]?.destroyed).toBe(true);
  expect(served[1]?.destroyed).toBe(false);
  served[1]?.destroy();
  await expect.poll(() => two.destroyed).toBe(true);
  const three = mux.open();
  near.destroy();
  await expect.poll(() => three.destroyed).toBe(true);
  expect(mux.open().destroyed).toBe(true);
});

test.each<[string, Buffer]>([
  ['opens a stream where it may not', frame(1, 9, 0)],
  ['sends an empty frame', frame(2, 1, 0)],
  ['sends a frame beyond the window', frame(2, 1, 2 ** 20)],
  [
    'sends more than the window',
    Buffer.concat(Array.from({ length: 5 }, () => frame(2, 1, 65_536, Buffer.alloc(65_536)))),
  ],
  ['sends after its end', Buffer.concat([frame(3, 1, 0), frame(2, 1, 1, Buffer.from('x'))])],
  ['ends twice', Buffer.concat([frame(3, 1, 0), frame(3, 1, 0)])],
  ['gives credit for nothing', frame(5, 1, 1)],
  ['says what does not exist', frame(9, 1, 0)],
])('the carrier ends when the other side %s', async (_what, bytes) => {
  const [near, far] = duplexPair();
  const mux = new Multiplexer({ carrier: near });
  const stream = mux.open();
  stream.on('error', () => undefined);
  stream.pause();
  far.resume();
  far.write(bytes);
  await expect.poll(() => near.destroyed).toBe(true);
  await expect.poll(() => stream.destroyed).toBe(true);
});

test('a window of single bytes takes little more memory than its bytes', async () => {
  const [near, far] = duplexPair();
  const mux = new Multiplexer({ carrier: near });
  const stream = mux.open();
  far.resume();
  const one = frame(2, 1, 1, Buffer.from('x'));
  const before = process.memoryUsage();
  for (let at = 0; at < 200; at += 1) {
    far.write(Buffer.concat(Array.from({ length: 1000 }, () => one)));
    await new Promise(setImmediate);
  }
  const { arrayBuffers } = process.memoryUsage();
  // 200,000 buffers of their own would take about 20 MB of the heap, and their memory.
  expect(arrayBuffers - before.arrayBuffers).toBeLessThan(8 * 2 ** 20);
  expect((await new Promise<Buffer>((resolve) => stream.once('data', resolve))).length).toBeGreaterThan(0);
  stream.destroy();
});
