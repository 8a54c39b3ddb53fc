import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { ContainerPairs, type ContainerPair } from '../container-pair.ts';
import { MemoryStore } from '../../fixtures/snapshots/memory-store.ts';
import { SnapshotClient } from './snapshot-client.ts';
import { differences, Tree, TREE_CODE } from './tree.ts';
import { soakCount } from '../../setup/run-length.ts';

let bench: ContainerPairs;
let pair: ContainerPair;
let tree: Tree;

beforeAll(async () => {
  bench = await ContainerPairs.create();
  pair = await bench.createPair({ code: TREE_CODE });
  tree = new Tree(pair);
});
afterAll(async () => {
  await bench.dispose();
});

async function withClient<T>(work: (client: SnapshotClient, store: MemoryStore) => Promise<T>): Promise<T> {
  const store = new MemoryStore();
  const client = await SnapshotClient.open(pair, store);
  try {
    return await work(client, store);
  } finally {
    client.close();
  }
}

test(
  'a restore reproduces what a scan found, in every attribute',
  async () => {
    const seed = seedOfRun('snapshots');
    for (let round = 0; round < soakCount(3, 300); round += 1) {
      await tree.clear();
      await tree.make(seed + round);
      const before = await tree.describe();
      await withClient(async (client) => {
        const first = await client.scan();
        expect(first.complete, `round ${round}`).toBe(true);
        expect(differences(before, await tree.describe()), `a scan changes nothing, round ${round}`).toEqual(
          [],
        );

        await tree.edit(seed + round + 1_000_000);
        const edited = await tree.describe();
        const second = await client.scan({ base: first.root });

        const counted = await client.restore({ root: first.root, dryRun: true });
        expect(
          differences(edited, await tree.describe()),
          `counting changes nothing, round ${round}`,
        ).toEqual([]);
        const restored = await client.restore({ root: first.root });
        expect(differences(before, await tree.describe()), `back, round ${round}`).toEqual([]);
        expect(restored, `as it was counted, round ${round}`).toEqual(counted);
        expect((await client.scan({ base: second.root })).root, `the same tree, round ${round}`).toBe(
          first.root,
        );

        await client.restore({ root: second.root });
        expect(differences(edited, await tree.describe()), `and forth, round ${round}`).toEqual([]);

        await tree.clear();
        await client.restore({ root: first.root });
        expect(differences(before, await tree.describe()), `out of nothing, round ${round}`).toEqual([]);
        const again = await client.scan({ base: first.root });
        expect(again.root, `out of nothing, round ${round}`).toBe(first.root);
        expect(again.newObjects).toBe(0);
      });
    }
  },
  soakCount(600_000, 3_600_000),
);

test('snapshots work the same without openat2; without any native calls they are refused', async () => {
  const walking = await bench.createPair({ code: TREE_CODE, sidecarEnv: ['HOLDFAST_WITHOUT_NATIVE=1'] });
  const there = new Tree(walking);
  await there.clear();
  await there.make(seedOfRun('without native calls'));
  const before = await there.describe();
  const store = new MemoryStore();
  const client = await SnapshotClient.open(walking, store);
  try {
    const first = await client.scan();
    await there.edit(7);
    const edited = await there.describe();
    const second = await client.scan({ base: first.root });
    expect(second.root).not.toBe(first.root);
    await client.restore({ root: first.root });
    expect(differences(before, await there.describe())).toEqual([]);
    await client.restore({ root: second.root });
    expect(differences(edited, await there.describe())).toEqual([]);
    expect((await client.scan({ base: second.root })).root).toBe(second.root);
  } finally {
    client.close();
  }

  const other = await ContainerPairs.create();
  try {
    for (const name of await readdir(join(other.root, 'runtime'))) {
      if (name.endsWith('.node')) await rm(join(other.root, 'runtime', name));
    }
    const bare = await SnapshotClient.open(await other.createPair({ code: TREE_CODE }), store);
    await expect(bare.scan()).rejects.toMatchObject({ code: 'not_supported' });
    await expect(bare.restore({ root: '0'.repeat(64) })).rejects.toMatchObject({ code: 'not_supported' });
    bare.close();
  } finally {
    await other.dispose();
  }
}, 300_000);
