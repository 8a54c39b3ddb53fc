import { describe, expect, test } from 'vitest';
import { FIRST_SESSION_UID, Sessions } from '../../../supervisor/store/sessions.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import {
  thrownError,
  sessionId,
  sessionRow,
  temporaryDatabase,
} from '../../fixtures/store/temporary-home.ts';

const store = (): Sessions => new Sessions(temporaryDatabase());

describe('sessions', () => {
  test('are read as they were written', () => {
    const sessions = store();
    const row = sessionRow(1, {
      tags: ['a', 'b"c'],
      about: 'what it is about',
      model: 'm',
      pinned: true,
      codeVersion: 3,
      expiresAt: 5,
      deletedAt: 6,
      workspaceBytes: 0,
    });
    sessions.insert(row);
    expect(sessions.get(row.id)).toEqual(row);
    expect(sessions.get(sessionId(2))).toBeNull();
  });

  test('change only the fields of a patch', () => {
    const sessions = store();
    sessions.insert(sessionRow(1, { model: 'm' }));
    const after = sessions.update(sessionId(1), { status: 'idle', tags: ['x'], model: null, codeVersion: 2 });
    expect(after).toEqual(sessionRow(1, { status: 'idle', tags: ['x'], model: null, codeVersion: 2 }));
    expect(sessions.get(sessionId(1))).toEqual(after);
    expect(thrownError(() => sessions.update(sessionId(2), { pinned: true })).code).toBe('not_found');
  });

  test('have names that are unique per profile among those not deleted', () => {
    const sessions = store();
    sessions.insert(sessionRow(1, { name: 'n' }));
    sessions.insert(sessionRow(2, { name: 'n', profile: 'other' }));
    const failure = thrownError(() => sessions.insert(sessionRow(3, { name: 'n' })));
    expect([failure.code, failure.details]).toEqual(['already_exists', { session: sessionId(1) }]);
    sessions.insert(sessionRow(3, { name: 'm' }));
    expect(thrownError(() => sessions.update(sessionId(3), { name: 'n' })).code).toBe('already_exists');
    sessions.update(sessionId(1), { status: 'deleted' });
    sessions.update(sessionId(3), { name: 'n' });
    expect(sessions.getByName('counter', 'n')?.id).toBe(sessionId(3));
    expect(thrownError(() => sessions.update(sessionId(1), { status: 'idle' })).code).toBe('already_exists');
  });

  test('have one name in any Unicode form, also those of earlier versions', () => {
    const [composed, decomposed] = ['caf\u00e9', 'cafe\u0301'];
    const sessions = store();
    sessions.insert(sessionRow(1, { name: decomposed }));
    expect(sessions.getByName('counter', composed)?.id).toBe(sessionId(1));
    expect(sessions.find(`counter/${composed}`).id).toBe(sessionId(1));
    expect([sessions.find(composed).id, sessions.find(decomposed).id]).toEqual([sessionId(1), sessionId(1)]);
    expect(thrownError(() => sessions.insert(sessionRow(2, { name: composed }))).code).toBe('already_exists');
    sessions.update(sessionId(1), { name: composed });
    expect(sessions.find(decomposed).id).toBe(sessionId(1));
    expect(thrownError(() => sessions.find('cafe')).code).toBe('not_found');
  });

  test('are listed with the pinned ones first, page by page', () => {
    const sessions = store();
    for (let at = 1; at <= 6; at += 1)
      sessions.insert(sessionRow(at, { name: `n${at}`, lastActiveAt: at, pinned: at % 3 === 0 }));
    const names: string[] = [];
    let cursor: string | undefined;
    do {
      const page = sessions.list({ limit: 1, cursor });
      names.push(...page.rows.map(({ name }) => name));
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(names).toEqual(['n6', 'n3', 'n5', 'n4', 'n2', 'n1']);
  });

  test('are found by id, name, or profile/name', () => {
    const sessions = store();
    sessions.insert(sessionRow(1, { name: 'same' }));
    sessions.insert(sessionRow(2, { name: 'same', profile: 'other' }));
    sessions.insert(sessionRow(3, { name: 'alone' }));
    sessions.insert(sessionRow(4, { name: 'gone', status: 'deleted' }));
    expect(sessions.find(sessionId(2)).name).toBe('same');
    expect(sessions.find('alone').id).toBe(sessionId(3));
    expect(sessions.find('other/same').id).toBe(sessionId(2));
    const ambiguous = thrownError(() => sessions.find('same'));
    expect(ambiguous.code).toBe('ambiguous_name');
    expect(ambiguous.details).toEqual({ candidates: ['counter/same', 'other/same'] });
    expect(ambiguous.next).toContain('counter/same, other/same');
    for (const ref of ['nobody', 'counter/alone/x', 'other/alone', sessionId(9), 'gone', sessionId(4)]) {
      expect([ref, thrownError(() => sessions.find(ref)).code]).toEqual([ref, 'not_found']);
    }
  });

  test('are listed by filter', () => {
    const sessions = store();
    sessions.insert(sessionRow(1, { name: 'Alpha_1', pinned: true, tags: ['x'] }));
    sessions.insert(sessionRow(2, { name: 'alpha 2', about: '100% of it', archived: true }));
    sessions.insert(sessionRow(3, { name: 'beta', profile: 'other', status: 'idle', tags: ['x', 'y'] }));
    sessions.insert(sessionRow(4, { name: 'was', status: 'deleted' }));
    const names = (filter: Parameters<Sessions['list']>[0]): string[] =>
      sessions.list(filter).rows.map((row) => row.name);
    expect(names({})).toEqual(['Alpha_1', 'beta', 'alpha 2']);
    expect(names({ status: 'deleted' })).toEqual(['was']);
    expect(names({ status: 'idle' })).toEqual(['beta']);
    expect(names({ profile: 'counter' })).toEqual(['Alpha_1', 'alpha 2']);
    expect(names({ pinned: true })).toEqual(['Alpha_1']);
    expect(names({ archived: false })).toEqual(['Alpha_1', 'beta']);
    expect(names({ tag: 'x' })).toEqual(['Alpha_1', 'beta']);
    expect(names({ tag: 'X"]' })).toEqual([]);
    expect(names({ search: 'ALPHA' })).toEqual(['Alpha_1', 'alpha 2']);
    expect(names({ search: '_' })).toEqual(['Alpha_1']);
    expect(names({ search: '0%' })).toEqual(['alpha 2']);
    expect(names({ search: '\\' })).toEqual([]);
    expect(names({ search: 'a', tag: 'x', profile: 'other' })).toEqual(['beta']);
  });

  test('are paged without loss or repetition, also with equal times', () => {
    const sessions = store();
    const random = seededRandom(7);
    for (let n = 0; n < 101; n += 1)
      sessions.insert(sessionRow(n, { lastActiveAt: Math.floor(random() * 5) }));
    const seen: string[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const page = sessions.list({ limit: 10, cursor });
      seen.push(...page.rows.map((row) => row.id));
      cursor = page.nextCursor ?? undefined;
      pages += 1;
    } while (cursor !== undefined);
    expect(pages).toBe(11);
    expect(seen).toEqual(sessions.list({ limit: 1000 }).rows.map((row) => row.id));
    expect(new Set(seen).size).toBe(101);
    expect(sessions.list().rows).toHaveLength(100);
    expect(sessions.list({ limit: 101 }).nextCursor).toBeNull();
    for (const bad of ['', 'x', Buffer.from('[1]').toString('base64url')]) {
      expect(thrownError(() => sessions.list({ cursor: bad })).code).toBe('invalid_params');
    }
  });

  test('get the smallest uid that no row has, tombstones included', () => {
    const sessions = store();
    expect(sessions.allocateUid()).toBe(FIRST_SESSION_UID);
    sessions.insert(sessionRow(1, { uid: 1000 }));
    for (const n of [0, 1, 3])
      sessions.insert(sessionRow(10 + n, { uid: FIRST_SESSION_UID + n, status: 'deleted' }));
    expect(sessions.allocateUid()).toBe(FIRST_SESSION_UID + 2);
    sessions.remove(sessionId(10));
    expect(sessions.allocateUid()).toBe(FIRST_SESSION_UID);
  });

  test('are counted by status', () => {
    const sessions = store();
    sessions.insert(sessionRow(1));
    sessions.insert(sessionRow(2, { status: 'idle' }));
    sessions.insert(sessionRow(3, { status: 'idle' }));
    expect(sessions.countByStatus()).toEqual({
      created: 1,
      active: 0,
      idle: 2,
      paused: 0,
      resumable: 0,
      expired: 0,
      deleted: 0,
    });
    expect(sessions.all(['idle']).map((row) => row.id)).toEqual([sessionId(2), sessionId(3)]);
    expect(sessions.all()).toHaveLength(3);
    expect(sessions.all([])).toEqual([]);
  });

  test('with invalid rows are refused', () => {
    const database = temporaryDatabase();
    const sessions = new Sessions(database);
    sessions.insert(sessionRow(1));
    database.run("UPDATE sessions SET tags = '{'");
    expect(thrownError(() => sessions.get(sessionId(1))).code).toBe('home_damaged');
    database.run("UPDATE sessions SET tags = '[]', status = 'sleeping'");
    expect(thrownError(() => sessions.list()).why).toContain('status');
  });
});
