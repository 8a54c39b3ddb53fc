import { describe, expect, test } from 'vitest';
import { formatAge, formatBytes } from '../../../extension/base/format.ts';
import {
  NO_FILTER,
  formatStatus,
  groupOf,
  menuContextOf,
  sessionFacts,
  sessionIcon,
  sessionSubtitle,
  sessionTitle,
  sessionsInGroup,
} from '../../../extension/sessions/listing.ts';
import type { Session } from '../../../protocol/entities.ts';
import { session } from './a-session.ts';

const all = [
  session({ name: 'old', lastActiveAt: '2026-01-01T00:00:00.000Z' }),
  session({ name: 'new', lastActiveAt: '2026-01-03T00:00:00.000Z', about: 'the Invoice of May' }),
  session({ name: 'kept', pinned: true }),
  session({ name: 'gone', status: 'resumable', tags: ['money'] }),
  session({ name: 'put away', archived: true }),
  session({ name: 'removed', status: 'deleted' }),
  session({ name: 'untouched', status: 'created' }),
];
const names = (sessions: readonly Session[]): string[] => sessions.map(({ name }) => name);

describe('the sessions of a group', () => {
  test('have a sandbox, or can be resumed; pinned ones come first, then the latest', () => {
    expect(names(sessionsInGroup(all, 'active', NO_FILTER))).toEqual(['kept', 'new', 'old']);
    expect(names(sessionsInGroup(all, 'earlier', NO_FILTER))).toEqual(['gone']);
    expect(groupOf(session({ status: 'paused' }))).toBe('active');
    expect(groupOf(session({ status: 'expired' }))).toBe('earlier');
    expect(names(sessionsInGroup(all, 'unstarted', NO_FILTER))).toEqual(['untouched']);
  });

  test('a session without a turn is not started until its first turn is queued or its files are copied', () => {
    const filling = { snapshotId: 'snp-aaaaaaaaaaaaaaaa', failed: null };
    expect(groupOf(session({ status: 'created' }))).toBe('unstarted');
    expect(groupOf(session({ status: 'created', queuedTurns: 1 }))).toBe('active');
    expect(groupOf(session({ status: 'created', hydration: filling }))).toBe('active');
    // A fork is about what its session was about.
    expect(groupOf(session({ status: 'created', about: 'fix the parser' }))).toBe('earlier');
  });

  test('are searched by name, profile, tags and prompts', () => {
    const asked = [session({ name: 'asked', lastPrompt: 'Now the tests' })];
    expect(names(sessionsInGroup(asked, 'active', { ...NO_FILTER, search: 'the TESTS' }))).toEqual(['asked']);
    expect(names(sessionsInGroup(all, 'active', { ...NO_FILTER, search: 'invoice' }))).toEqual(['new']);
    expect(names(sessionsInGroup(all, 'earlier', { ...NO_FILTER, search: 'MONEY' }))).toEqual(['gone']);
    expect(names(sessionsInGroup(all, 'active', { ...NO_FILTER, search: 'counter' }))).toHaveLength(3);
  });

  test('are filtered by state, and archived ones are listed separately', () => {
    expect(sessionsInGroup(all, 'active', { ...NO_FILTER, statuses: ['paused'] })).toEqual([]);
    expect(names(sessionsInGroup(all, 'active', { ...NO_FILTER, archived: true }))).toEqual(['put away']);
  });
});

test('the context of the menus describes what can be done with a session', () => {
  const running = session({ status: 'active', runningTurn: 'turn-aaaaaaaaaaaaaaaa', queuedTurns: 2 });
  expect(menuContextOf(running).split(' ')).toEqual([
    'session',
    'active',
    'running',
    'unpinned',
    'unarchived',
  ]);
  expect(menuContextOf(session({ pinned: true, archived: true })).split(' ')).toEqual([
    'session',
    'idle',
    'notRunning',
    'pinned',
    'archived',
  ]);
  expect(sessionIcon(running).id).toBe('loading~spin');
  expect(formatStatus(running)).toBe('running, 2 queued');
  const filling = { snapshotId: 'snp-aaaaaaaaaaaaaaaa', failed: null };
  const moving = { with: { home: 'a'.repeat(26), name: 'far' } };
  expect(formatStatus(session({ status: 'resumable', move: { ...moving, state: 'leaving' } }))).toBe(
    'moving to far',
  );
  expect(formatStatus(session({ status: 'created', move: { ...moving, state: 'arriving' } }))).toBe(
    'arriving from far',
  );
  expect(formatStatus(session({ status: 'created', hydration: filling }))).toBe('copying files');
  const failed = { code: 'no_space', why: 'The disk is full' };
  expect(formatStatus(session({ status: 'created', hydration: { ...filling, failed } }))).toBe(
    'files could not be copied',
  );
});

test('ages are short', () => {
  const now = Date.parse('2026-01-31T12:00:00.000Z');
  const told = (time: string): string => formatAge(time, now);
  expect(told('2026-01-31T11:59:30.000Z')).toBe('now');
  expect(told('2026-01-31T11:18:00.000Z')).toBe('42 min');
  expect(told('2026-01-31T07:00:00.000Z')).toBe('5 h');
  expect(told('2026-01-28T12:00:00.000Z')).toBe('3 d');
  expect(told('2025-12-01T12:00:00.000Z')).toBe('2025-12-01');
});

test('a session without a name shows its profile and the end of its id', () => {
  const unnamed = session({ name: 'ses-aaaaaaaaaaaaaaaa' });
  expect([sessionTitle(unnamed), sessionSubtitle(unnamed)]).toEqual(['counter', 'aaaa']);
  const named = session({ name: 'invoices' });
  expect([sessionTitle(named), sessionSubtitle(named)]).toEqual(['invoices', 'counter']);
});

test('sizes have a unit that fits', () => {
  expect([12, 4_000, 3_500_000, 5e9].map(formatBytes)).toEqual(['12 bytes', '4 KB', '3.3 MB', '4.7 GB']);
});

test('the tooltip of a session says who created it, from what, and of which lineage it is', () => {
  expect(sessionFacts(session({}))).toContain('Created 2026-01-01T00:00:00.000Z by ada');
  expect(sessionFacts(session({})).filter((line) => /^(Began|Lineage)/.test(line))).toEqual([]);
  const lineage = 'ses-bbbbbbbbbbbbbbbb';
  const forked = { origin: { kind: 'fork' as const, snapshotId: 'snp-aaaaaaaaaaaaaaaa' }, lineage };
  expect(sessionFacts(session(forked))).toEqual(
    expect.arrayContaining(['Began as a fork of snapshot snp-aaaaaaaaaaaaaaaa', `Lineage: ${lineage}`]),
  );
  const imported = session({ origin: { kind: 'import', snapshotId: null }, author: null });
  expect(sessionFacts(imported)).toEqual(
    expect.arrayContaining(['Created 2026-01-01T00:00:00.000Z', 'Began as the import of a bundle']),
  );
});
