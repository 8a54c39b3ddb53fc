import { expect, test } from 'vitest';
import { settingsOf } from '../../../supervisor/agents/acp/settings.ts';

const valuesOf = (options: unknown) =>
  settingsOf({ configOptions: [{ id: 'a', currentValue: 'x', options }], modes: null })[0]?.values;

test('values come alone and in groups, and what is no value is left out', () => {
  const grouped = [{ value: 'a', name: 'A' }, 0, null, { options: [{ value: 'b' }, 'c'] }, { value: 1 }];
  expect(valuesOf(grouped)).toEqual([
    { value: 'a', name: 'A' },
    { value: 'b', name: '' },
  ]);
  expect(valuesOf('none')).toEqual([]);
});

test('as many values as a message can have take no time', () => {
  const start = performance.now();
  expect(valuesOf(Array.from({ length: 100_000 }, () => 0))).toEqual([]);
  const groups = Array.from({ length: 100 }, () => ({ options: Array.from({ length: 1000 }, () => 0) }));
  expect(valuesOf(groups)).toEqual([]);
  expect(valuesOf(Array.from({ length: 1000 }, (_, nth) => ({ value: String(nth) })))).toHaveLength(100);
  expect(performance.now() - start).toBeLessThan(1000);
});
