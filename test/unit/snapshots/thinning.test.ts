import { expect, test } from 'vitest';
import { type Thinnable, thinned } from '../../../supervisor/snapshots/thinning.ts';
import { Seeded, seedOfRun } from '../protocol/seeded.ts';
import { times } from '../../setup/run-length.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NOW = Date.UTC(2031, 4, 20, 12, 30);

function at(age: number, more: Partial<Thinnable> = {}): Thinnable {
  const createdAt = NOW - age;
  return { id: `snp-${createdAt}`, createdAt, reason: 'before-turn', label: null, pinned: false, ...more };
}

const kept = (snapshots: readonly Thinnable[], bases = new Set<string>(), now = NOW): Thinnable[] => {
  const gone = new Set(thinned(snapshots, bases, now).map(({ id }) => id));
  return snapshots.filter(({ id }) => !gone.has(id));
};

test('all of a day, then one an hour for a week, then one a day', () => {
  const every10Minutes = Array.from({ length: 6 * 24 * 30 }, (_, index) => at(index * 10 * MINUTE + 1));
  const ages = kept(every10Minutes).map(({ createdAt }) => NOW - createdAt);
  const count = (from: number, to: number): number => ages.filter((age) => age > from && age <= to).length;
  expect(count(0, DAY)).toBe(6 * 24);
  expect(count(DAY, 7 * DAY)).toBeGreaterThanOrEqual(6 * 24);
  expect(count(DAY, 7 * DAY)).toBeLessThanOrEqual(6 * 24 + 1);
  expect(count(7 * DAY, 30 * DAY)).toBeLessThanOrEqual(24);
  expect(count(7 * DAY, 30 * DAY)).toBeGreaterThanOrEqual(23);
});

test('never what somebody asked for, named or pinned, what a fork was made of, or the newest', () => {
  const old = 40 * DAY;
  const spared = [
    at(old + 1, { reason: 'manual' }),
    at(old + 2, { label: 'before the upgrade' }),
    at(old + 3, { pinned: true }),
    at(old + 4),
  ];
  const others = [at(old), at(old + 5), at(old + 6)];
  const all = [...spared, ...others];
  expect(kept(all, new Set([spared[3]?.id ?? '']))).toEqual([...spared, others[0]]);
  // Alone in their day, and all the newest of their session.
  expect(thinned([at(400 * DAY)], new Set(), NOW)).toEqual([]);
});

test('asking often keeps the same in the end as asking once', () => {
  const random = new Seeded(seedOfRun('thinning'));
  for (let round = 0; round < times(200, 20_000); round += 1) {
    const all = Array.from({ length: random.below(60) }, (_, index) =>
      at(random.below(12 * DAY), { id: `snp-${index}`, pinned: random.below(9) === 0 }),
    );
    const bases = new Set(all.filter(() => random.below(12) === 0).map(({ id }) => id));
    let often = all;
    let now = NOW;
    for (let times = 1 + random.below(5); times > 0; times -= 1) {
      now += random.below(3 * DAY);
      often = kept(often, bases, now);
    }
    // While an hour or a day is half beyond a limit, its newest one so far may be another one.
    now += 9 * DAY;
    expect(kept(often, bases, now)).toEqual(kept(all, bases, now));
  }
});
