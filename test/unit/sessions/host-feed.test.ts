import { describe, expect, test } from 'vitest';
import { HostState } from '../../../protocol/client/host-state.ts';
import type { EngineStatus, Session } from '../../../protocol/entities.ts';
import type { HostChange } from '../../../protocol/host.ts';
import { NOTIFICATIONS } from '../../../protocol/methods.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { SessionRecords } from '../../../supervisor/history/session-records.ts';
import { HostFeed } from '../../../supervisor/sessions/host-feed.ts';
import type { HostCursor, HostPart } from '../../../supervisor/sessions/host-feed.ts';
import { SessionViews } from '../../../supervisor/sessions/session-views.ts';
import { Profiles } from '../../../supervisor/store/profiles.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { PermissionRows } from '../../../supervisor/store/permissions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { sessionId, sessionRow, temporaryDatabase, turnId } from '../../fixtures/store/temporary-home.ts';
import { soakCount } from '../../setup/run-length.ts';

const EPOCH = 3;

function given(limits: { maxOccurrences?: number; maxStates?: number } = {}) {
  const database = temporaryDatabase();
  const sessions = new Sessions(database);
  const profiles = new Profiles(database);
  const events = new EventLog(database);
  let reachable = true;
  const engine = { status: () => ({ ...ENGINE, reachable }) };
  const views = new SessionViews({
    sessions,
    turns: new Turns(database),
    permissionRows: new PermissionRows(database),
    profiles,
    events,
    engine,
    hydrationOf: () => null,
    gate: { stateOf: () => null },
  });
  const feed = new HostFeed({ epoch: EPOCH, sessions, profiles, views, engine, ...limits });
  sessions.changed.on((id) => feed.reportSession(id));
  events.subscribeAll((event) => feed.handleEvent(event));
  return {
    feed,
    sessions,
    events,
    views,
    database,
    records: new SessionRecords(database, sessions, events, () => 1),
    setReachable: (now: boolean): void => {
      reachable = now;
      feed.handleEngineStatus(engine.status());
    },
  };
}

const ENGINE: EngineStatus = {
  reachable: true,
  endpoint: 'unix:///e',
  source: 'default',
  version: '1',
  apiVersion: '1',
  capabilities: null,
  why: null,
  next: null,
};

/** Reads as a subscription does; every part is what a client accepts. */
class Reader {
  readonly state = new HostState();
  readonly changes: HostChange[] = [];
  parts = 0;
  #cursor: HostCursor;
  readonly #feed: HostFeed;

  constructor(feed: HostFeed, after?: HostState['position']) {
    this.#feed = feed;
    this.#cursor = feed.cursorAfter(after);
  }

  readOne(): HostPart | null {
    const part = this.#feed.read(this.#cursor);
    if (part === null) return null;
    this.parts += 1;
    this.#cursor = part.next;
    const { next: _next, ...rest } = part;
    const received = NOTIFICATIONS['host/changed'].params.parse({ epoch: EPOCH, ...rest });
    this.changes.push(...received.changes);
    this.state.apply(received);
    return part;
  }

  catchUp(): this {
    while (this.readOne() !== null);
    return this;
  }
}

function listed(views: SessionViews): Session[] {
  return views.list({ limit: 1000 }).sessions;
}

describe('the feed of the host', () => {
  test('begins with every state, and continues with what changes', () => {
    const { feed, sessions, views, records, setReachable } = given();
    for (const n of [1, 2, 3]) sessions.insert(sessionRow(n, { pinned: n === 1 }));
    const reader = new Reader(feed).catchUp();
    expect(reader.changes[0]).toMatchObject({ kind: 'engine', engine: { reachable: true } });
    expect(reader.state.sessions).toEqual(listed(views));
    expect(reader.readOne()).toBeNull();

    sessions.update(sessionId(2), { lastActiveAt: 9000 });
    records.change(sessionId(3), { status: 'deleted' }, 'deleted');
    sessions.insert(sessionRow(4));
    reader.catchUp();
    expect(reader.state.sessions).toEqual(listed(views));
    expect(reader.changes).toContainEqual({ kind: 'session-removed', sessionId: sessionId(3) });

    setReachable(false);
    reader.catchUp();
    expect(reader.state.sessions?.map(({ engineReachable }) => engineReachable)).toEqual([
      false,
      false,
      false,
    ]);
  });

  test('a change that is rolled back is not reported', () => {
    const { feed, sessions, database } = given();
    sessions.insert(sessionRow(1));
    const { position } = feed;
    expect(() =>
      database.transaction(() => {
        sessions.update(sessionId(1), { name: 'other' });
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(feed.position).toEqual(position);
  });

  test('reports turns, permissions and denials as they occur, and streams nothing of a turn', () => {
    const { feed, sessions, events } = given();
    sessions.insert(sessionRow(1));
    const reader = new Reader(feed).catchUp();
    const own = { turnId: turnId(1) };
    const permissionId = `perm-${'a'.repeat(16)}`;
    events.append(sessionId(1), [
      { type: 'turn.cancelling', data: own },
      {
        type: 'permission.asked',
        data: {
          ...own,
          permissionId,
          call: null,
          kind: 'execute',
          title: 'rm -r .',
          options: [],
          content: null,
        },
      },
      {
        type: 'permission.answered',
        data: { ...own, permissionId, option: null, by: { kind: 'turn', name: null } },
      },
    ]);
    reader.catchUp();
    expect(reader.changes.filter(({ kind }) => kind === 'permission')).toMatchObject([
      { state: 'asked', title: 'rm -r .', permissionId, sessionId: sessionId(1) },
      { state: 'answered', permissionId },
    ]);
    const { parts } = reader;
    events.append(sessionId(1), [
      { type: 'agent.message', data: { ...own, message: 1, role: 'agent', content: null } },
    ]);
    reader.catchUp();
    expect(reader.parts).toBe(parts);
  });

  test('continues at a position, and starts over at one that it does not know', () => {
    const { feed, sessions } = given({ maxStates: 3 });
    sessions.insert(sessionRow(1));
    const first = new Reader(feed).catchUp();
    const { position } = first.state;
    sessions.insert(sessionRow(2));
    const second = new Reader(feed, position).catchUp();
    expect(second.changes.map(({ kind }) => kind)).toEqual(['session']);
    // Another supervisor, a position of the future, and one that was forgotten.
    const later = { epoch: EPOCH, seq: feed.position.seq + 1 };
    for (const unknown of [{ epoch: EPOCH - 1, seq: 0 }, later]) {
      expect(feed.cursorAfter(unknown).kind).toBe('snapshot');
    }
    for (const n of [3, 4, 5, 6]) sessions.insert(sessionRow(n));
    const third = new Reader(feed, position).catchUp();
    expect(third.state.sessions).toHaveLength(6);
    expect(third.changes[0]?.kind).toBe('engine');
  });

  test('keeps a bounded number of occurrences for a client that does not read', () => {
    const { feed, sessions, events } = given({ maxOccurrences: 10 });
    sessions.insert(sessionRow(1));
    const reader = new Reader(feed).catchUp();
    const before = reader.changes.length;
    for (let n = 0; n < 200; n += 1) {
      events.append(sessionId(1), [
        {
          type: 'permission.answered',
          data: {
            turnId: turnId(n),
            permissionId: `perm-${'a'.repeat(16)}`,
            option: null,
            by: { kind: 'turn', name: null },
          },
        },
      ]);
    }
    reader.catchUp();
    // The session once, in its latest state, and the newest occurrences.
    expect(reader.changes.slice(before)).toHaveLength(11);
    expect(reader.changes.at(-1)).toMatchObject({ kind: 'session', session: { lastSeq: 200 } });
  });

  test('every part fits a message, however large the sessions are', () => {
    const { feed, sessions, views } = given();
    const tags = Array.from({ length: 32 }, (_, n) => '€'.repeat(60) + String(n));
    for (let n = 0; n < 300; n += 1) sessions.insert(sessionRow(n, { tags }));
    const reader = new Reader(feed);
    for (let part = reader.readOne(); part !== null; part = reader.readOne()) {
      expect(Buffer.byteLength(JSON.stringify(part.changes))).toBeLessThan(512 * 1024);
    }
    expect(reader.parts).toBeGreaterThan(3);
    expect(reader.state.sessions).toEqual(listed(views));
  });

  test('readers of any pace end with the same state as the database', () => {
    const random = seededRandom(7);
    const { feed, sessions, views, records } = given({ maxStates: 40 });
    const readers = [new Reader(feed), new Reader(feed), new Reader(feed)];
    let count = 0;
    for (let step = 0; step < soakCount(400, 2000); step += 1) {
      const n = Math.floor(random() * count);
      const dice = random();
      if (dice < 0.1) sessions.insert(sessionRow(count++));
      else if (dice < 0.15 && sessions.get(sessionId(n)) !== null) {
        records.change(sessionId(n), { status: 'deleted' }, 'deleted');
      } else if (count > 0)
        sessions.update(sessionId(n), { lastActiveAt: 5000 + step, pinned: random() < 0.5 });
      for (const [index, reader] of readers.entries()) if (random() < 0.3 ** index) reader.readOne();
    }
    for (const reader of readers) {
      expect(reader.catchUp().state.sessions).toEqual(listed(views));
    }
  });
});
