import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { encodeFrame, FrameDecoder } from '../../../protocol/wire/framing.ts';
import { BufferPool, BUFFER_BYTES } from '../../../protocol/wire/buffer-pool.ts';
import { withBytes } from '../../../protocol/wire/shapes.ts';
import { callingPeer, servingPeer, SocketPairs, waitUntil } from '../../fixtures/protocol/peers.ts';

const MiB = 2 ** 20;
const LARGE = 3 * MiB;
const sockets = new SocketPairs();
afterAll(() => sockets.dispose());

describe('a released buffer', () => {
  test('is reused, and a late reader sees an empty view and never the next payload', () => {
    const payloads = new BufferPool();
    const early = payloads.acquire(LARGE).fill('a');
    const part = early.subarray(100, 200);
    payloads.release(part);
    expect([early.length, part.length, payloads.freeBytes]).toEqual([0, 0, BUFFER_BYTES]);
    const next = payloads.acquire(LARGE);
    expect([next.length, payloads.freeBytes]).toEqual([LARGE, 0]);
    expect(next.every((byte) => byte === 0x61)).toBe(true); // the same memory
    next.fill('b');
    expect([early.length, early[0], part.toString()]).toEqual([0, undefined, '']);
    expect(() => early.writeUInt8(1, 0)).toThrow();
  });

  test('twice leaves one owner', () => {
    const payloads = new BufferPool();
    const bytes = payloads.acquire(LARGE);
    payloads.release(bytes);
    payloads.release(bytes);
    const [one, other] = [payloads.acquire(LARGE).fill('1'), payloads.acquire(LARGE).fill('2')];
    expect([one.every((byte) => byte === 0x31), other.every((byte) => byte === 0x32)]).toEqual([true, true]);
  });

  test.each([
    ['of somebody else', () => Buffer.alloc(LARGE, 'x')],
    ['of another pool', () => new BufferPool().acquire(LARGE).fill('x')],
    ['too small to be worth it', () => new BufferPool().acquire(1000).fill('x')],
    ['too large for a piece', () => new BufferPool().acquire(BUFFER_BYTES + 1).fill('x')],
    ['of the pool that Node shares', () => Buffer.from('x')],
  ])('but is %s stays as it is', (_whose, make) => {
    const payloads = new BufferPool();
    const bytes = make();
    const before = Buffer.from(bytes);
    payloads.release(bytes);
    expect([payloads.freeBytes, bytes.equals(before)]).toEqual([0, true]);
  });

  describe('is kept', () => {
    beforeEach(() => {
      vi.useFakeTimers();
    });
    afterEach(() => {
      vi.useRealTimers();
    });

    test('the pool keeps buffers for two transfers, and only while there are transfers', () => {
      const payloads = new BufferPool();
      const lent = Array.from({ length: 10 }, () => payloads.acquire(LARGE));
      for (const bytes of lent) payloads.release(bytes);
      expect(payloads.freeBytes).toBe(4 * BUFFER_BYTES);
      expect(lent.map(({ length }) => length)).toEqual(lent.map(() => 0));
      vi.advanceTimersByTime(900);
      payloads.release(payloads.acquire(LARGE));
      vi.advanceTimersByTime(900);
      expect(payloads.freeBytes).toBe(4 * BUFFER_BYTES);
      vi.advanceTimersByTime(200);
      expect([payloads.freeBytes, vi.getTimerCount()]).toEqual([0, 0]);
    });
  });
});

describe('a connection', () => {
  test('gives its caller the payload of a response until it is released', async () => {
    const { near, far } = await sockets.pair();
    const payloads = new BufferPool();
    servingPeer(far, {
      handlers: { download: ({ bytes }) => withBytes({}, Buffer.alloc(LARGE, String(bytes))) },
    });
    const client = callingPeer(near, undefined, undefined, payloads);
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

  test('owns the payload of a response until it has been flushed, however late it is read', async () => {
    const [slow, quick] = [await sockets.pair(), await sockets.pair()];
    const payloads = new BufferPool();
    let taken = 0;
    const handlers = {
      download: ({ bytes: n }: { bytes: number }) => {
        const bytes = payloads.acquire(4 * MiB).fill(n);
        return withBytes({}, bytes, () => {
          taken += 1;
          payloads.release(bytes);
        });
      },
    };
    servingPeer(slow.far, { handlers, payloads });
    servingPeer(quick.far, { handlers, payloads });
    const late = callingPeer(slow.near);
    const other = callingPeer(quick.near);
    const goOn = late.pauseReading();
    const lateOnes = [1, 2, 3].map((n) => late.callWithBytes('download', { bytes: n }));
    for (let n = 10; n < 30; n += 1) {
      const { bytes } = await other.callWithBytes('download', { bytes: n });
      expect(bytes.equals(Buffer.alloc(4 * MiB, n))).toBe(true);
    }
    await waitUntil(() => taken === 20);
    goOn();
    for (const [at, { bytes }] of (await Promise.all(lateOnes)).entries()) {
      expect(bytes.equals(Buffer.alloc(4 * MiB, at + 1))).toBe(true);
    }
    await waitUntil(() => taken === 23);
    late.close();
    other.close();
  });

  test('reports when it no longer needs the payload of a call', async () => {
    const { near, far } = await sockets.pair();
    const payloads = new BufferPool();
    const seen: unknown[] = [];
    servingPeer(far, {
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
    const client = callingPeer(near);
    for (const letter of ['x', 'y']) {
      const mine = payloads.acquire(LARGE).fill(letter);
      const onBytesTaken = (): void => payloads.release(mine);
      expect(await client.call('upload', {}, { bytes: mine, onBytesFlushed: onBytesTaken })).toEqual({
        bytes: LARGE,
      });
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
    servingPeer(far, {
      handlers: {
        download: async () => {
          if (how === 'cancel') await handled.promise;
          return withBytes({}, Buffer.alloc(how === 'cancel' ? 10 : 5 * MiB), () => (taken += 1));
        },
      },
    });
    const client = callingPeer(near);
    const asked = client.call('download', { bytes: 1 });
    if (how === 'cancel') {
      asked.catch(() => undefined);
      await client.call('missing', {}).catch(() => undefined); // it has arrived
      client.close();
      await client.closed;
      handled.resolve(undefined);
    } else await expect(asked).rejects.toThrow();
    await waitUntil(() => taken === 1);
    client.close();
  });
});

test('the buffer of a truncated payload returns to the pool', () => {
  const payloads = new BufferPool();
  const frames: Buffer[] = [];
  const { line, bytes } = encodeFrame({ a: 1 }, Buffer.alloc(4 * MiB, 'z'));
  const cut = new FrameDecoder(({ bytes: payload }) => frames.push(payload ?? Buffer.alloc(0)), payloads);
  cut.push(Buffer.concat([line, Buffer.alloc(2 * MiB)]));
  expect(payloads.freeBytes).toBe(0);
  cut.stop();
  expect(payloads.freeBytes).toBe(BUFFER_BYTES);
  const whole = new FrameDecoder(({ bytes: payload }) => frames.push(payload ?? Buffer.alloc(0)), payloads);
  whole.push(line);
  expect(whole.buffered).toBe(4 * MiB); // at once where it costs nothing
  whole.push(Buffer.from(bytes ?? []));
  expect(frames.map((payload) => [payload.length, [...new Set(payload)]])).toEqual([[4 * MiB, [0x7a]]]);
});
