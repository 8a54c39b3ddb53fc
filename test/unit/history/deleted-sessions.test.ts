import { hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { Log } from '../../../supervisor/base/log.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { DeletedSessionContents } from '../../../supervisor/history/deleted-session-contents.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { TurnOutput } from '../../../supervisor/history/turn-output.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import {
  newTurn,
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
  turnId,
} from '../../fixtures/store/temporary-home.ts';

const DAY_MS = 86_400_000;
const silent: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {}, child: () => silent };
const id = sessionId(0);
const turn = turnId(1);

/** A session that was deleted at time 0, whose turn had a secret for input and output. */
function scene() {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const sessions = new Sessions(database);
  const turns = new Turns(database);
  const events = new EventLog(database);
  const artifacts = new Artifacts(home);
  const contents = new Contents(database, artifacts);
  const output = new TurnOutput(database, events, contents, artifacts);
  sessions.insert(sessionRow(0, { about: 'the secret', tags: ['secret'] }));
  turns.insert(newTurn(1, { status: 'running', input: Buffer.from('secret') }));
  output.store(turn, 'stdout', 0, Buffer.from('a secret'));
  output.store(turn, 'stderr', 0, Buffer.alloc(100_000, 'secret'));
  turns.update(turn, { status: 'succeeded', output: 'secret' });
  events.append(id, [{ type: 'session.deleted', data: { why: 'deleted' } }]);
  sessions.update(id, { status: 'deleted', deletedAt: 0 });
  const clock = { now: 0 };
  const deleted = new DeletedSessionContents({
    database,
    sessions,
    events,
    contents,
    log: silent,
    now: () => clock.now,
  });
  const texts = (): string =>
    JSON.stringify([
      database.all('SELECT * FROM sessions'),
      database.all('SELECT * FROM turns'),
      database.all('SELECT CAST(inline AS TEXT), artifact FROM contents'),
      events.read(id),
    ]);
  return { home, database, events, turns, sessions, deleted, clock, texts };
}

describe('a session that was deleted', () => {
  test('keeps its contents for a week', () => {
    const { deleted, clock, texts } = scene();
    const before = texts();
    clock.now = 7 * DAY_MS;
    deleted.removeAll();
    expect(deleted.findRemovable()).toEqual([]);
    expect(texts()).toBe(before);
  });

  test('then loses inputs, outputs and artifacts once; figures, times and hashes stay', () => {
    const { home, database, deleted, clock, texts, events, turns } = scene();
    const hashes = events.read(id).map(({ seq, type, at, hash }) => ({ seq, type, at, hash }));
    expect(existsSync(home.artifactsDirectory(id))).toBe(true);
    clock.now = 7 * DAY_MS + 1;
    expect(deleted.findRemovable()).toEqual([{ sessionId: id, bytes: expect.any(Number) as number }]);
    deleted.removeAll();
    expect(texts()).not.toContain('secret');
    expect(existsSync(home.artifactsDirectory(id))).toBe(false);
    expect(turns.get(turn)).toMatchObject({ status: 'succeeded', output: null, inputBytes: 6 });
    const after = events.read(id).map(({ seq, type, at, hash }) => ({ seq, type, at, hash }));
    expect(after.slice(0, -1)).toEqual(hashes);
    expect(after.at(-1)?.type).toBe('session.contents-removed');
    expect(deleted.findRemovable()).toEqual([]);
    deleted.removeAll();
    expect(events.read(id)).toHaveLength(after.length);
    expect(database.all('SELECT * FROM turn_pieces')).toEqual([]);
    const rows = database.all('SELECT sha256, bytes, removedAt FROM contents ORDER BY bytes');
    expect(rows).toEqual([
      { sha256: hash('sha256', 'secret'), bytes: 6, removedAt: clock.now },
      { sha256: hash('sha256', 'a secret'), bytes: 8, removedAt: clock.now },
      { sha256: hash('sha256', Buffer.alloc(100_000, 'secret')), bytes: 100_000, removedAt: clock.now },
    ]);
  });

  test('keeps its contents while it has a snapshot, because a fork needs the history', () => {
    const { database, deleted, clock } = scene();
    clock.now = 30 * DAY_MS;
    database.run(
      `INSERT INTO snapshots (id, sessionId, lineage, createdAt, reason, pinned, root, files, directories, bytes,
         changedFiles, changedBytes, newBytes, scanMs, frozenMs, eventSeq)
       VALUES ('snp-aaaaaaaaaaaaaaaa', ?, ?, 0, 'manual', 0, 'x', 0, 0, 0, 0, 0, 0, 0, 0, 1)`,
      id,
      id,
    );
    expect(deleted.findRemovable()).toEqual([]);
    database.run('DELETE FROM snapshots');
    expect(deleted.findRemovable()).toHaveLength(1);
  });

  test('keeps its contents while it is not deleted, however old it is', () => {
    const { sessions, deleted, clock } = scene();
    sessions.update(id, { status: 'resumable', deletedAt: null });
    clock.now = 1000 * DAY_MS;
    expect(deleted.findRemovable()).toEqual([]);
  });
});
