import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Hash } from '../../../snapshot-format/objects.ts';
import {
  collectLineage,
  type CollectionResult,
  planLineageCollection,
} from '../../../supervisor/snapshots/gc/collect-lineage.ts';
import { uniqueBytes } from '../../../supervisor/snapshots/gc/unique-bytes.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import { type PackUsage, planCollection } from '../../../supervisor/snapshots/gc/plan.ts';
import { beginDropping } from '../../../supervisor/snapshots/store/dropping.ts';
import type { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { referencesOf } from '../../../supervisor/snapshots/store/references.ts';
import type { LineageStores } from '../../../supervisor/snapshots/store/lineage-stores.ts';
import { verifyTree } from '../../../supervisor/snapshots/verify/verify-tree.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { DiskReserve } from '../../../supervisor/store/reserve.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { rejectedError, sessionId, smallDisk, temporaryHome } from '../../fixtures/store/temporary-home.ts';
import { folder, type ModelTree, plainFile, RandomTrees } from '../../fixtures/snapshots/model-tree.ts';
import { openStores, publishModelTree } from '../../fixtures/snapshots/publish-tree.ts';
import { soakCount } from '../../setup/run-length.ts';

const LINEAGE = sessionId(0);

function collect(stores: LineageStores, roots: readonly Hash[]): Promise<CollectionResult> {
  return collectLineage({ stores, lineage: LINEAGE, roots: () => roots });
}

async function expectWhole(store: LineageStore, roots: readonly Hash[]): Promise<void> {
  for (const root of roots) expect(await verifyTree(store, root)).toMatchObject({ ok: true, damages: [] });
}

/** What a scan relies on: whatever is there has all that it names. */
async function expectClosed(store: LineageStore): Promise<void> {
  for (const pack of store.packs) {
    for (let index = 0; index < pack.index.objects; index += 1) {
      const { hash, kind } = pack.index.object(index);
      const body = await store.read(hash, kind);
      for (const named of referencesOf(kind, body)) expect(store.find(named.hash)).not.toBeNull();
    }
  }
}

/** A tree with some weight, of which each number differs from all others. */
function heavy(number: number, files = 20): ModelTree {
  const random = new SeededRandom(number + 1);
  const tree: ModelTree = new Map([
    ['', folder()],
    ['d', folder()],
  ]);
  for (let file = 0; file < files; file += 1) {
    const bytes = Buffer.from(Array.from({ length: 3000 }, () => random.below(256)));
    tree.set(`d/${number}-${file}`, plainFile(bytes));
  }
  return tree;
}

describe('the plan of a collection', () => {
  const pack = (name: string, more: Partial<PackUsage>): PackUsage => ({
    name,
    bytes: 1000,
    liveObjects: 1,
    deadBytes: 0,
    referencedPacks: new Set(),
    ...more,
  });
  const planned = (...packs: PackUsage[]): { drop: string[]; rewrite: string[] } => {
    const { drop, rewrite } = planCollection(packs);
    return { drop: [...drop].sort(), rewrite: [...rewrite].sort() };
  };

  test('a pack without live objects is dropped; a pack with few dead objects stays', () => {
    expect(planned(pack('a', { liveObjects: 0 }), pack('b', { deadBytes: 100 }), pack('c', {}))).toEqual({
      drop: ['a'],
      rewrite: [],
    });
  });

  test('packs that reference a removed pack are removed with it, also indirectly', () => {
    const first = pack('first', { referencedPacks: new Set(['second']) });
    const second = pack('second', { deadBytes: 10, referencedPacks: new Set(['third']) });
    expect(planned(first, second, pack('third', { liveObjects: 0 }), pack('other', {}))).toEqual({
      drop: [],
      rewrite: ['first', 'second', 'third'],
    });
    const circle = pack('circle', { liveObjects: 0, referencedPacks: new Set(['round']) });
    expect(planned(circle, pack('round', { liveObjects: 0, referencedPacks: new Set(['circle']) }))).toEqual({
      drop: ['circle', 'round'],
      rewrite: [],
    });
  });

  test('many small packs are merged', () => {
    const small = Array.from({ length: 17 }, (_, index) => pack(`small-${index}`, {}));
    const large = pack('large', { bytes: 2 ** 26 });
    expect(planned(...small.slice(1), large).rewrite).toEqual([]);
    expect(planned(...small, large).rewrite).toHaveLength(17);
  });
});

describe('collecting garbage', () => {
  test('frees what only a deleted snapshot needed, and estimates it beforehand', async () => {
    const stores = openStores(temporaryHome());
    const [kept, gone] = await stores.use(LINEAGE, async (store) => [
      await publishModelTree(store, heavy(1)),
      await publishModelTree(store, heavy(2)),
    ]);
    const before = await stores.use(LINEAGE, (store) => Promise.resolve(store.bytes));
    expect(await collect(stores, [kept, gone])).toEqual({ freedBytes: 0, missing: 0 });
    const planned = await planLineageCollection({ stores, lineage: LINEAGE, roots: () => [kept] });
    const { freedBytes } = await collect(stores, [kept]);
    expect(freedBytes).toBeGreaterThan(60_000);
    expect(Math.abs(planned.freedBytes - freedBytes)).toBeLessThan(freedBytes / 10);
    await stores.use(LINEAGE, async (store) => {
      expect(store.bytes).toBe(before - freedBytes);
      await expectWhole(store, [kept]);
      expect((await verifyTree(store, gone)).ok).toBe(false);
      expect(readdirSync(store.incomingDirectory)).toEqual([]);
    });
    expect(await collect(stores, [])).toEqual({ freedBytes: before - freedBytes, missing: 0 });
    expect(await collect(stores, [])).toEqual({ freedBytes: 0, missing: 0 });
  });

  test('unique bytes do not include objects shared with other trees', async () => {
    const stores = openStores(temporaryHome());
    await stores.use(LINEAGE, async (store) => {
      const one = await publishModelTree(store, heavy(1));
      const both = await publishModelTree(store, new Map([...heavy(1), ...heavy(2)]));
      const count = (mine: Hash[], others: Hash[]): Promise<number> =>
        uniqueBytes(store, mine, others, new TimeSlice());
      expect(await count([one], [both])).toBeLessThan(3000);
      const alone = await count([both], [one]);
      expect(alone).toBeGreaterThan(60_000);
      expect(alone).toBeLessThan(66_000);
      expect(await count([both, one], [])).toBeGreaterThan(2 * 60_000);
      expect(await count([one], [one])).toBe(0);
    });
  });

  test('a half-dead pack is rewritten', async () => {
    const stores = openStores(temporaryHome());
    const both = new Map([...heavy(1), ...heavy(2)]);
    const kept = await stores.use(LINEAGE, async (store) => {
      await publishModelTree(store, both, { perFrame: 7 });
      return await publishModelTree(store, heavy(1));
    });
    const { freedBytes } = await collect(stores, [kept]);
    expect(freedBytes).toBeGreaterThan(55_000);
    await stores.use(LINEAGE, async (store) => {
      await expectWhole(store, [kept]);
      await expectClosed(store);
    });
  });

  test(
    'snapshots created and deleted in any order leave the others complete',
    { timeout: 600_000 },
    async () => {
      const random = new SeededRandom(seedOfRun('gc'));
      for (let round = 0; round < soakCount(6, 150); round += 1) {
        const trees = new RandomTrees(random);
        const stores = openStores(temporaryHome());
        let tree = trees.tree(40);
        let kept: Hash[] = [];
        for (let step = 0; step < 12; step += 1) {
          tree = random.below(6) === 0 ? trees.tree(40) : trees.edited(tree, random.below(10));
          const options = { packs: 1 + random.below(3), perFrame: 1 + random.below(20) };
          kept.push(await stores.use(LINEAGE, (store) => publishModelTree(store, tree, options)));
          if (random.below(3) === 0) kept = kept.filter(() => random.below(2) === 0);
          if (random.below(2) === 0) {
            await collect(stores, kept);
            await stores.use(LINEAGE, async (store) => {
              await expectWhole(store, kept);
              await expectClosed(store);
            });
          }
        }
        kept = kept.slice(-1);
        await collect(stores, kept);
        await stores.use(LINEAGE, (store) => expectWhole(store, kept));
        // Little more is left than the tree takes by itself.
        const fresh = openStores(temporaryHome());
        const least = await fresh.use(LINEAGE, async (store) => {
          await publishModelTree(store, tree);
          return store.bytes;
        });
        await stores.use(LINEAGE, (store) => {
          expect(store.bytes).toBeLessThan(least * 1.5 + 3000);
          return Promise.resolve();
        });
      }
    },
  );

  test(
    'snapshots created during a collection keep every object that they found',
    { timeout: 600_000 },
    async () => {
      const random = new SeededRandom(seedOfRun('gc beside'));
      const stores = openStores(temporaryHome());
      const trees = new RandomTrees(random);
      const kept: Hash[] = [];
      const known: ModelTree[] = [heavy(0)];
      let busy = true;
      const taking = async (): Promise<void> => {
        for (let step = 0; step < soakCount(25, 400); step += 1) {
          // Often one that was there before: its objects may be about to go.
          const old = known[random.below(known.length)] ?? heavy(0);
          const tree = random.below(2) === 0 ? old : trees.edited(old, 4);
          if (known.length < 30) known.push(tree);
          await stores.use(LINEAGE, async (store) => {
            const root = await publishModelTree(store, tree, { packs: 1 + random.below(2) });
            await setImmediate();
            if (random.below(3) > 0) kept.push(root);
          });
          while (kept.length > 4) kept.shift();
        }
        busy = false;
      };
      let collected = 0;
      const collecting = async (): Promise<void> => {
        while (busy) {
          // Where there is nothing to read, nothing below waits for anything.
          await setImmediate();
          collected += (await collectLineage({ stores, lineage: LINEAGE, roots: () => kept })).freedBytes;
          await stores.use(LINEAGE, (store) => expectWhole(store, [...kept]));
        }
      };
      await Promise.all([
        taking().finally(() => {
          busy = false;
        }),
        collecting(),
      ]);
      await collect(stores, kept);
      await stores.use(LINEAGE, async (store) => {
        await expectWhole(store, kept);
        await expectClosed(store);
      });
      expect(collected).toBeGreaterThan(0);
    },
  );

  test('a pack that arrives last keeps the objects it references, even without a snapshot', async () => {
    const stores = openStores(temporaryHome());
    const kept = await stores.use(LINEAGE, async (store) => {
      await publishModelTree(store, heavy(1));
      return await publishModelTree(store, heavy(2));
    });
    let late = 0;
    const late1 = new Map([...heavy(1), ['d/late', plainFile('late')] as const]);
    const beside: Pick<LineageStores, 'use' | 'useExclusively'> = {
      use: (lineage, act) => stores.use(lineage, act),
      useExclusively: async (lineage, act) => {
        // A tree that names what is about to go, published and then given up: nobody needs it, but it is there.
        if (late === 0) await stores.use(lineage, (store) => publishModelTree(store, late1));
        late += 1;
        return await stores.useExclusively(lineage, act);
      },
    };
    await collectLineage({ stores: beside, lineage: LINEAGE, roots: () => [kept] });
    expect(late).toBeGreaterThan(1);
    await stores.use(LINEAGE, async (store) => {
      await expectClosed(store);
      await expectWhole(store, [kept]);
    });
  });

  test('after a crash the next supervisor finishes the removal of packs', async () => {
    const home = temporaryHome();
    const stores = openStores(home);
    const roots = await stores.use(LINEAGE, async (store) => [
      await publishModelTree(store, heavy(1)),
      await publishModelTree(store, heavy(2)),
    ]);
    const [, second] = await stores.use(LINEAGE, (store) => Promise.resolve(store.packs));
    beginDropping(home.lineage(LINEAGE), new Set([second?.name ?? '']));
    const next = openStores(home);
    await next.use(LINEAGE, async (store) => {
      expect(store.packs.map(({ name }) => name)).not.toContain(second?.name);
      await expectWhole(store, roots.slice(0, 1));
    });
    expect(readdirSync(home.lineage(LINEAGE)).sort()).toEqual(['incoming', 'packs']);
  });

  test('on a full disk it first drops packs that need no copy, and leaves the rest for later', async ({
    skip,
  }) => {
    const disk = smallDisk();
    if (disk === null) {
      skip('this process may not mount');
      return;
    }
    const home = Home.open(join(disk, 'home'));
    const stores = openStores(home);
    const { whole, half } = await stores.use(LINEAGE, async (store) => {
      await publishModelTree(store, heavy(1, 300), { perFrame: 10 });
      const kept = await publishModelTree(store, new Map([...heavy(1, 100)]));
      await publishModelTree(store, heavy(2, 100));
      return { whole: store.bytes, half: kept };
    });
    const reserve = new DiskReserve(home);
    reserve.ensure();
    const filler = join(disk, 'filler');
    try {
      writeFileSync(filler, Buffer.alloc(24 * 2 ** 20));
    } catch {
      // That is what it is for.
    }
    const urgently = (write: () => void): void => reserve.retryOnFullDisk(write);
    const first = await collectLineage({ stores, lineage: LINEAGE, roots: () => [half], urgently });
    // All of the last one; of the first one the unneeded part may have to wait.
    expect(first.freedBytes).toBeGreaterThan(290_000);
    rmSync(filler);
    const second = await collectLineage({ stores, lineage: LINEAGE, roots: () => [half], urgently });
    expect(first.freedBytes + second.freedBytes).toBeGreaterThan(whole - 350_000);
    await stores.use(LINEAGE, async (store) => {
      await expectWhole(store, [half]);
      await expectClosed(store);
    });
  });

  test('an unreadable tree stops the collection; lost content does not', async () => {
    const home = temporaryHome();
    const take = (tree: ModelTree): Promise<Hash> =>
      openStores(home).use(LINEAGE, (store) => publishModelTree(store, tree));
    await take(heavy(1));
    const kept = await take(heavy(2));
    const packs = join(home.lineage(LINEAGE), 'packs');
    const stores = openStores(home);
    const [mine] = await stores.use(LINEAGE, (store) =>
      Promise.resolve(store.packs.filter((pack) => pack.index.find(kept) !== null)),
    );
    const name = mine?.name ?? '';
    await rename(join(packs, name), join(home.root, 'aside'));
    await writeFile(join(packs, name), 'no pack');
    const broken = openStores(home);
    expect((await rejectedError(collect(broken, [kept]))).code).toBe('snapshot_damaged');
    expect(readdirSync(packs)).toHaveLength(2);
    // Once nobody needs it, the file goes too.
    const left = await collect(broken, []);
    expect(left.freedBytes).toBeGreaterThan(60_000);
    expect(readdirSync(packs)).toEqual([]);
  });
});
