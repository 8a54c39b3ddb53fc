import { expect, test } from 'vitest';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { SnapshotViews } from '../../../supervisor/snapshots/snapshot-views.ts';
import { Snapshots, type SnapshotRow } from '../../../supervisor/store/snapshots.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { temporaryDatabase } from '../../fixtures/store/temporary-home.ts';
import { LINEAGE, OTHER, ROOT } from '../../fixtures/snapshots/store-fixture.ts';

function row(n: number, change: Partial<SnapshotRow> = {}): SnapshotRow {
  return {
    id: `snp-${'abcdefgh'.charAt(n).repeat(16)}`,
    sessionId: LINEAGE,
    lineage: LINEAGE,
    createdAt: 1000 + n,
    reason: 'manual',
    label: null,
    pinned: false,
    base: null,
    root: ROOT,
    stateRoot: null,
    files: 4,
    directories: 2,
    bytes: 11,
    changedFiles: 4,
    changedBytes: 11,
    newBytes: 500,
    scanMs: 1.5,
    frozenMs: 0,
    eventSeq: n,
    duringTurn: false,
    missing: 0,
    missingPaths: [],
    ...change,
  };
}

test('rows are listed newest first, in pages and by reason, and can be updated', () => {
  const snapshots = new Snapshots(temporaryDatabase());
  const rows = [row(0), row(1, { reason: 'before-turn' }), row(2, { pinned: true, label: 'good' }), row(3)];
  for (const one of rows) snapshots.insert(one);
  snapshots.insert(row(4, { sessionId: OTHER, lineage: OTHER }));
  const first = snapshots.list(LINEAGE, { limit: 3 });
  expect(first.rows).toEqual([rows[3], rows[2], rows[1]]);
  expect(snapshots.list(LINEAGE, { limit: 3, cursor: first.nextCursor ?? '' })).toEqual({
    rows: [rows[0]],
    nextCursor: null,
  });
  expect(snapshots.list(LINEAGE, { reason: 'before-turn' }).rows).toEqual([rows[1]]);
  expect(() => snapshots.list(LINEAGE, { cursor: 'x' })).toThrow(/cursor/);
  expect(snapshots.newest(LINEAGE)).toEqual(rows[3]);
  expect(snapshots.update(row(0).id, { label: 'kept', pinned: true })).toEqual(
    row(0, { label: 'kept', pinned: true }),
  );
  expect(snapshots.listLineages().sort()).toEqual([LINEAGE, OTHER].sort());
  snapshots.remove(row(0).id);
  expect(() => snapshots.getOrThrow(row(0).id)).toThrow(/no snapshot/);
  expect(snapshots.listByLineage(LINEAGE)).toEqual(rows.slice(1));
});

test('a snapshot says who asked for it', () => {
  const database = temporaryDatabase();
  const views = new SnapshotViews({ events: new EventLog(database), turns: new Turns(database) });
  const authors = (['manual', 'agent', 'before-turn', 'after-setup'] as const).map(
    (reason) => views.of(row(1, { reason })).author,
  );
  expect(authors).toEqual(['person', 'agent', 'supervisor', 'supervisor']);
});
