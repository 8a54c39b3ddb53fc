import { expect, test } from 'vitest';
import { RecentStats } from '../../../extension/files/recent-stats.ts';
import type { FileStat, WriteResult } from '../../../protocol/files.ts';

const KEY = 'holdfast://ses-a/workspace/a';
const file = (more: Partial<FileStat> = {}): FileStat => ({
  type: 'file',
  size: 1,
  mtimeMs: 1000,
  mtimeNs: '1000000000',
  mode: 0o640,
  link: null,
  linkType: null,
  ...more,
});
const WRITTEN: WriteResult = {
  version: 'v2',
  size: 7,
  mtimeMs: 2000,
  mtimeNs: '2000000000',
  created: false,
  hardlinked: false,
};

/** A clock that the test moves, in ms. */
function given() {
  const clock = { ms: 0 };
  return { clock, stats: new RecentStats(() => clock.ms) };
}

test('a save answers the stat before its write and the one after it, once each', () => {
  const { stats } = given();
  stats.recordStat(KEY, file(), false);
  expect(stats.take(KEY)).toBeUndefined();
  stats.recordChecked(KEY, file({ size: 2 }));
  expect(stats.take(KEY)).toEqual(file({ size: 2 }));
  expect(stats.take(KEY)).toBeUndefined();
  stats.recordWritten(KEY, WRITTEN);
  expect(stats.take(KEY)).toEqual(file({ size: 7, mtimeMs: 2000, mtimeNs: '2000000000' }));
  expect(stats.take(KEY)).toBeUndefined();
});

test('a save of a file of which no change is known asks for nothing before its write', () => {
  const { clock, stats } = given();
  stats.recordRead(KEY);
  expect(stats.recordSaving(KEY)).toBe(false);
  stats.recordStat(KEY, file({ size: 3 }), false);
  expect(stats.recordSaving(KEY)).toBe(false);
  stats.recordRead(KEY);
  clock.ms = 60_000;
  expect(stats.recordSaving(KEY)).toBe(true);
  expect(stats.take(KEY)).toEqual(file({ size: 3 }));
  // The change that our own write is reported as, by two watches, is no other one.
  stats.recordWritten(KEY, WRITTEN);
  stats.forget(KEY);
  stats.recordStat(KEY, file({ size: 7, mtimeMs: 2000, mtimeNs: '2000000000' }), false);
  stats.forget(KEY);
  expect(stats.recordSaving(KEY)).toBe(true);
  expect(stats.take(KEY)).toMatchObject({ size: 7 });
});

test.for([
  ['a change was reported', (stats: RecentStats) => stats.forget(KEY)],
  ['changes may have been missed', (stats: RecentStats) => stats.clear()],
  ['the last write met another version', (stats: RecentStats) => stats.recordConflict(KEY)],
  ['it became a link', (stats: RecentStats) => stats.recordStat(KEY, file(), true)],
  ['it became a folder', (stats: RecentStats) => stats.recordStat(KEY, file({ type: 'directory' }), false)],
  [
    'a look after our write found another file',
    (stats: RecentStats) => {
      stats.recordWritten(KEY, WRITTEN);
      stats.forget(KEY);
      stats.recordStat(KEY, file({ size: 7, mtimeNs: '3000000000' }), false);
    },
  ],
] as const)('a save asks for the file before its write where %s', ([, happens]) => {
  const { stats } = given();
  stats.recordStat(KEY, file(), false);
  stats.recordRead(KEY);
  happens(stats);
  expect(stats.recordSaving(KEY)).toBe(false);
  expect(stats.take(KEY)).toBeUndefined();
});

test('a change that is reported long after a write is not its own', () => {
  const { clock, stats } = given();
  stats.recordStat(KEY, file(), false);
  stats.recordWritten(KEY, WRITTEN);
  clock.ms = 2_000;
  stats.forget(KEY);
  expect(stats.recordSaving(KEY)).toBe(false);
});

test('a change that is reported in between makes the next stat a request', () => {
  const { stats } = given();
  stats.recordStat(KEY, file(), false);
  stats.recordWritten(KEY, WRITTEN);
  stats.forget(KEY);
  expect(stats.take(KEY)).toBeUndefined();
  stats.recordWritten(KEY, WRITTEN);
  stats.clear();
  expect(stats.take(KEY)).toBeUndefined();
});

test('an answer is not used a second later', () => {
  const { clock, stats } = given();
  stats.recordStat(KEY, file(), false);
  stats.recordWritten(KEY, WRITTEN);
  clock.ms = 1000;
  expect(stats.take(KEY)).toBeUndefined();
});

test.for([
  ['of a link', file({ type: 'file' }), true],
  ['of a folder', file({ type: 'directory' }), false],
  ['of a FIFO', file({ type: 'fifo' }), false],
] as const)('a stat %s answers nothing', ([, stat, isLink]) => {
  const { stats } = given();
  // It was a file before.
  stats.recordStat(KEY, file(), false);
  stats.recordWritten(KEY, WRITTEN);
  stats.recordStat(KEY, stat, isLink);
  stats.recordChecked(KEY, file());
  stats.recordWritten(KEY, WRITTEN);
  expect(stats.take(KEY)).toBeUndefined();
});

test('a file that became a folder is asked for', () => {
  const { stats } = given();
  stats.recordStat(KEY, file(), false);
  stats.recordChecked(KEY, file({ type: 'directory' }));
  expect(stats.take(KEY)).toBeUndefined();
});

test('of many files only the last are kept', () => {
  const { stats } = given();
  for (let n = 0; n <= 1000; n += 1) stats.recordStat(`${KEY}${String(n)}`, file(), false);
  stats.recordWritten(`${KEY}0`, WRITTEN);
  stats.recordWritten(`${KEY}1000`, WRITTEN);
  expect(stats.take(`${KEY}0`)).toBeUndefined();
  expect(stats.take(`${KEY}1000`)).toBeDefined();
});
