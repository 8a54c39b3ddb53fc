import { expect, test } from 'vitest';
import { watchSize } from '../../../supervisor/base/size-watch.ts';

/** Sizes one after the other, the last one for ever; null: it cannot be measured. */
function measuring(...sizes: (number | null)[]): () => Promise<number> {
  return () => {
    const size = sizes.length > 1 ? sizes.shift() : sizes[0];
    return size === null ? Promise.reject(new Error('busy')) : Promise.resolve(size ?? 0);
  };
}
const every = { limitBytes: 10, everyMs: 1 };

test('more than the limit is found, also after a measurement that failed', async () => {
  const { signal } = new AbortController();
  expect(await watchSize({ ...every, measure: measuring(1, null, 10, 11), signal })).toBe(true);
});

test('the signal ends the watch, also during a measurement', async () => {
  const ended = new AbortController();
  const watch = watchSize({ ...every, everyMs: 60_000, measure: measuring(1), signal: ended.signal });
  ended.abort();
  expect(await watch).toBe(false);
  const late = new AbortController();
  const measure = (): Promise<number> => {
    late.abort();
    return Promise.resolve(11);
  };
  expect(await watchSize({ ...every, measure, signal: late.signal })).toBe(false);
});
