import { expect, test } from 'vitest';
import { SnapshotGraphSchema } from '../../../protocol/snapshots.ts';
import { RESTORES, SnapshotGraphs } from '../../../supervisor/snapshots/snapshot-graph.ts';
import { OTHER, SESSION, snapshotFixture } from '../../fixtures/snapshots/snapshot-fixture.ts';
import { sessionId, sessionRow } from '../../fixtures/store/temporary-home.ts';

const counts = { created: 0, replaced: 0, removed: 0, touched: 0, bytes: 0 };

async function fixture() {
  const base = snapshotFixture();
  const first = (await base.take()).row;
  base.sidecar.tree = { a: 'two' };
  const second = (await base.take()).row;
  const graphs = new SnapshotGraphs(base);
  const restored = (session: string, snapshotId: string, path: string | null = null): number => {
    const data = { snapshotId, path, undo: second.id, ...counts };
    return base.events.append(session, [{ type: 'workspace.restored', data } as never])[0]?.seq ?? 0;
  };
  const of = (session: string) => SnapshotGraphSchema.parse(graphs.of(base.session(session)));
  return { ...base, first, second, restored, of };
}

test('a graph has the restores, newest first, with the event that later snapshots follow', async () => {
  const { first, second, restored, of, take, sidecar } = await fixture();
  const one = restored(SESSION, first.id);
  sidecar.tree = { a: 'three' };
  const third = (await take()).row;
  const two = restored(SESSION, second.id, '/workspace/a');
  expect(of(SESSION).restores).toMatchObject([
    { seq: two, snapshotId: second.id, path: '/workspace/a', undo: second.id },
    { seq: one, snapshotId: first.id, path: null, undo: second.id },
  ]);
  expect(second.eventSeq).toBeLessThan(one);
  expect(third.eventSeq).toBeGreaterThanOrEqual(one);
  expect(of(OTHER)).toEqual({ origin: null, restores: [], forks: [] });
});

test('a fork names its origin, is named by it, and does not count the restores that it copied', async () => {
  const { first, restored, of, sessions, events, database } = await fixture();
  const fork = sessionId(7);
  sessions.insert(sessionRow(7, { name: 'try', origin: first.id }));
  restored(fork, first.id);
  const data = { from: SESSION, snapshotId: first.id, eventSeq: 1 };
  events.append(fork, [{ type: 'session.forked', data } as never]);
  const own = restored(fork, first.id);
  expect(of(SESSION).forks).toMatchObject([{ sessionId: fork, name: 'try', snapshotId: first.id }]);
  const name = sessions.get(SESSION)?.name;
  expect(of(fork).origin).toEqual({ snapshotId: first.id, session: { id: SESSION, name } });
  expect(of(fork).restores.map(({ seq }) => seq)).toEqual([own]);
  database.run("UPDATE sessions SET status = 'deleted', deletedAt = 1 WHERE id IN (?, ?)", SESSION, fork);
  expect(of(SESSION).forks).toEqual([]);
  expect(of(fork).origin).toEqual({ snapshotId: first.id, session: null });
});

test('a graph reads the events about restores and forks, and not the whole history', async () => {
  const { database } = await fixture();
  expect(database.all(`EXPLAIN QUERY PLAN ${RESTORES}`, SESSION, 10)).toMatchObject([
    { detail: 'SEARCH events USING INDEX events_about_restores (sessionId=?)' },
  ]);
});
