import { expect, test } from 'vitest';
import type { EventEntry } from '../../../protocol/events.ts';
import { newestImport } from '../../../supervisor/history/newest-import.ts';
import { Forks } from '../../../supervisor/sessions/forks.ts';
import { bundleHome, EARLIER, SNAPSHOT, sessionWithEverything } from '../../fixtures/bundles/bundle-home.ts';
import { folder, type ModelTree } from '../../fixtures/snapshots/model-tree.ts';
import { sessionRow } from '../../fixtures/store/temporary-home.ts';

const TREE: ModelTree = new Map([['', folder()]]);

/** A session that another home wrote up to its snapshots: it was imported afterwards. */
async function given() {
  const at = bundleHome();
  const row = await sessionWithEverything(at, TREE, TREE);
  const { name, profile, persistent, backing, uid, gid } = row;
  const imported: EventEntry = {
    type: 'session.imported',
    data: {
      ...{ home: 'c'.repeat(26), keyId: 'd'.repeat(64), from: row.id, snapshotId: SNAPSHOT, eventSeq: 9 },
      ...{ name, profile, persistent, backing, uid, gid },
    },
    at: 4000,
  };
  at.events.append(row.id, [imported]);
  const forks = new Forks({
    ...at,
    profiles: { getOrThrow: () => ({}) as never } as never,
    egressRules: { copyDenials: () => undefined },
    creation: { row: () => sessionRow(7) } as never,
    hydration: { start: () => undefined },
  });
  return { ...at, row, forks };
}

test('a fork of a snapshot that was imported says that another home wrote its history', async () => {
  const { events, snapshots, forks, row } = await given();
  const { id } = await forks.fork(snapshots.getOrThrow(EARLIER), 'fork');
  const types = events.read(id).map(({ type }) => type);
  expect(types.slice(-2)).toEqual(['session.imported', 'session.forked']);
  expect(newestImport(events, id)).toEqual({
    seq: types.length - 1,
    entry: newestImport(events, row.id)?.entry,
  });
  expect(await events.verify(id)).toMatchObject({ ok: true });
});

test('a fork says of which snapshot and of which lineage it is', async () => {
  const { sessions, snapshots, forks, row } = await given();
  const { id } = await forks.fork(snapshots.getOrThrow(EARLIER), 'fork');
  expect(sessions.get(id)).toMatchObject({ began: 'fork', origin: EARLIER, lineage: row.lineage });
});

test('a fork of a later snapshot has the import where it was, once', async () => {
  const { events, snapshots, forks, row } = await given();
  const { seq } = events.head(row.id);
  snapshots.insert({ ...snapshots.getOrThrow(EARLIER), id: 'snp-cccccccccccccccc', eventSeq: seq });
  const { id } = await forks.fork(snapshots.getOrThrow('snp-cccccccccccccccc'), 'fork');
  expect(events.read(id, { type: 'session.imported' }).map((event) => event.seq)).toEqual([seq]);
  expect(events.head(id).seq).toBe(seq + 1);
});
