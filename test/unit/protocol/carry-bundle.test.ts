import { expect, test } from 'vitest';
import { carryBundle } from '../../../protocol/client/carry-bundle.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { randomOf } from '../../fixtures/hosts/cuts.ts';

const CHUNK = 300_000;
type Options = Parameters<typeof carryBundle>[0];

/** A fake of a source and a target whose connections break at random, before or after a request took effect. */
function given({ bytes, random, cut }: { bytes: Buffer; random: () => number; cut: number }) {
  let readTo = 0;
  let last = { offset: 0, end: 0 };
  let isRewound = false;
  const taken: Buffer[] = [];
  const counts = { appended: 0, cuts: 0 };
  let order: Promise<unknown> = Promise.resolve();
  /** `act` takes effect in the order of the calls, as on one connection. */
  const over = <T>(act: () => T): Promise<T> => {
    const fate = random();
    const result = order.then(() => {
      if (fate < cut) throw lost();
      const answer = act();
      if (fate < 2 * cut) throw lost();
      return answer;
    });
    order = result.catch(() => undefined);
    return result;
  };
  /** After a part that did not arrive, no later one of that connection does. */
  let isBroken = false;
  const lost = (): HoldfastError => {
    counts.cuts += 1;
    isBroken = true;
    return new HoldfastError('connection_closed', 'cut');
  };
  const source = {
    callWithBytes: () =>
      over(() => {
        if (!isRewound) {
          last = { offset: readTo, end: Math.min(bytes.length, readTo + CHUNK) };
          readTo = last.end;
        }
        isRewound = false;
        return {
          result: { end: last.end === bytes.length },
          bytes: bytes.subarray(last.offset, last.end),
          release: () => undefined,
        };
      }),
    call: () => {
      isRewound = readTo > 0;
      return Promise.resolve({ offset: last.offset });
    },
  };
  const target = {
    call: (method: string, _params: unknown, options: { bytes?: Buffer } = {}) => {
      if (method === 'bundle/resume')
        return order.then(() => {
          isBroken = false;
          return { offset: taken.reduce((sum, one) => sum + one.length, 0) };
        });
      const part = Buffer.from(options.bytes ?? '');
      counts.appended += part.length;
      return over(() => {
        if (isBroken) throw lost();
        taken.push(part);
        return {};
      });
    },
  };
  return { source: source as never, target: target as never, taken, counts };
}

function carry(parts: Pick<Options, 'source' | 'target'>): Promise<void> {
  const signal = new AbortController().signal;
  return carryBundle({ ...parts, leaving: 'a', arriving: 'b', signal, onProgress: () => undefined });
}

test.each([1, 2, 3, 4])('every byte arrives once, however the connections break (seed %i)', async (seed) => {
  const random = randomOf(seed);
  const bytes = Buffer.alloc(3_000_000);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = Math.floor(random() * 256);
  const { source, target, taken, counts } = given({ bytes, random, cut: 0.03 });
  await carry({ source, target });
  expect(counts.cuts).toBeGreaterThan(0);
  expect(Buffer.concat(taken).equals(bytes)).toBe(true);
  // A cut costs what was on its way, not what had arrived.
  expect(counts.appended).toBeLessThan(bytes.length + counts.cuts * 17 * 64 * 1024);
});

test('a side that has nothing to continue with is reported as the cut that it was', async () => {
  const cut = new HoldfastError('connection_closed', 'cut');
  const { target } = given({ bytes: Buffer.alloc(10), random: () => 1, cut: 0 });
  const source = {
    callWithBytes: () => Promise.reject(cut),
    call: () => Promise.reject(new HoldfastError('interrupted', 'it was given up')),
  };
  await expect(carry({ source: source as never, target })).rejects.toBe(cut);
});

test.each([-1, 11])('a target that claims to have %i of 10 bytes is refused', async (offset) => {
  const { source } = given({ bytes: Buffer.alloc(10), random: () => 1, cut: 0 });
  const target = {
    call: (method: string) =>
      method === 'bundle/resume'
        ? Promise.resolve({ offset })
        : Promise.reject(new HoldfastError('connection_closed', 'cut')),
  };
  await expect(carry({ source, target: target as never })).rejects.toMatchObject({ code: 'protocol_error' });
});

test('an error that is no cut ends it', async () => {
  const { source } = given({ bytes: Buffer.alloc(10), random: () => 1, cut: 0 });
  const target = { call: () => Promise.reject(new HoldfastError('no_space', 'the disk is full')) };
  await expect(carry({ source, target: target as never })).rejects.toMatchObject({ code: 'no_space' });
});
