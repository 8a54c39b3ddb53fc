import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { turnId } from '../../fixtures/store/temporary-home.ts';
import { SESSION, snapshotFixture } from '../../fixtures/snapshots/snapshot-fixture.ts';

const NOTHING = { added: 0, modified: 0, deleted: 0, renamed: 0, mode: 0, typechange: 0 };

/** A fixture whose only waiting turn is the first: the others come when a test says so. */
function fixture(given: Parameters<typeof snapshotFixture>[0] = {}) {
  const at = snapshotFixture(given);
  for (const n of [1, 2]) at.turns.update(turnId(n), { status: 'succeeded' });
  return { ...at, queue: (n: number) => at.turns.update(turnId(n), { status: 'queued' }) };
}

test('what a turn changed is stored with it, and stays when both snapshots are deleted', async () => {
  const { sidecar, begin, end, turns, turnPaths, snapshots, service } = fixture();
  sidecar.tree = { kept: 'same\n', gone: 'a\nb\n', text: 'one\ntwo\nthree\n', image: 'old\0' };
  await begin(0);
  sidecar.tree = { kept: 'same\n', text: 'one\n2\nthree\nfour\n', image: 'new\0', fresh: 'x\n' };
  const changes = await end(0);
  const [before, after] = snapshots.listBySession(SESSION);
  expect([before?.reason, after?.reason]).toEqual(['before-turn', 'after-turn']);
  expect(changes).toMatchObject({
    state: 'known',
    before: before?.id,
    after: after?.id,
    totals: { ...NOTHING, added: 1, modified: 2, deleted: 1 },
    lines: { added: 3, removed: 3 },
    isComplete: true,
    failure: null,
  });
  for (const row of [before, after]) if (row !== undefined) service.remove(row, 'thinned out');
  expect(snapshots.listBySession(SESSION)).toEqual([]);
  expect(turns.getOrThrow(turnId(0)).changes).toEqual(changes);
  expect(turnPaths.get(turnId(0))).toEqual({
    paths: [
      { path: '/workspace/fresh', kind: 'added', type: 'file', lines: { added: 1, removed: 0 } },
      { path: '/workspace/gone', kind: 'deleted', type: 'file', lines: { added: 0, removed: 2 } },
      { path: '/workspace/image', kind: 'modified', type: 'file', lines: null },
      { path: '/workspace/text', kind: 'modified', type: 'file', lines: { added: 2, removed: 1 } },
    ],
    omitted: 0,
  });
});

test('a turn that changes nothing costs no snapshot, and n turns that do have n + 1', async () => {
  const { sidecar, begin, end, queue, snapshots, turnSnapshot } = fixture();
  sidecar.tree = { a: 'one\n' };
  await begin(0);
  const idle = await end(0);
  expect(idle).toMatchObject({ state: 'known', totals: NOTHING, lines: { added: 0, removed: 0 } });
  expect(idle?.after).toBe(idle?.before);
  expect(snapshots.count(SESSION)).toBe(1);
  for (const n of [1, 2]) {
    queue(n);
    await begin(n);
    sidecar.tree = { a: `${n}\n` };
    await end(n);
  }
  expect(snapshots.count(SESSION)).toBe(3);
  expect(turnSnapshot(2)?.snapshotId).toBe(snapshots.listBySession(SESSION)[1]?.id);
});

test('a turn that waits already has the one snapshot that serves both', async () => {
  const { sidecar, begin, end, queue, turns, snapshots } = fixture();
  sidecar.tree = { a: 'one\n' };
  await begin(0);
  sidecar.tree = { a: 'two\n' };
  queue(1);
  const ended = end(0);
  await begin(1);
  const changes = await ended;
  expect(snapshots.listBySession(SESSION).map(({ reason }) => reason)).toEqual([
    'before-turn',
    'before-turn',
  ]);
  expect(changes).toMatchObject({ state: 'known', totals: { modified: 1 } });
  expect(changes?.after).toBe(turns.getOrThrow(turnId(1)).snapshot?.snapshotId);
});

test('without a snapshot after the turn its changes are unknown, with the reason, and the turn is done', async () => {
  const { sidecar, begin, end, queue, sidecarRuns } = fixture();
  sidecar.tree = { a: 'one\n' };
  await begin(0);
  sidecar.onScan = () => Promise.reject(new HoldfastError('no_space', 'The disk is full'));
  expect(await end(0)).toMatchObject({
    state: 'unknown',
    totals: null,
    failure: { code: 'no_space', why: 'The disk is full' },
  });
  sidecar.onScan = () => Promise.resolve(undefined);
  queue(1);
  await begin(1);
  sidecarRuns.is = false;
  expect(await end(1)).toMatchObject({ state: 'unknown', failure: { code: 'sandbox_lost' } });
});

test('without a snapshot before the turn its changes are unknown', async () => {
  const { sidecar, begin, end } = fixture();
  sidecar.onScan = () => Promise.reject(new HoldfastError('file_unavailable', 'Broken on purpose'));
  await begin(0);
  sidecar.onScan = () => Promise.resolve(undefined);
  const changes = await end(0);
  expect(changes).toMatchObject({ state: 'unknown', failure: { code: 'not_found' } });
  expect(changes?.failure?.why).toContain('Broken on purpose');
});

test('the next turn waits for the snapshot after the last one, and gives it up after the usual time', async () => {
  const { sidecar, begin, end, queue, turnSnapshot, told } = fixture({ maxWaitMs: 1000 });
  sidecar.tree = { a: 'one\n' };
  await begin(0);
  sidecar.onScan = (_params, _peer, { signal }) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(new HoldfastError('cancelled', 'aborted')), {
        once: true,
      });
    });
  const ended = end(0);
  await expect.poll(() => sidecar.scans.length).toBe(2);
  queue(1);
  await begin(1);
  expect(await ended).toMatchObject({ state: 'unknown', failure: { code: 'interrupted' } });
  expect(turnSnapshot(1)).toMatchObject({ state: 'taking', duringTurn: true });
  expect(told('snapshot.failed')).toEqual([]);
  sidecar.onScan = () => Promise.resolve(undefined);
});

test('a supervisor that starts compares what the last one left, and says what nobody will know', async () => {
  const { sidecar, begin, queue, turns, take, nextTurnChanges, database } = fixture();
  sidecar.tree = { a: 'one\n' };
  await begin(0);
  sidecar.tree = { a: 'two\n' };
  const { row } = await take();
  const pending = { state: 'pending', before: null, totals: null, lines: null, isComplete: true } as const;
  const set = (after: string | null): void =>
    void turns.update(turnId(0), {
      status: 'succeeded',
      changes: { ...pending, after, failure: null },
    });
  const recovered = async () => {
    const next = nextTurnChanges();
    next.recover();
    await next.close();
    return turns.getOrThrow(turnId(0)).changes;
  };
  set(null);
  queue(1);
  // The snapshot before the turn that waits will show it.
  expect(await recovered()).toMatchObject({ state: 'pending' });
  turns.update(turnId(1), { status: 'succeeded' });
  expect(await recovered()).toMatchObject({ state: 'unknown', failure: { code: 'interrupted' } });

  set(row.id);
  const next = nextTurnChanges();
  next.recover();
  await expect
    .poll(() => turns.getOrThrow(turnId(0)).changes)
    .toMatchObject({
      state: 'known',
      totals: { modified: 1 },
    });
  await next.close();

  set(null);
  database.run(
    `UPDATE turns SET status = 'running', snapshot = ? WHERE id = ?`,
    JSON.stringify({ state: 'taken', snapshotId: row.id, duringTurn: false, missing: 0, failure: null }),
    turnId(1),
  );
  const last = nextTurnChanges();
  last.recover();
  await expect.poll(() => turns.getOrThrow(turnId(0)).changes?.state).toBe('known');
  await last.close();
});

test.each([{ persistent: false }, { throwaway: true }])('a session with %o has none', async (kind) => {
  const { sessions, turns, turnChanges, sidecar } = fixture();
  sessions.update(SESSION, kind);
  turns.update(turnId(0), { status: 'succeeded', startedAt: 1 });
  turnChanges.onTurnEnding(turnId(0));
  expect(turns.getOrThrow(turnId(0)).changes).toBeNull();
  expect(sidecar.scans).toEqual([]);
});

test('a turn that never began has none', () => {
  const { turns, turnChanges } = fixture();
  turns.update(turnId(0), { status: 'cancelled' });
  turnChanges.onTurnEnding(turnId(0));
  expect(turns.getOrThrow(turnId(0)).changes).toBeNull();
});
