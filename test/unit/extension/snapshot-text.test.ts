import { describe, expect, test } from 'vitest';
import { formatMode, snapshotTitle, formatTotals } from '../../../extension/snapshots/format.ts';
import type { ChangeTotals, Snapshot } from '../../../protocol/snapshots.ts';

const NOW = new Date(2026, 10, 22, 15, 30).getTime();
const at = (...time: [number, number, number, number, number]): string => new Date(...time).toISOString();
const title = (more: Partial<Snapshot>): string =>
  snapshotTitle(
    { label: null, reason: 'before-turn', turn: null, createdAt: at(2026, 10, 22, 11, 42), ...more },
    NOW,
  );
const turn = (prompt: string) => ({ id: 'turn-aaaaaaaaaaaaaaaa', prompt });

describe('the title of a snapshot', () => {
  test('has the prompt of the turn after it, and the time', () => {
    expect(title({ turn: turn('fix the parser') })).toBe('Before "fix the parser" · 11:42');
    expect(title({})).toBe('Before a turn · 11:42');
    expect(title({ turn: turn('') })).toBe('Before a turn · 11:42');
    expect(title({ turn: turn('😀'.repeat(100)) })).toBe(`Before "${'😀'.repeat(47)}…" · 11:42`);
  });

  test('is its label, or the reason why it was created', () => {
    expect(title({ label: 'works', turn: turn('x') })).toBe('works · 11:42');
    expect(title({ reason: 'manual' })).toBe('Created by a person · 11:42');
    expect(title({ reason: 'before-restore' })).toBe('Before a restore · 11:42');
    expect(title({ reason: 'before-reset' })).toBe('Before a reset · 11:42');
    expect(title({ reason: 'before-delete' })).toBe('Before the deletion · 11:42');
  });

  test('has the date if that is not today', () => {
    expect(title({ createdAt: at(2026, 10, 20, 0, 5) })).toBe('Before a turn · Nov 20, 00:05');
    expect(title({ createdAt: at(2025, 11, 31, 23, 59) })).toBe('Before a turn · Dec 31, 2025, 23:59');
  });
});

test('differences are counted in files, and in folders only if no file differs', () => {
  const none: ChangeTotals = {
    added: 0,
    modified: 0,
    deleted: 0,
    renamed: 0,
    mode: 0,
    typechange: 0,
    directories: 0,
    bytes: 0,
  };
  expect(formatTotals(none)).toBe('no differences');
  expect(formatTotals({ ...none, directories: 1 })).toBe('1 folder');
  expect(
    formatTotals({ ...none, added: 4, modified: 5, typechange: 1, deleted: 3, mode: 1, directories: 2 }),
  ).toBe('4 added, 6 changed, 3 deleted, 1 mode or time change');
  expect(formatTotals({ ...none, renamed: 1_000, mode: 2 })).toBe('1,000 renamed, 2 mode or time changes');
});

test('a mode is written as in ls and chmod', () => {
  expect(formatMode(0o755)).toBe('rwxr-xr-x (755)');
  expect(formatMode(0o40)).toBe('---r----- (040)');
  expect(formatMode(0o4755)).toBe('rwxr-xr-x (4755)');
});
