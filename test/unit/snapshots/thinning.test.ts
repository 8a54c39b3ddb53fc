import { expect, test } from 'vitest';
import { type ThinningCandidate, snapshotsToThin } from '../../../supervisor/snapshots/thinning.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const NOW = Date.UTC(2031, 4, 20, 12, 30);

function at(age: number, more: Partial<ThinningCandidate> = {}): ThinningCandidate {
  const createdAt = NOW - age;
  return { id: `snp-${createdAt}`, createdAt, reason: 'before-turn', label: null, pinned: false, ...more };
}

const kept = (
  snapshots: readonly ThinningCandidate[],
  bases = new Set<string>(),
  now = NOW,
): ThinningCandidate[] => {
  const gone = new Set(snapshotsToThin(snapshots, bases, now).map(({ id }) => id));
  return snapshots.filter(({ id }) => !gone.has(id));
};

test('keeps all for a day, then one per hour for a week, then one per day', () => {
  const every10Minutes = Array.from({ length: 6 * 24 * 30 }, (_, index) => at(index * 10 * MINUTE + 1));
  const left = kept(every10Minutes);
  const from = (begin: number, end: number): ThinningCandidate[] =>
    left.filter(({ createdAt }) => createdAt >= NOW - begin && createdAt < NOW - end);
  // An hour that ended within a day, and the half hour that has begun, are there whole.
  expect(from(DAY + HOUR / 2, 0)).toHaveLength(6 * 24 + 3);
  // Of those before, each has its newest, up to the end of the day that ended within a week, which is half a day
  // earlier.
  const hours = from(7 * DAY + 12.5 * HOUR, DAY + HOUR / 2);
  expect(hours).toHaveLength(24 * 6 + 12);
  expect(new Set(hours.map(({ createdAt }) => createdAt % HOUR))).toEqual(new Set([HOUR - 1]));
  const days = from(30 * DAY, 7 * DAY + 12.5 * HOUR);
  expect(days).toHaveLength(23);
  expect(new Set(days.map(({ createdAt }) => createdAt % DAY))).toEqual(new Set([DAY - 1]));
});

test('never selects manual, labelled or pinned snapshots, bases of forks, or the newest', () => {
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
  expect(snapshotsToThin([at(400 * DAY)], new Set(), NOW)).toEqual([]);
});

test('of the snapshots that an agent made the newest stay, however young all of them are', () => {
  const many = Array.from({ length: 25 }, (_, age) =>
    at(age * MINUTE, { reason: 'agent', label: `state ${age}` }),
  );
  const others = [at(30 * MINUTE), at(31 * MINUTE, { reason: 'agent', pinned: true })];
  expect(kept([...many, ...others])).toEqual([...many.slice(0, 20), ...others]);
  expect(kept(many, new Set([many[24]?.id ?? '']))).toEqual([...many.slice(0, 20), many[24]]);
});

test('a label that an agent gave keeps no snapshot, and a pin does', () => {
  const old = 40 * DAY;
  const ofAgent = { reason: 'agent', label: 'before the upgrade' } as const;
  const newest = at(old, ofAgent);
  const pinned = at(old + 1, { ...ofAgent, pinned: true });
  const manual = at(old + 2, { ...ofAgent, reason: 'manual' });
  expect(kept([newest, pinned, manual, at(old + 3, ofAgent)])).toEqual([newest, pinned, manual]);
});

test('thinning often keeps the same snapshots as thinning once', () => {
  const random = new SeededRandom(seedOfRun('thinning'));
  for (let round = 0; round < soakCount(200, 20_000); round += 1) {
    // Several in an hour: within a day or some.
    const [begin, length] = [random.below(9 * DAY), [20 * HOUR, 4 * DAY][random.below(2)] ?? DAY];
    const all = Array.from({ length: random.below(80) }, (_, index) =>
      at(begin + random.below(length), { id: `snp-${index}`, pinned: random.below(9) === 0 }),
    );
    const bases = new Set(all.filter(() => random.below(12) === 0).map(({ id }) => id));
    let often = all;
    let now = NOW;
    for (let times = 1 + random.below(9); times > 0; times -= 1) {
      // Hours, days, and anything between: whatever straddles a limit then.
      now += random.below([HOUR, 5 * HOUR, DAY, 3 * DAY][random.below(4)] ?? DAY);
      often = kept(often, bases, now);
    }
    expect(kept(often, bases, now)).toEqual(kept(all, bases, now));
  }
});
