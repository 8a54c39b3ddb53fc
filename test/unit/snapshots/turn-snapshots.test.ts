import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Progress } from '../../../protocol/wire/shapes.ts';
import { rejectedError, turnId } from '../../fixtures/store/temporary-home.ts';
import { snapshotFixture, SESSION } from '../../fixtures/snapshots/snapshot-fixture.ts';

const SHORT_MS = 50;

test('a turn has its own snapshot, or the earlier one when nothing has changed', async () => {
  const { sidecar, before, turnSnapshot, told, snapshots } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  await before(0);
  const id = snapshots.newest(SESSION)?.id;
  expect(turnSnapshot(0)).toEqual({
    state: 'taken',
    snapshotId: id,
    duringTurn: false,
    missing: 0,
    failure: null,
  });
  await before(1);
  expect(turnSnapshot(1)?.snapshotId).toBe(id);
  expect(told('snapshot.created')).toMatchObject([{ snapshotId: id, turnId: turnId(0) }]);
});

test('a failed snapshot is recorded with the turn and in the history, and the turn begins', async () => {
  const { sidecar, before, turnSnapshot, told, published } = snapshotFixture();
  sidecar.tree = { a: 'one' };
  sidecar.onScan = () => Promise.reject(new HoldfastError('file_unavailable', 'Broken on purpose'));
  await before(0);
  const told0 = { code: 'file_unavailable', why: 'Broken on purpose' };
  expect(told('snapshot.failed')).toEqual([{ reason: 'before-turn', turnId: turnId(0), ...told0 }]);
  expect(turnSnapshot(0)).toMatchObject({ state: 'failed', snapshotId: null, failure: told0 });
  expect(await published()).toBe(0);
  sidecar.onScan = () => Promise.resolve(undefined);
  await before(1);
  expect(told('snapshot.created').length).toBe(1);
});

test('cancelling a turn aborts the scan it waits for, and that is not a failure', async () => {
  const { sidecar, before, told, take } = snapshotFixture();
  const aborted = new AbortController();
  let ended = false;
  sidecar.onScan = () => new Promise(() => undefined);
  const waiting = before(0, aborted.signal).then(() => (ended = true));
  await expect.poll(() => sidecar.scans.length).toBe(1);
  expect(ended).toBe(false);
  aborted.abort();
  await waiting;
  expect(told('snapshot.failed')).toEqual([]);
  sidecar.onScan = () => Promise.resolve(undefined);
  await take();
});

test('a turn does not wait long: its snapshot completes while the turn runs, and says so', async () => {
  const { sidecar, before, turnSnapshot, told, snapshots, take } = snapshotFixture({ maxWaitMs: SHORT_MS });
  sidecar.tree = { a: 'one' };
  const scan = Promise.withResolvers<undefined>();
  sidecar.onScan = () => scan.promise;
  await before(0);
  expect(turnSnapshot(0)).toMatchObject({ state: 'taking', duringTurn: true });
  // The next turn does not begin a second one beside it, and says so.
  await before(1);
  expect(turnSnapshot(1)).toMatchObject({ state: 'failed', failure: { code: 'timeout' } });
  // On a busy machine it begins only now.
  await expect.poll(() => sidecar.scans.length).toBe(1);
  scan.resolve(undefined);
  await expect.poll(() => turnSnapshot(0)?.state).toBe('taken');
  const late = snapshots.newest(SESSION);
  expect(late?.duringTurn).toBe(true);
  expect(turnSnapshot(0)).toMatchObject({ snapshotId: late?.id, duringTurn: true });
  expect(told('snapshot.created')).toMatchObject([{ turnId: turnId(0), duringTurn: true }]);
  // The same tree, now known to be of one moment before a turn, is another snapshot.
  await before(2);
  expect(turnSnapshot(2)).toMatchObject({ state: 'taken', duringTurn: false });
  expect(turnSnapshot(2)?.snapshotId).not.toBe(late?.id);
  expect((await take()).row.duringTurn).toBe(false);
});

test('a snapshot that runs beside its turn is aborted when the turn is cancelled or the supervisor stops', async () => {
  const { sidecar, before, turnSnapshot, turnSnapshots, nextTurnSnapshots, told } = snapshotFixture({
    maxWaitMs: SHORT_MS,
  });
  sidecar.onScan = () => new Promise(() => undefined);
  const cancelled = new AbortController();
  await before(0, cancelled.signal);
  cancelled.abort();
  await expect.poll(() => turnSnapshot(0)?.failure?.code).toBe('cancelled');
  await before(1);
  await turnSnapshots.close();
  expect(turnSnapshot(1)?.state).toBe('taking');
  nextTurnSnapshots().recover();
  expect(turnSnapshot(1)).toMatchObject({
    state: 'failed',
    duringTurn: true,
    failure: { code: 'interrupted' },
  });
  expect(told('snapshot.failed')).toMatchObject([{ turnId: turnId(1), code: 'interrupted' }]);
});

test('if the profile requires it, the turn waits for its snapshot and does not begin without one', async () => {
  const { sidecar, before, turnSnapshot, required } = snapshotFixture({ maxWaitMs: SHORT_MS });
  required.is = true;
  sidecar.tree = { a: 'one' };
  const scan = Promise.withResolvers<undefined>();
  sidecar.onScan = () => scan.promise;
  let began = false;
  const waiting = before(0).then(() => (began = true));
  await sleep(SHORT_MS * 3);
  expect(began).toBe(false);
  scan.resolve(undefined);
  await waiting;
  expect(turnSnapshot(0)).toMatchObject({ state: 'taken', duringTurn: false });
  sidecar.onScan = () => Promise.reject(new HoldfastError('no_space', 'Broken on purpose'));
  const error = await rejectedError(before(1));
  expect(error.code).toBe('snapshot_required');
  expect(error.sentence).toContain('Broken on purpose');
  expect(error.details).toEqual({ code: 'no_space' });
  // An incomplete one is not enough.
  sidecar.tree = { a: 'two' };
  sidecar.onScan = () => Promise.resolve({ missing: 1, missingPaths: ['/workspace/leased'] });
  const incomplete = await rejectedError(before(2));
  expect([incomplete.code, incomplete.sentence]).toEqual([
    'snapshot_required',
    expect.stringContaining('/workspace/leased'),
  ]);
  expect(turnSnapshot(2)).toMatchObject({ state: 'taken', missing: 1 });
});

test('the progress can be followed until the turn begins', async () => {
  const { sidecar, before, turnSnapshots } = snapshotFixture({ maxWaitMs: 400 });
  sidecar.onScan = async (_params, _peer, { progress }) => {
    progress('scanning', 12, 100);
    await sleep(SHORT_MS);
    return undefined;
  };
  const heard: Progress[] = [];
  const release = turnSnapshots.followProgress(turnId(0), (progress) => heard.push(progress));
  await before(0);
  release();
  expect(heard).toMatchObject([{ stage: 'snapshot before the turn: scanning', done: 12, of: 100 }]);
});

test('a deletion aborts running scans, and its own snapshot has a time limit', async () => {
  const { sidecar, take, snapshotCreation, service, session, told } = snapshotFixture({
    beforeDeleteMs: SHORT_MS,
  });
  sidecar.onScan = () => new Promise(() => undefined);
  const [first, second] = [rejectedError(take()), rejectedError(take())];
  await expect.poll(() => sidecar.scans.length).toBe(1);
  snapshotCreation.interrupt(SESSION, new HoldfastError('not_found', 'It is being deleted'));
  expect((await first).code).toBe('not_found');
  expect((await second).code).toBe('not_found');
  await snapshotCreation.withScanLock(SESSION, () => service.createBeforeDelete(session()));
  expect(told('snapshot.failed')).toMatchObject([{ reason: 'before-delete' }]);
});
