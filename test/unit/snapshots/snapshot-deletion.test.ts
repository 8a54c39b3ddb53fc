import { expect, test } from 'vitest';
import { sessionId, sessionRow } from '../../fixtures/store/temporary-home.ts';
import { OTHER, snapshotFixture, SESSION } from '../../fixtures/snapshots/snapshot-fixture.ts';

test('snapshot ids are valid only for their own lineage, and forged ids never', async () => {
  const { sidecar, other, take, service } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  other.tree = { a: 'one' };
  const { row } = await take();
  expect(service.find(row.id, SESSION)).toEqual(row);
  expect(() => service.find(row.id, OTHER)).toThrow(/no snapshot/);
  expect(() => service.find('snp-aaaaaaaaaaaaaaaa')).toThrow(/no snapshot/);
});

test('deleting needs a confirmation, keeps the base of a fork, and removes the store with the last snapshot', async () => {
  const { sidecar, take, service, sessions, stores, told } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const { row: base } = await take();
  sidecar.tree = { a: 'two' };
  const { row: last } = await take();
  expect(() => service.delete(base.id, undefined, false)).toThrow(
    expect.objectContaining({ code: 'confirmation_required' }) as Error,
  );
  sessions.insert(sessionRow(2, { status: 'idle', lineage: SESSION, origin: base.id }));
  expect(() => service.delete(base.id, undefined, true)).toThrow(
    expect.objectContaining({ code: 'conflict' }) as Error,
  );
  service.delete(last.id, SESSION, true, 'op-d');
  service.delete(last.id, SESSION, true, 'op-d');
  expect(await stores.lineages()).toEqual([SESSION]);
  sessions.update(sessionId(2), { status: 'deleted' });
  service.delete(base.id, SESSION, true);
  await expect.poll(() => stores.lineages()).toEqual([]);
  expect(told('snapshot.deleted')).toMatchObject([{ snapshotId: last.id }, { snapshotId: base.id }]);
});

test('the last, labelled and pinned snapshots of a deleted session stay for a week', async () => {
  const { sidecar, take, service, session, sessions, snapshots, stores } = snapshotFixture();
  const made: string[] = [];
  for (const [n, request] of [
    { reason: 'before-turn' as const },
    { reason: 'manual' as const, label: 'mine' },
    { reason: 'before-turn' as const, pinned: true },
    { reason: 'before-turn' as const },
    { reason: 'before-delete' as const },
  ].entries()) {
    sidecar.tree = { a: `${n}` };
    made.push((await take(request)).row.id);
  }
  service.pruneDeletedSession(session());
  expect(snapshots.listBySession(SESSION).map(({ id }) => id)).toEqual([made[1], made[2], made[4]]);
  sessions.update(SESSION, { status: 'deleted', deletedAt: Date.now() - 6 * 86_400_000 });
  await service.start();
  expect(snapshots.count(SESSION)).toBe(3);
  expect(service.list(service.findSession(SESSION), {}).snapshots).toHaveLength(3);
  sessions.update(SESSION, { deletedAt: Date.now() - 8 * 86_400_000 });
  await service.start();
  expect(snapshots.count(SESSION)).toBe(0);
  await expect.poll(() => stores.lineages()).toEqual([]);
});
