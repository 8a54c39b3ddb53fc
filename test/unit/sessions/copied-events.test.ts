import { expect, test } from 'vitest';
import { copyEvents } from '../../../supervisor/sessions/copied-events.ts';

const at = '2026-03-01T10:00:00.000Z';
const cutUpTo = (seq: number, removedUpTo: number) => ({
  ...{ seq, at, type: 'history.cut' },
  data: { seq: removedUpTo, removed: 1, kept: 1, keyId: 'a'.repeat(64) },
});
const measured = (seq: number) => ({ seq, at, type: 'workspace.measured', data: { bytes: 1 } });
const places = (...history: Parameters<typeof copyEvents>[0][number][]) =>
  copyEvents(history, new Map()).flatMap(({ entry }) =>
    entry.type === 'history.cut' ? [entry.data.seq] : [],
  );

test('the place of a cut is how many events before it stayed', () => {
  const history = [measured(2), measured(5), measured(9), measured(10)];
  for (const [removedUpTo, place] of [
    [1, 1],
    [2, 1],
    [4, 1],
    [5, 2],
    [8, 2],
    [9, 3],
    [10, 4],
    [99, 4],
  ] as const)
    expect(places(...history, cutUpTo(11, removedUpTo))).toEqual([place]);
});
