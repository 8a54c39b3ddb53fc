import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { OBJECT_KINDS, parseHash } from '../../../snapshot-format/objects.ts';
import type { SnapshotCreation } from '../../../supervisor/snapshots/snapshot-creation.ts';
import { blobOf, objectsOf } from '../../fixtures/snapshots/small-tree.ts';
import { snapshotFixture, SESSION } from '../../fixtures/snapshots/snapshot-fixture.ts';

test('a snapshot is a row, an event and readable objects; unchanged content is not sent again', async () => {
  const { sidecar, take, told, stores, snapshots } = snapshotFixture();
  sidecar.tree = { a: 'one', b: 'two' };
  const first = await take({ label: 'begun' });
  expect(first.created).toBe(true);
  sidecar.tree = { a: 'one', b: 'changed' };
  const second = await take({ reason: 'before-turn' });
  expect(second.row).toMatchObject({
    sessionId: SESSION,
    base: first.row.id,
    reason: 'before-turn',
    changedFiles: 3,
    frozenMs: 0,
    eventSeq: 1,
    label: null,
  });
  expect(second.row.newBytes).toBeGreaterThan(0);
  expect(sidecar.scans.map(({ base }) => base)).toEqual([null, first.row.root]);
  expect(told('snapshot.created')).toMatchObject([
    { snapshotId: first.row.id, label: 'begun', root: first.row.root },
    { snapshotId: second.row.id, reason: 'before-turn' },
  ]);
  await stores.use(SESSION, async (store) => {
    for (const text of ['one', 'two', 'changed'])
      expect((await store.read(blobOf(text), OBJECT_KINDS.blob)).toString()).toBe(text);
  });
  expect(snapshots.listByLineage(SESSION).length).toBe(2);
});

test('what a preview found and stored since the last snapshot counts for the next one', async () => {
  const { sidecar, take, snapshotCreation } = snapshotFixture();
  const preview = (): Promise<void> => snapshotCreation.withCurrentTree(SESSION, () => Promise.resolve());
  sidecar.tree = { a: 'one' };
  await take();
  sidecar.tree = { a: 'one', b: 'two' };
  const alone = await take({ label: 'alone' });
  sidecar.tree = { a: 'one', b: 'three' };
  await preview();
  await preview();
  const seen = await take({ label: 'seen by a preview' });
  expect(seen.row.changedFiles).toBe(alone.row.changedFiles);
  expect(seen.row.newBytes).toBeGreaterThanOrEqual(alone.row.newBytes);
  // Changed and changed back.
  sidecar.tree = { a: 'four', b: 'three' };
  await preview();
  sidecar.tree = { a: 'one', b: 'three' };
  expect((await take({ reason: 'before-turn' })).row.id).toBe(seen.row.id);
  const after = await take({ label: 'nothing changed' });
  expect([after.row.changedFiles, after.row.newBytes]).toEqual([0, 0]);
});

test('without changes the newest snapshot is reused; a manual request makes it manual', async () => {
  const { sidecar, take, told } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const before = await take({ reason: 'before-turn' });
  const again = await take({ reason: 'before-turn' });
  expect(again).toEqual({ row: before.row, created: false });
  const mine = await take({ pinned: true });
  expect(mine).toEqual({ row: { ...before.row, reason: 'manual', pinned: true }, created: false });
  expect((await take({ reason: 'before-turn' })).row.reason).toBe('manual');
  const named = await take({ label: 'named' });
  expect([named.created, named.row.root, named.row.newBytes]).toEqual([true, before.row.root, 0]);
  expect(told('snapshot.created').length).toBe(2);
});

test('a snapshot of the agent answers for no other: the agent can have it thinned out', async () => {
  const { sidecar, take } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const ofAgent = await take({ reason: 'agent' });
  expect(await take({ reason: 'agent' })).toEqual({ row: ofAgent.row, created: false });
  const beforeTurn = await take({ reason: 'before-turn' });
  expect([beforeTurn.created, beforeTurn.row.root, beforeTurn.row.newBytes]).toEqual([
    true,
    ofAgent.row.root,
    0,
  ]);
  expect(await take({ reason: 'agent' })).toEqual({ row: beforeTurn.row, created: false });
});

test('a turn that ended since makes a new manual snapshot, but not a new one before a turn', async () => {
  const { sidecar, take, events } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const first = await take();
  events.append(SESSION, [{ type: 'turn.ended', data: { turnId: 'turn-aaaaaaaaaaaaaaaa' } as never }]);
  expect(await take({ reason: 'before-turn' })).toEqual({ row: first.row, created: false });
  const second = await take();
  expect([second.created, second.row.root, second.row.eventSeq]).toEqual([true, first.row.root, 2]);
  expect((await take()).created).toBe(false);
});

test('two requests with one opId create one snapshot and get the same answer', async () => {
  const { sidecar, take, snapshots } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const [first, second] = await Promise.all([
    take({ opId: 'op-1', label: 'x' }),
    take({ opId: 'op-1', label: 'x' }),
  ]);
  sidecar.tree = { a: 'two' };
  expect(second).toEqual(first);
  expect(await take({ opId: 'op-1', label: 'x' })).toEqual(first);
  expect(snapshots.count(SESSION)).toBe(1);
});

test('an unreadable base does not prevent the next snapshot', async () => {
  const { sidecar, take } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  await take();
  sidecar.tree = { a: 'two' };
  sidecar.onScan = ({ base }) =>
    base === null
      ? Promise.resolve(undefined)
      : Promise.reject(new HoldfastError('snapshot_damaged', 'A snapshot cannot be read'));
  expect((await take()).created).toBe(true);
  expect(sidecar.scans.slice(1).map(({ base }) => base)).toEqual([expect.any(String), null]);
});

test('after damage the sidecar checks every object once, and what it sends is stored even if the tree is unchanged', async () => {
  const { sidecar, take, stores } = snapshotFixture();
  sidecar.tree = { a: 'one', b: 'two' };
  const { row } = await take();
  await stores.use(row.lineage, (store) => store.markSuspect(store.packs.map(({ name }) => name)));
  const again = await take();
  expect([again.created, again.row.id]).toEqual([false, row.id]);
  await take();
  expect(sidecar.scans.map(({ isBaseSuspect }) => isBaseSuspect)).toEqual([false, true, false]);
  await stores.use(row.lineage, async (store) => {
    expect(store.packs).toHaveLength(2);
    for (const [hex] of objectsOf(sidecar.tree).objects.bodies)
      expect(store.hasTrustedCopy(parseHash(hex)), hex).toBe(true);
    // More damage is told of again.
    await store.markSuspect(store.packs.map(({ name }) => name));
  });
  await take();
  expect(sidecar.scans.at(-1)?.isBaseSuspect).toBe(true);
});

test('the current tree can be read during the call and is not a snapshot', async () => {
  const { sidecar, snapshotCreation, snapshots } = snapshotFixture();
  sidecar.tree = { a: 'only now' };
  const text = await snapshotCreation.withCurrentTree(SESSION, async (store, { root }) => {
    expect(root).toBe(objectsOf({ a: 'only now' }).root);
    return (await store.read(blobOf('only now'), OBJECT_KINDS.blob)).toString();
  });
  expect([text, snapshots.count(SESSION)]).toEqual(['only now', 0]);
});

test.each([
  ['its own signal', (own: AbortController) => own.abort(new HoldfastError('cancelled', 'Cancelled'))],
  [
    'an interrupt',
    (_own: AbortController, creation: SnapshotCreation) =>
      creation.interrupt(SESSION, new HoldfastError('cancelled', 'Cancelled')),
  ],
])('a snapshot that waits behind a scan is given up at once by %s', async (_name, giveUp) => {
  const { sidecar, take, snapshotCreation, snapshots } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  const held = Promise.withResolvers<undefined>();
  const scan = snapshotCreation.withScanLock(SESSION, () => held.promise);
  const own = new AbortController();
  const waiting = take({ signal: own.signal });
  const rejected = expect(waiting).rejects.toMatchObject({ code: 'cancelled' });
  giveUp(own, snapshotCreation);
  // The lock is still held.
  await rejected;
  const next = take();
  held.resolve(undefined);
  await scan;
  expect((await next).created).toBe(true);
  expect([sidecar.scans.length, snapshots.count(SESSION)]).toEqual([1, 1]);
});
