import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { SessionEvent } from '../../../protocol/entities.ts';
import { GENESIS_HASH } from '../../../protocol/events.ts';
import type { EventEntry } from '../../../protocol/events.ts';
import { canonicalJson } from '../../../supervisor/history/canonical-json.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import type { Database } from '../../../supervisor/store/database.ts';
import { thrownError, sessionId, temporaryDatabase } from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);
const measured = (bytes: number): EventEntry => ({ type: 'workspace.measured', data: { bytes } });
const renamed = (name: string): EventEntry => ({ type: 'session.updated', data: { name } });

function given(): { log: EventLog; database: Database; errors: unknown[] } {
  const database = temporaryDatabase();
  const errors: unknown[] = [];
  return { database, errors, log: new EventLog(database, (error) => errors.push(error)) };
}

describe('canonical JSON', () => {
  test('has one form for each value', () => {
    expect(canonicalJson({ b: [1, { z: null, a: 'ä\n' }], a: undefined, ' ': -0, B: 1e21 })).toBe(
      '{" ":0,"B":1e+21,"b":[1,{"a":"ä\\n","z":null}]}',
    );
    expect(canonicalJson(JSON.parse('{"__proto__":1,"a":"\\ud800"}'))).toBe('{"__proto__":1,"a":"\\ud800"}');
    expect(canonicalJson([undefined])).toBe('[null]');
  });
});

describe('the history of a session', () => {
  test('numbers events from 1 without gaps and chains each to the previous one', () => {
    const { log } = given();
    const first = log.append(SESSION, [measured(1), { ...measured(2), at: 0 }]);
    const second = log.append(SESSION, [{ type: 'session.updated', data: { name: 'ä"', about: null } }]);
    const events = log.read(SESSION);
    expect(events).toEqual([...first, ...second]);
    expect(events.map((event) => event.seq)).toEqual([1, 2, 3]);
    expect(events[1]?.at).toBe('1970-01-01T00:00:00.000Z');
    let before = GENESIS_HASH;
    for (const { sessionId: session, seq, at, type, data, prevHash, hash: own } of events) {
      expect(prevHash).toBe(before);
      // The rule as a stranger would apply it to what a client is given.
      expect(own).toBe(hash('sha256', canonicalJson([session, seq, at, type, data, prevHash])));
      before = own;
    }
    expect(log.head(SESSION)).toEqual({ seq: 3, hash: before });
  });

  test('is separate for each session', () => {
    const { log } = given();
    log.append(SESSION, [measured(1)]);
    expect(log.append(sessionId(1), [measured(1)])[0]).toMatchObject({ seq: 1, prevHash: GENESIS_HASH });
  });

  test('can be read from any seq, by type and in pages', () => {
    const { log } = given();
    log.append(SESSION, [measured(1), renamed('a'), measured(2), renamed('b')]);
    const seqs = (options: Parameters<EventLog['read']>[1]): number[] =>
      log.read(SESSION, options).map((event) => event.seq);
    expect(seqs({ after: 2 })).toEqual([3, 4]);
    expect(seqs({ after: 4 })).toEqual([]);
    expect(seqs({ limit: 3 })).toEqual([1, 2, 3]);
    expect(seqs({ type: 'session.updated' })).toEqual([2, 4]);
    expect(seqs({ type: 'session.updated', after: 2, limit: 5 })).toEqual([4]);
    expect(log.read(sessionId(9))).toEqual([]);
  });

  test('returns pages that fit into a message and hold at least one event', () => {
    const { log } = given();
    const large = 'x'.repeat(300_000);
    for (let n = 0; n < 5; n += 1) log.append(SESSION, [renamed(large)]);
    const seen: number[] = [];
    for (;;) {
      const page = log.read(SESSION, { after: seen.at(-1) ?? 0 });
      if (page.length === 0) break;
      expect(JSON.stringify(page).length).toBeLessThan(2 ** 20);
      seen.push(...page.map((event) => event.seq));
    }
    expect(seen).toEqual([1, 2, 3, 4, 5]);
    expect(thrownError(() => log.append(SESSION, [renamed('x'.repeat(600_000))])).code).toBe('internal');
    expect(log.head(SESSION).seq).toBe(5);
  });

  test('continues after a restart', () => {
    const { log, database } = given();
    const [first] = log.append(SESSION, [measured(1)]);
    const [second] = new EventLog(database).append(SESSION, [measured(2)]);
    expect(second).toMatchObject({ seq: 2, prevHash: first?.hash });
  });

  test.each([
    ['its data', 'UPDATE events SET data = \'{"bytes":99}\' WHERE seq = 3', 3],
    ['its time', 'UPDATE events SET at = at + 1 WHERE seq = 3', 3],
    ['its type', "UPDATE events SET type = 'session.updated' WHERE seq = 3", 3],
    ['what it says of the one before', 'UPDATE events SET prevHash = hash WHERE seq = 3', 3],
    ['an event taken out', 'DELETE FROM events WHERE seq = 3', 3],
    ['the first taken out', 'DELETE FROM events WHERE seq = 1', 1],
    [
      "two in each other's place",
      'UPDATE events SET seq = 5000 WHERE seq = 3; UPDATE events SET seq = 3 WHERE seq = 4; UPDATE events SET seq = 4 WHERE seq = 5000',
      3,
    ],
  ])('detects that somebody changed %s', async (_, sql, firstInvalid) => {
    const { log, database } = given();
    log.append(
      SESSION,
      Array.from({ length: 1200 }, (__, n) => measured(n)),
    );
    expect(await log.verify(SESSION)).toMatchObject({
      ok: true,
      events: 1200,
      head: log.head(SESSION).hash,
      firstInvalid: null,
    });
    for (const statement of sql.split(';')) database.run(statement);
    expect(await log.verify(SESSION)).toMatchObject({ ok: false, firstInvalid });
  });

  test('is valid for a session without events', async () => {
    expect(await given().log.verify(SESSION)).toEqual({
      ok: true,
      events: 0,
      head: GENESIS_HASH,
      firstInvalid: null,
    });
  });

  test('can be deleted completely and starts again at 1', () => {
    const { log } = given();
    log.append(SESSION, [measured(1)]);
    log.remove(SESSION);
    expect(log.head(SESSION).seq).toBe(0);
    expect(log.append(SESSION, [measured(1)])[0]?.seq).toBe(1);
  });
});

describe('an append inside a transaction', () => {
  test('leaves no gap when it is rolled back', async () => {
    const { log, database } = given();
    log.append(SESSION, [measured(1)]);
    expect(() =>
      database.transaction(() => {
        log.append(SESSION, [measured(2), measured(3)]);
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(log.append(SESSION, [measured(4)])[0]?.seq).toBe(2);
    expect(await log.verify(SESSION)).toMatchObject({ ok: true, events: 2 });
  });

  test('can be rolled back without the outer transaction', async () => {
    const { log, database } = given();
    database.transaction(() => {
      log.append(SESSION, [measured(1)]);
      expect(() =>
        database.transaction(() => {
          log.append(SESSION, [measured(2)]);
          throw new Error('no');
        }),
      ).toThrow('no');
      log.append(SESSION, [measured(3)]);
    });
    expect(log.read(SESSION).map((event) => [event.seq, event.data])).toEqual([
      [1, { bytes: 1 }],
      [2, { bytes: 3 }],
    ]);
    expect(await log.verify(SESSION)).toMatchObject({ ok: true, events: 2 });
  });

  test('fails on a full disk, and the history continues from its last event', async () => {
    const { log, database } = given();
    const { page_count: pages } = database.get('PRAGMA page_count') as { page_count: number };
    database.get(`PRAGMA max_page_count = ${pages + 3}`);
    let written = 0;
    const failure = thrownError(() => {
      for (; written < 10_000; written += 1) log.append(SESSION, [renamed('x'.repeat(500))]);
    });
    expect(failure.code).toBe('no_space');
    expect(log.head(SESSION).seq).toBe(written);
    database.get(`PRAGMA max_page_count = ${pages + 1000}`);
    log.append(SESSION, [measured(1)]);
    expect(await log.verify(SESSION)).toMatchObject({ ok: true, events: written + 1 });
  });
});

describe('a listener', () => {
  test('is called for events after their commit, in order, and never for a rolled back one', () => {
    const { log, database } = given();
    const heard: number[] = [];
    log.subscribe(SESSION, (event) => {
      expect(database.inTransaction).toBe(false);
      heard.push(event.seq);
    });
    database.transaction(() => {
      log.append(SESSION, [measured(1)]);
      log.append(SESSION, [measured(2)]);
      expect(heard).toEqual([]);
    });
    expect(heard).toEqual([1, 2]);
    expect(() =>
      database.transaction(() => {
        log.append(SESSION, [measured(3)]);
        throw new Error('no');
      }),
    ).toThrow('no');
    log.append(sessionId(1), [measured(1)]);
    expect(heard).toEqual([1, 2]);
    log.append(SESSION, [measured(3)]);
    expect(heard).toEqual([1, 2, 3]);
  });

  test('may append events without breaking the order for others', () => {
    const { log, database } = given();
    const heard: number[] = [];
    log.subscribe(SESSION, (event) => {
      if (event.seq === 1) log.append(SESSION, [measured(3)]);
    });
    log.subscribe(SESSION, (event) => heard.push(event.seq));
    database.transaction(() => {
      log.append(SESSION, [measured(1)]);
      log.append(SESSION, [measured(2)]);
    });
    expect(heard).toEqual([1, 2, 3]);
  });

  test('that throws is reported and does not stop the others', () => {
    const { log, errors } = given();
    const heard: SessionEvent[] = [];
    log.subscribe(SESSION, () => {
      throw new Error('broken listener');
    });
    log.subscribe(SESSION, (event) => heard.push(event));
    const written = log.append(SESSION, [measured(1)]);
    expect(heard).toEqual(written);
    expect(errors.map(String)).toEqual(['Error: broken listener']);
  });

  test('is not called after it unsubscribes, and the same function may subscribe twice', () => {
    const { log } = given();
    const heard: number[] = [];
    const listener = (event: SessionEvent): void => void heard.push(event.seq);
    const [first, second] = [log.subscribe(SESSION, listener), log.subscribe(SESSION, listener)];
    log.append(SESSION, [measured(1)]);
    first();
    first();
    log.append(SESSION, [measured(2)]);
    second();
    log.append(SESSION, [measured(3)]);
    expect(heard).toEqual([1, 1, 2]);
  });
});
