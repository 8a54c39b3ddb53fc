import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { encodeFrame, FrameDecoder } from '../../../protocol/wire/framing.ts';
import { PayloadBuffers, PIECE_BYTES } from '../../../protocol/wire/payload-buffers.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import { call, serve, Sockets, until } from './peers.ts';

const MiB = 2 ** 20;
const LARGE = 3 * MiB;
const sockets = new Sockets();
afterAll(() => sockets.end());

describe('memory that is given back', () => {
  test('is used again, and whoever still looks at it sees nothing, not even what comes next', () => {
    const payloads = new PayloadBuffers();
    const early = payloads.take(LARGE).fill('a');
    const part = early.subarray(100, 200);
    payloads.giveBack(part);
    expect([early.length, part.length, payloads.kept]).toEqual([0, 0, PIECE_BYTES]);
    const next = payloads.take(LARGE);
    expect([next.length, payloads.kept]).toEqual([LARGE, 0]);
    expect(next.every((byte) => byte === 0x61)).toBe(true); // the same memory
    next.fill('b');
    expect([early.length, early[0], part.toString()]).toEqual([0, undefined, '']);
    expect(() => early.writeUInt8(1, 0)).toThrow();
  });

  test('twice has one owner after it all the same', () => {
    const payloads = new PayloadBuffers();
    const bytes = payloads.take(LARGE);
    payloads.giveBack(bytes);
    payloads.giveBack(bytes);
    const [one, other] = [payloads.take(LARGE).fill('1'), payloads.take(LARGE).fill('2')];
    expect([one.every((byte) => byte === 0x31), other.every((byte) => byte === 0x32)]).toEqual([true, true]);
  });

  test.each([
    ['of somebody else', () => Buffer.alloc(LARGE, 'x')],
    ['of another pool', () => new PayloadBuffers().take(LARGE).fill('x')],
    ['too small to be worth it', () => new PayloadBuffers().take(1000).fill('x')],
    ['too large for a piece', () => new PayloadBuffers().take(PIECE_BYTES + 1).fill('x')],
    ['of the pool that Node shares', () => Buffer.from('x')],
  ])('but is %s stays as it is', (_whose, make) => {
    const payloads = new PayloadBuffers();
    const bytes = make();
    const before = Buffer.from(bytes);
    payloads.giveBack(bytes);
    expect([payloads.kept, bytes.equals(before)]).toEqual([0, true]);
  });

  describe('is kept', () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    test('as much as two transfers use, and only while there are some', () => {
      const payloads = new PayloadBuffers();
      const lent = Array.from({ length: 10 }, () => payloads.take(LARGE));
      for (const bytes of lent) payloads.giveBack(bytes);
      expect(payloads.kept).toBe(4 * PIECE_BYTES);
      expect(lent.map(({ length }) => length)).toEqual(lent.map(() => 0));
      vi.advanceTimersByTime(900);
      payloads.giveBack(payloads.take(LARGE));
      vi.advanceTimersByTime(900);
      expect(payloads.kept).toBe(4 * PIECE_BYTES);
      vi.advanceTimersByTime(200);
      expect([payloads.kept, vi.getTimerCount()]).toEqual([0, 0]);
    });
  });
});

describe('a connection', () => {
  test('lends its caller the bytes of an answer until they are released', async () => {
    const { near, far } = await sockets.pair();
    const payloads = new PayloadBuffers();
    serve(far, {
      handlers: { download: ({ bytes }) => withBytes({}, Buffer.alloc(LARGE, String(bytes))) },
    });
    const client = call(near, undefined, undefined, payloads);
    const ask = (n: number) => client.callWithBytes('download', { bytes: n });
    const kept = await ask(1);
    const released = await ask(2);
    released.release();
    released.release();
    const later = await ask(3);
    const last = await ask(4);
    const letters = [kept, later, last].map(({ bytes }) => [bytes.length, [...new Set(bytes)]]);
    expect(letters).toEqual([
      [LARGE, [0x31]],
      [LARGE, [0x33]],
      [LARGE, [0x34]],
    ]);
    expect(released.bytes).toHaveLength(0);
    client.close();
  });

  test('has the bytes of an answer to itself until the system has taken them, however late they are read', async () => {
    const [slow, quick] = [await sockets.pair(), await sockets.pair()];
    const payloads = new PayloadBuffers();
    let taken = 0;
    const handlers = {
      download: ({ bytes: n }: { bytes: number }) => {
        const bytes = payloads.take(4 * MiB).fill(n);
        return withBytes({}, bytes, () => {
          taken += 1;
          payloads.giveBack(bytes);
        });
      },
    };
    serve(slow.far, { handlers, payloads });
    serve(quick.far, { handlers, payloads });
    const late = call(slow.near);
    const other = call(quick.near);
    const goOn = late.pauseReading();
    const lateOnes = [1, 2, 3].map((n) => late.callWithBytes('download', { bytes: n }));
    for (let n = 10; n < 30; n += 1) {
      const { bytes } = await other.callWithBytes('download', { bytes: n });
      expect(bytes.equals(Buffer.alloc(4 * MiB, n))).toBe(true);
    }
    await until(() => taken === 20);
    goOn();
    for (const [at, { bytes }] of (await Promise.all(lateOnes)).entries()) {
      expect(bytes.equals(Buffer.alloc(4 * MiB, at + 1))).toBe(true);
    }
    await until(() => taken === 23);
    late.close();
    other.close();
  });

  test('tells whoever lent it the bytes of a call when it needs them no longer', async () => {
    const { near, far } = await sockets.pair();
    const payloads = new PayloadBuffers();
    const seen: unknown[] = [];
    serve(far, {
      payloads,
      handlers: {
        upload: (_params, { bytes, releaseBytes }) => {
          seen.push([...new Set(bytes)]);
          const count = bytes.length;
          releaseBytes();
          seen.push(bytes.length);
          return { bytes: count };
        },
      },
    });
    const client = call(near);
    for (const letter of ['x', 'y']) {
      const mine = payloads.take(LARGE).fill(letter);
      const onBytesTaken = (): void => payloads.giveBack(mine);
      expect(await client.call('upload', {}, { bytes: mine, onBytesTaken })).toEqual({ bytes: LARGE });
      expect(mine).toHaveLength(0);
    }
    expect(seen).toEqual([[0x78], 0, [0x79], 0]);
    client.close();
  });

  test.each([
    ['nobody waits for any more', 'cancel'],
    ['cannot be sent', 'too large'],
  ])('gives back the bytes of an answer that %s', async (_what, how) => {
    const { near, far } = await sockets.pair();
    const handled = Promise.withResolvers<undefined>();
    let taken = 0;
    serve(far, {
      handlers: {
        download: async () => {
          if (how === 'cancel') await handled.promise;
          return withBytes({}, Buffer.alloc(how === 'cancel' ? 10 : 5 * MiB), () => (taken += 1));
        },
      },
    });
    const client = call(near);
    const asked = client.call('download', { bytes: 1 });
    if (how === 'cancel') {
      asked.catch(() => undefined);
      await client.call('missing', {}).catch(() => undefined); // it has arrived
      client.close();
      await client.closed;
      handled.resolve(undefined);
    } else await expect(asked).rejects.toThrow();
    await until(() => taken === 1);
    client.close();
  });
});

test('a payload that is cut off leaves its memory to the next', () => {
  const payloads = new PayloadBuffers();
  const frames: Buffer[] = [];
  const { line, bytes } = encodeFrame({ a: 1 }, Buffer.alloc(4 * MiB, 'z'));
  const cut = new FrameDecoder(({ bytes: payload }) => frames.push(payload ?? Buffer.alloc(0)), payloads);
  cut.push(Buffer.concat([line, Buffer.alloc(2 * MiB)]));
  expect(payloads.kept).toBe(0);
  cut.stop();
  expect(payloads.kept).toBe(PIECE_BYTES);
  const whole = new FrameDecoder(({ bytes: payload }) => frames.push(payload ?? Buffer.alloc(0)), payloads);
  whole.push(line);
  expect(whole.buffered).toBe(4 * MiB); // at once where it costs nothing
  whole.push(Buffer.from(bytes ?? []));
  expect(frames.map((payload) => [payload.length, [...new Set(payload)]])).toEqual([[4 * MiB, [0x7a]]]);
});
