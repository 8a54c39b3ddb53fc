import { expect, test } from 'vitest';
import type { SnapshotRow } from '../../../supervisor/store/snapshots.ts';
import { AgentSnapshots } from '../../../supervisor/tools/agent-snapshots.ts';
import { rejectedError } from '../../fixtures/store/temporary-home.ts';

const GIB = 2 ** 30;
const DAY = 86_400_000;

/** Snapshots that store `newBytes` each. Fakes: a test says what is stored and free. */
function given(earlier: readonly Partial<SnapshotRow>[] = []) {
  const rows = earlier.map((row) => ({ reason: 'agent', createdAt: 10 * DAY, ...row }) as SnapshotRow);
  const world = {
    newBytes: GIB,
    free: 100 * GIB,
    limit: (2 * GIB) as number | null,
    now: 10 * DAY,
    created: true,
  };
  const thinned: string[] = [];
  const snapshots = new AgentSnapshots({
    snapshots: { listBySession: (id) => (id === 'one' ? rows : []) },
    snapshotCreation: {
      create: () =>
        Promise.resolve({ row: { newBytes: world.newBytes } as SnapshotRow, created: world.created }),
    },
    maintenance: { thinSession: (id) => void thinned.push(id) },
    limitOf: () => world.limit,
    freeBytes: () => Promise.resolve(world.free),
    now: () => world.now,
  });
  const create = (id = 'one') => snapshots.create(id, 'a state', new AbortController().signal);
  return { world, thinned, create };
}

test('what the snapshots of an agent store in a day has a limit, for each session', async () => {
  const { world, create, thinned } = given();
  for (let nth = 0; nth < 4; nth += 1) expect((await create()).created).toBe(true);
  const refused = await rejectedError(create());
  expect(refused.code).toBe('overloaded');
  expect(refused.sentence).toContain('4096 MiB a day');
  await create('two');
  expect(thinned).toEqual(['one', 'one', 'one', 'one', 'two']);
  world.now += DAY / 4;
  await create();
  expect((await rejectedError(create())).code).toBe('overloaded');
});

test('the calls of one moment do not share what is left', async () => {
  const { create } = given();
  const settled = await Promise.allSettled(Array.from({ length: 8 }, () => create()));
  expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(4);
});

test('what an earlier supervisor stored counts, and an unchanged workspace costs nothing', async () => {
  const { world, create } = given([
    { newBytes: 3 * GIB },
    { newBytes: 50 * GIB, createdAt: 8 * DAY },
    { newBytes: 50 * GIB, reason: 'before-turn' },
  ]);
  world.created = false;
  for (let nth = 0; nth < 5; nth += 1) await create();
  world.created = true;
  await create();
  expect((await rejectedError(create())).code).toBe('overloaded');
});

test('a disk that is nearly full gets no snapshot of an agent', async () => {
  const { world, create } = given();
  world.limit = null;
  for (let nth = 0; nth < 10; nth += 1) await create();
  world.free = GIB;
  expect((await rejectedError(create())).code).toBe('no_space');
});
