import { onTestFinished } from 'vitest';
import { FrameBuilder } from '../../../snapshot-format/frames.ts';
import { type Hash, type ObjectKind } from '../../../snapshot-format/objects.ts';
import { PackWriter } from '../../../snapshot-format/pack-writer.ts';
import { Incoming } from '../../../supervisor/snapshots/store/incoming.ts';
import type { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { LineageStores } from '../../../supervisor/snapshots/store/stores.ts';
import type { Home } from '../../../supervisor/store/home.ts';
import { type ModelTree, storeTree } from './model-tree.ts';
import { StoredObjects } from './stored-objects.ts';

type Objects = ReadonlyMap<string, { kind: ObjectKind; body: Buffer }>;

/** Closed when the test ends. */
export function storesOf(home: Home): LineageStores {
  const stores = new LineageStores(home);
  onTestFinished(() => stores.close());
  return stores;
}

/** One pack, with so many objects in each frame. */
export function packOf(objects: Objects, perFrame: number): Buffer {
  const writer = new PackWriter();
  const builder = new FrameBuilder();
  const parts: Buffer[] = [];
  let inFrame = 0;
  for (const [hex, { kind, body }] of objects) {
    const hash = Buffer.from(hex, 'hex');
    if (inFrame >= perFrame || !builder.add(hash, kind, body)) {
      parts.push(...writer.append(builder.finish()));
      builder.add(hash, kind, body);
      inFrame = 0;
    }
    inFrame += 1;
  }
  parts.push(...writer.append(builder.finish()), writer.end());
  return Buffer.concat(parts);
}

/** Stores a tree as a scan does: what the store lacks, in so many packs. The caller holds the lock. Gives the root. */
export async function takeTree(
  store: LineageStore,
  tree: ModelTree,
  { packs = 1, perFrame = 100 }: { packs?: number; perFrame?: number } = {},
): Promise<Hash> {
  const objects = new StoredObjects();
  const root = storeTree(tree, objects.add);
  const incoming = new Incoming(store, () => Promise.resolve(2 ** 30));
  try {
    await incoming.beginScan();
    const lacking = [...objects.bodies].filter(([hex]) => store.find(Buffer.from(hex, 'hex')) === null);
    for (let pack = 0; pack < packs; pack += 1) {
      const mine = new Map(lacking.filter((_, index) => index % packs === pack));
      if (mine.size === 0) continue;
      const bytes = packOf(mine, perFrame);
      for (let at = 0; at < bytes.length; at += 2 ** 22) {
        await incoming.put(pack, at, bytes.subarray(at, at + 2 ** 22));
      }
      await incoming.seal(pack, bytes.length, mine.size);
    }
    await incoming.publish(root.toString('hex'));
    return root;
  } finally {
    await incoming.close();
  }
}
