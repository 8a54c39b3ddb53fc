import { describe, expect, test } from 'vitest';
import {
  optionLabels,
  permissionLabels,
  permissionTitle,
} from '../../../extension/inbox/permission-labels.ts';
import { WaitingChanges } from '../../../extension/inbox/waiting-changes.ts';
import {
  NO_FILTER,
  formatStatus,
  groupOf,
  menuContextOf,
  sessionIcon,
  sessionsInGroup,
} from '../../../extension/sessions/listing.ts';
import {
  badgeOf,
  clickCommandOf,
  nextWaiting,
  waitingSessions,
} from '../../../extension/sessions/waiting.ts';
import type { PermissionOption } from '../../../protocol/agent-events.ts';
import type { Session } from '../../../protocol/entities.ts';
import type { Permission } from '../../../protocol/permissions.ts';
import { session } from './a-session.ts';

const at = (day: number): string => `2026-01-0${day}T00:00:00.000Z`;
const one = (id: string, waiting: number, more: Partial<Session> = {}): Session =>
  session({ id, name: id, waiting, status: 'active', runningTurn: 'turn-aaaaaaaaaaaaaaaa', ...more });
/** Sessions of another machine have its name before a slash. */
const hostOf = (id: string): string => id.split('/').slice(0, -1).join();
const ids = (sessions: readonly Session[]): string[] => sessions.map(({ id }) => id);

describe('sessions that wait', () => {
  const late = one('late', 1, { createdAt: at(3) });
  const early = one('early', 2, { createdAt: at(1), status: 'paused' });
  const all = [late, one('busy', 0), one('gone', 1, { status: 'deleted' }), early];

  test('have a group of their own, whatever their state, and an icon that says so', () => {
    expect(groupOf(early)).toBe('waiting');
    expect(ids(sessionsInGroup(all, 'waiting', NO_FILTER)).toSorted()).toEqual(['early', 'late']);
    expect(ids(sessionsInGroup(all, 'active', NO_FILTER))).toEqual(['busy']);
    expect(formatStatus(late)).toBe('waiting for you');
    expect(sessionIcon(late).id).toBe('bell-dot');
    expect(menuContextOf(late)).toMatch(/\brunning\b.*\bwaiting\b/);
    expect(menuContextOf(one('busy', 0))).not.toContain('waiting');
  });

  test('are gone through from the oldest, and around', () => {
    expect(ids(waitingSessions(all))).toEqual(['early', 'late']);
    expect(nextWaiting(all, undefined)?.id).toBe('early');
    expect(nextWaiting(all, 'early')?.id).toBe('late');
    expect(nextWaiting(all, 'late')?.id).toBe('early');
    expect(nextWaiting(all, 'busy')?.id).toBe('early');
    expect(nextWaiting([one('busy', 0)], 'early')).toBeUndefined();
  });

  test('are counted on the icon of the view; without any it counts running turns', () => {
    expect(badgeOf(all)).toEqual({ value: 2, tooltip: '2 sessions wait for you' });
    expect(badgeOf([late])).toEqual({ value: 1, tooltip: '1 session waits for you' });
    expect(badgeOf([one('busy', 0)])).toEqual({ value: 1, tooltip: '1 turn is running' });
    expect(badgeOf([session({})])).toBeUndefined();
  });

  test('open on their page', () => {
    expect(clickCommandOf(late).command).toBe('holdfast.openSessionPage');
    expect(clickCommandOf(session({})).command).toBe('holdfast.openSession');
  });
});

describe('a person is notified of a session', () => {
  test('once when it begins to wait, and again only after it waited no more', () => {
    const changes = new WaitingChanges(hostOf);
    expect(changes.update([one('a', 0), one('b', 0)], 0)).toEqual([]);
    expect(ids(changes.update([one('a', 1), one('b', 0)], 1))).toEqual(['a']);
    expect(changes.update([one('a', 2), one('b', 0)], 2)).toEqual([]);
    expect(ids(changes.update([one('a', 1), one('b', 1)], 3))).toEqual(['b']);
    expect(changes.update([one('a', 0), one('b', 1)], 4)).toEqual([]);
    expect(ids(changes.update([one('a', 1), one('b', 1)], 5))).toEqual(['a']);
  });

  test('not when the window opens, and not again after the supervisor was away', () => {
    const changes = new WaitingChanges(hostOf);
    expect(changes.update([], 0)).toEqual([]);
    expect(changes.update([one('a', 1)], 1)).toEqual([]);
    expect(changes.update([], 2)).toEqual([]);
    expect(changes.update([one('a', 1)], 3)).toEqual([]);
  });

  test('three times a minute at most, however often agents ask', () => {
    const changes = new WaitingChanges(hostOf);
    changes.update([one('a', 0)], 0);
    const told = Array.from({ length: 10 }, (_, nth) => {
      const begun = changes.update([one('a', 1)], nth * 1000);
      changes.update([one('a', 0)], nth * 1000);
      return begun.length;
    });
    expect(told).toEqual([1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    expect(ids(changes.update([one('a', 1)], 70_000))).toEqual(['a']);
    const many = Array.from({ length: 9 }, (_, nth) => one(`many-${nth}`, 1));
    expect(changes.update(many, 70_001)).toHaveLength(2);
  });

  test('of one machine, which do not silence those of another', () => {
    const changes = new WaitingChanges(hostOf);
    const noisy = (waiting: number): Session[] =>
      Array.from({ length: 9 }, (_, nth) => one(`noisy/${nth}`, waiting));
    changes.update([...noisy(0), one('quiet/a', 0)], 0);
    expect(changes.update([...noisy(1), one('quiet/a', 0)], 1)).toHaveLength(3);
    expect(ids(changes.update([...noisy(1), one('quiet/a', 1)], 2))).toEqual(['quiet/a']);
  });

  test('of a machine, not when it is connected, and not again after it was away', () => {
    const changes = new WaitingChanges(hostOf);
    changes.update([one('here', 0)], 0);
    expect(changes.update([one('here', 0), one('far/a', 1)], 1)).toEqual([]);
    expect(changes.update([one('here', 0)], 2)).toEqual([]);
    expect(changes.update([one('here', 0), one('far/a', 1)], 3)).toEqual([]);
    expect(ids(changes.update([one('here', 1), one('far/a', 1), one('far/b', 1)], 4))).toEqual([
      'here',
      'far/b',
    ]);
  });
});

describe('what an agent wrote about a permission', () => {
  const permission: Permission = {
    id: 'perm-aaaaaaaaaaaaaaaa',
    sessionId: 'ses-aaaaaaaaaaaaaaaa',
    sessionName: 'parser',
    profile: 'claude',
    turnId: 'turn-aaaaaaaaaaaaaaaa',
    kind: 'execute',
    title: 'Run npm test',
    locations: [],
    options: [],
    askedAt: Date.parse(at(1)),
    answeredAt: null,
    answer: null,
    by: null,
  };

  test('is one short line without links, icons, or characters that hide', () => {
    const title = `$(trash) [all](command:evil)\n\u202e${'x'.repeat(400)}`;
    const shown = permissionTitle({ title, kind: 'execute' });
    expect(shown).toMatch(/^\$ \(trash\) \[all\] \(command:evil\) \\u\{202e\}x+…$/);
    expect(shown.length).toBeLessThan(180);
    expect(permissionTitle({ title: ' \n ', kind: 'fetch' })).toBe('Use a tool (fetch)');
  });

  test('shows with its session, kind and age, and the first of its files', () => {
    const now = Date.parse(at(1)) + 5 * 60_000;
    expect(permissionLabels(permission, now)).toEqual({
      label: 'Run npm test',
      description: 'parser · execute · 5 min',
    });
    const paths = ['/workspace/$(x)', 'b', 'c', 'd', 'e'];
    const locations = paths.map((path, line) => ({ path, line: line === 0 ? null : line }));
    expect(permissionLabels({ ...permission, locations }, now).detail).toBe(
      '/workspace/$ (x), b:1, c:2, 2 more',
    );
  });

  test('does not decide what an answer is said to do, nor which comes first', () => {
    const option = (id: string, name: string, kind: PermissionOption['kind']) => ({ id, name, kind });
    const offered = [
      option('1', 'Reject', 'allow_always'),
      option('2', '$(check) Allow', 'reject_once'),
      option('3', '  ', 'allow_once'),
    ];
    expect(
      optionLabels(offered).map(({ label, description, icon, option: { id } }) => [
        id,
        label,
        description,
        icon,
      ]),
    ).toEqual([
      ['3', 'allow_once', 'allows it this time', 'check'],
      ['1', 'Reject', 'allows it from now on', 'check'],
      ['2', '$ (check) Allow', 'rejects it this time', 'circle-slash'],
    ]);
  });
});
