import { expect, onTestFinished, test, vi } from 'vitest';
import type { SnapshotReason } from '../../../protocol/snapshots.ts';
import type { Log } from '../../../supervisor/base/log.ts';
import { LeasedRoots } from '../../../supervisor/snapshots/leased-roots.ts';
import { SnapshotMaintenance } from '../../../supervisor/snapshots/maintenance.ts';
import { Operations } from '../../../supervisor/store/operations.ts';
import { DiskReserve } from '../../../supervisor/store/reserve.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { type ReviewRow, ReviewRows } from '../../../supervisor/store/reviews.ts';
import { WorkspaceBases } from '../../../supervisor/store/workspace-bases.ts';
import { Snapshots } from '../../../supervisor/store/snapshots.ts';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';
import {
  sessionId,
  sessionRow,
  temporaryDatabase,
  temporaryHome,
} from '../../fixtures/store/temporary-home.ts';
import { folder, type ModelTree, plainFile } from '../../fixtures/snapshots/model-tree.ts';
import { openStores, publishModelTree } from '../../fixtures/snapshots/publish-tree.ts';

const SESSION = sessionId(0);
const HOUR = 3_600_000;
const NOW = Date.UTC(2031, 4, 20, 12, 30);
const silent: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {}, child: () => silent };

/** A tree with weight, which no other number has. */
function tree(number: number): ModelTree {
  const random = new SeededRandom(number);
  const bytes = Buffer.from(Array.from({ length: 50_000 }, () => random.below(256)));
  return new Map([
    ['', folder()],
    [`file-${number}`, plainFile(bytes)],
  ]);
}

function rooms() {
  const home = temporaryHome();
  const database = temporaryDatabase(home);
  const [sessions, snapshots] = [new Sessions(database), new Snapshots(database)];
  const [stores, operations] = [openStores(home), new Operations(database)];
  const held = new LeasedRoots(() => NOW);
  sessions.insert(sessionRow(0));
  const removed: string[] = [];
  const clock = { now: NOW };
  const reviewRows = new ReviewRows(database);
  const upkeep = new SnapshotMaintenance({
    snapshots,
    reviewRows,
    bases: new WorkspaceBases(database),
    sessions,
    stores,
    operations,
    leasedRoots: held,
    reserve: new DiskReserve(home),
    remove: ({ id }) => {
      snapshots.remove(id);
      removed.push(id);
    },
    log: silent,
    now: () => clock.now,
  });
  onTestFinished(() => upkeep.close());
  let made = 0;
  const take = async (age: number, reason: SnapshotReason = 'before-turn'): Promise<string> => {
    made += 1;
    const number = made;
    const root = await stores.use(SESSION, (store) => publishModelTree(store, tree(number)));
    const id = `snp-${String.fromCharCode(96 + number).repeat(16)}`;
    snapshots.insert({
      id,
      sessionId: SESSION,
      lineage: SESSION,
      createdAt: clock.now - age,
      reason,
      label: null,
      pinned: false,
      base: null,
      root: root.toString('hex'),
      stateRoot: null,
      files: 1,
      directories: 0,
      bytes: 50_000,
      changedFiles: 1,
      changedBytes: 50_000,
      newBytes: 50_000,
      scanMs: 1,
      frozenMs: 0,
      eventSeq: 0,
      duringTurn: false,
      missing: 0,
      missingPaths: [],
    });
    return id;
  };
  const bytes = async (): Promise<number> => (await upkeep.usage(sessionRow(0))).bytes;
  return { upkeep, snapshots, reviewRows, operations, held, stores, removed, take, bytes, clock };
}

test('collecting first thins out snapshots, then frees their objects', async () => {
  const { upkeep, snapshots, take, bytes, removed } = rooms();
  // The same hour two days ago; the second was asked for, the third is the newest of it.
  const first = await take(48 * HOUR + 20 * 60_000);
  const asked = await take(48 * HOUR + 10 * 60_000, 'manual');
  const last = await take(48 * HOUR + 5 * 60_000);
  const fresh = await take(HOUR);
  const before = await bytes();
  expect(await upkeep.collect(true)).toEqual([]);
  const [given] = await upkeep.collect(false);
  expect(removed).toEqual([first]);
  expect(snapshots.listBySession(SESSION).map(({ id }) => id)).toEqual([asked, last, fresh]);
  expect(await bytes()).toBe(before - (given?.bytes ?? 0));
  expect(await bytes()).toBeLessThan(before * 0.8);
  for (const row of snapshots.listBySession(SESSION)) expect((await upkeep.verify(row)).ok).toBe(true);
  expect(await upkeep.usage(sessionRow(0))).toMatchObject({ snapshots: 3, uniqueBytes: await bytes() });
});

test('trees of pending restores and leased trees are kept without a snapshot', async () => {
  const { upkeep, snapshots, operations, held, stores, take } = rooms();
  const intended = await take(HOUR);
  const looked = await take(HOUR);
  await take(HOUR);
  const roots = [intended, looked].map((id) => snapshots.getOrThrow(id).root);
  const begun = operations.begin({
    kind: 'snapshot.restore',
    sessionId: SESSION,
    data: { root: roots[0] ?? '' },
  });
  held.lease(SESSION, Buffer.from(roots[1] ?? '', 'hex'));
  snapshots.remove(intended);
  snapshots.remove(looked);
  await upkeep.collect(false);
  const isThere = (root: string | undefined): Promise<boolean> =>
    stores.use(SESSION, (store) => Promise.resolve(store.find(Buffer.from(root ?? '', 'hex')) !== null));
  expect(await Promise.all(roots.map(isThere))).toEqual([true, true]);
  if ('operation' in begun) operations.finish(begun.operation, {});
  await upkeep.collect(false);
  expect(await Promise.all(roots.map(isThere))).toEqual([false, true]);
});

test('it runs two minutes after the start, then every hour, and not after the end', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const { upkeep, removed, take, bytes, clock } = rooms();
  const pass = (ms: number): void => {
    clock.now += ms;
    vi.advanceTimersByTime(ms);
  };
  /** Two of one hour, of which the first is one too many. */
  const two = async (hoursAgo: number): Promise<string> => {
    const older = await take(hoursAgo * HOUR + 5 * 60_000);
    await take(hoursAgo * HOUR + 4 * 60_000);
    return older;
  };
  const becomes = async (ids: readonly string[]): Promise<void> => {
    const until = performance.now() + 20_000;
    while (removed.length < ids.length && performance.now() < until) await new Promise(setImmediate);
    expect(removed).toEqual(ids);
    // What a pass that is under way has to do it does to its end.
    await upkeep.collect(true);
  };
  const first = await two(48);
  const before = await bytes();
  upkeep.start();
  pass(119_000);
  await becomes([]);
  pass(1000);
  await becomes([first]);
  expect(await bytes()).toBeLessThan(before * 0.8);
  const second = await two(72);
  pass(HOUR - 121_000);
  await becomes([first]);
  pass(1000);
  await becomes([first, second]);
  await two(96);
  await upkeep.close();
  pass(5 * HOUR);
  await becomes([first, second]);
});

test('the trees of an open review stay, and those of the newest one that ended', async () => {
  const { upkeep, reviewRows, stores, take } = rooms();
  await take(0);
  const [base, target, accepted] = await stores.use(SESSION, async (store) => [
    await publishModelTree(store, tree(11)),
    await publishModelTree(store, tree(12)),
    await publishModelTree(store, tree(13)),
  ]);
  const row: ReviewRow = {
    id: 'rev-aaaaaaaaaaaaaaaa',
    sessionId: SESSION,
    lineage: SESSION,
    createdAt: NOW,
    updatedAt: NOW,
    endedAt: null,
    baseSpec: 'start',
    baseSnapshot: null,
    baseRoot: base.toString('hex'),
    targetSnapshot: 'snp-aaaaaaaaaaaaaaaa',
    targetRoot: target.toString('hex'),
    acceptedRoot: accepted.toString('hex'),
    revision: 1,
  };
  reviewRows.insert(row);
  const left = (): Promise<boolean[]> =>
    stores.use(SESSION, (store) =>
      Promise.resolve([base, target, accepted].map((root) => store.find(root) !== null)),
    );
  await upkeep.collect(false);
  expect(await left()).toEqual([true, true, true]);
  reviewRows.end(row, NOW);
  await upkeep.collect(false);
  // The undo of a handoff opens the newest one again.
  expect(await left()).toEqual([true, true, true]);
  reviewRows.removeOfSession(SESSION);
  await upkeep.collect(false);
  expect(await left()).toEqual([false, false, false]);
});
