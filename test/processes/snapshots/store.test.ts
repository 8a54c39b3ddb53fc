import { existsSync, readdirSync, readFileSync, readlinkSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { entriesOf, parseRoot } from '../../../snapshot-format/entries.ts';
import { parseFrameTable, decompressFrame } from '../../../snapshot-format/frames.ts';
import { type Hash, hashOf, OBJECT_KINDS, parseHash } from '../../../snapshot-format/objects.ts';
import { IncomingPacks } from '../../../supervisor/snapshots/store/incoming-packs.ts';
import type { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { rejectedError, smallDisk, temporaryHome } from '../../fixtures/store/temporary-home.ts';
import { blobOf, objectsOf } from '../../fixtures/snapshots/small-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';
import {
  MIB,
  LINEAGE,
  OTHER,
  TREE,
  WHOLE,
  ROOT,
  openStores,
  sendPack,
  publishTree,
  incompressibleBytes,
} from '../../fixtures/snapshots/store-fixture.ts';

test('published objects are complete, also for the next supervisor', async () => {
  const home = temporaryHome();
  const { objects, root } = objectsOf(TREE);
  const bytes = await openStores(home).use(LINEAGE, (store) => publishTree(store, objects, root));
  expect(bytes).toBe(objects.pack().length);
  await openStores(home).use(LINEAGE, async (store) => {
    expect(store.bytes).toBe(bytes);
    for (const [hex, { kind, body }] of objects.bodies)
      expect(await store.read(parseHash(hex), kind)).toEqual(body);
    const names: string[] = [];
    const top = parseRoot(await store.read(parseHash(root), OBJECT_KINDS.root));
    for await (const entry of entriesOf(store, top)) names.push(entry.name.toString());
    expect(names).toEqual(['a.txt', 'empty', 'folder']);
    expect(readdirSync(store.incomingDirectory)).toEqual([]);
  });
});

test('lineages share no objects', async () => {
  const stores = openStores(temporaryHome());
  const { objects, root } = objectsOf(TREE);
  await stores.use(LINEAGE, (store) => publishTree(store, objects, root));
  await stores.use(OTHER, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(MIB));
    expect(await incoming.have(blobOf('one'))).toEqual(Buffer.from([0]));
    await incoming.close();
    expect((await rejectedError(store.read(blobOf('one'), OBJECT_KINDS.blob))).code).toBe('snapshot_damaged');
    expect((await rejectedError(store.readFramesWith([blobOf('one')]))).code).toBe('snapshot_damaged');
  });
});

test('`have` answers for each object, sealed or stored', async () => {
  const stores = openStores(temporaryHome());
  const first = objectsOf({ a: 'stored' });
  const second = objectsOf({ b: 'sealed' });
  await stores.use(LINEAGE, async (store) => {
    await publishTree(store, first.objects, first.root);
    const incoming = new IncomingPacks(store, () => Promise.resolve(MIB));
    await incoming.beginScan();
    const asked = [...Array.from({ length: 9 }, () => blobOf('never')), blobOf('stored'), blobOf('sealed')];
    expect(await incoming.have(Buffer.concat(asked))).toEqual(Buffer.from([0, 0b010]));
    await sendPack(incoming, 0, second.objects.pack(), second.objects.bodies.size);
    expect(await incoming.have(Buffer.concat(asked))).toEqual(Buffer.from([0, 0b110]));
    await incoming.close();
  });
});

test('damaged objects no longer count as present, are stored again, and are read from another copy, also by the next supervisor', async () => {
  const home = temporaryHome();
  const { objects, root } = objectsOf(TREE);
  const hashes = [...objects.bodies.keys()].map(parseHash);
  const have = async (store: LineageStore): Promise<Buffer> => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(MIB));
    try {
      return await incoming.have(Buffer.concat(hashes));
    } finally {
      await incoming.close();
    }
  };
  const flip = (path: string): void => {
    const bytes = readFileSync(path);
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    writeFileSync(path, bytes);
  };
  const all = Buffer.alloc(Math.ceil(hashes.length / 8));
  hashes.forEach((_, at) => (all[at >> 3] = (all[at >> 3] ?? 0) | (1 << (at & 7))));
  const none = Buffer.alloc(all.length);
  await openStores(home).use(LINEAGE, async (store) => {
    await publishTree(store, objects, root);
    expect(await have(store)).toEqual(all);
    expect(store.damageFingerprint).toBeNull();
    flip(store.packs[0]?.path ?? '');
    expect((await rejectedError(store.readFramesWith(hashes))).code).toBe('snapshot_damaged');
    expect(store.damageFingerprint).toBe(store.packs[0]?.name);
    expect(await have(store)).toEqual(none);
    // As an earlier version left it.
    renameSync(join(store.directory, 'suspect-packs.json'), join(store.directory, 'doubted.json'));
  });
  await openStores(home).use(LINEAGE, async (store) => {
    const [bad] = store.packs;
    expect([store.damageFingerprint, await have(store)]).toEqual([bad?.name, none]);
    await publishTree(store, objects, root);
    expect(await have(store)).toEqual(all);
    for (const [hex, { kind, body }] of objects.bodies)
      expect(await store.read(parseHash(hex), kind)).toEqual(body);
    // With the copy that was sound gone, too.
    flip(store.packs[1]?.path ?? '');
    expect((await rejectedError(store.readFramesWith(hashes))).code).toBe('snapshot_damaged');
    expect(store.damageFingerprint?.split(',')).toHaveLength(2);
  });
  await openStores(home).use(LINEAGE, async (store) => {
    await store.dropPacks(new Set(store.packs.map(({ name }) => name)));
    expect(store.damageFingerprint).toBeNull();
  });
  await openStores(home).use(LINEAGE, (store) => {
    expect(store.damageFingerprint).toBeNull();
    return Promise.resolve();
  });
});

test('when a read finds damage, the object is read from another pack', async () => {
  const home = temporaryHome();
  const { objects, root } = objectsOf(TREE);
  const stores = openStores(home);
  await stores.use(LINEAGE, async (store) => {
    await publishTree(store, objects, root);
    await publishTree(store, objects, root);
    const newest = store.packs[1];
    const bytes = readFileSync(newest?.path ?? '');
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    writeFileSync(newest?.path ?? '', bytes);
    const { frames } = await store.readFramesWith([blobOf('one')]);
    expect(frames).toHaveLength(1);
    expect(store.damageFingerprint).toBe(newest?.name);
    for (const [hex, { kind, body }] of objects.bodies)
      expect(await store.read(parseHash(hex), kind)).toEqual(body);
  });
});

test('a second scan of one snapshot numbers its packs from 0 and reuses what the first one sent', async () => {
  const { objects: blobs } = objectsOf({ a: 'content' });
  const { objects, root } = objectsOf({ a: 'content', b: 'more' });
  for (const hash of blobs.bodies.keys()) objects.bodies.delete(hash);
  await openStores(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(MIB));
    await incoming.beginScan();
    await sendPack(incoming, 0, blobs.pack(), blobs.bodies.size);
    await incoming.put(1, 0, Buffer.from('never sealed'));
    await incoming.beginScan();
    await sendPack(incoming, 0, objects.pack(), objects.bodies.size);
    await incoming.publish(root);
    expect(incoming.publishedBytes).toBe(blobs.pack().length + objects.pack().length);
    await incoming.close();
    expect(store.packs.length).toBe(2);
    expect(await store.read(blobOf('content'), OBJECT_KINDS.blob)).toEqual(Buffer.from('content'));
  });
});

test('frames are sent in stored form, as many as fit into one message, at least the first', async () => {
  const objects = new StoredObjects();
  const hashes = Array.from({ length: 12 }, (_, at) =>
    objects.add(OBJECT_KINDS.blob, Buffer.alloc(MIB, `${at} `).fill(incompressibleBytes(at), 0, MIB / 2)),
  );
  const { objects: tree, root } = objectsOf(TREE);
  await openStores(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(64 * MIB));
    await incoming.beginScan();
    await sendPack(incoming, 0, objects.pack(), objects.bodies.size);
    await sendPack(incoming, 1, tree.pack(), tree.bodies.size);
    await incoming.publish(root);
    await incoming.close();
    let left: Hash[] = [...hashes, parseHash(root)];
    let answers = 0;
    while (left.length > 0) {
      const { frames, bytes } = await store.readFramesWith(left);
      expect(bytes.length).toBeLessThanOrEqual(4 * MIB);
      const came = new Set<string>();
      let at = 0;
      for (const { objects: count, stored, raw, encoding } of frames) {
        const records = parseFrameTable(bytes.subarray(at, at + count * 41), raw);
        at += count * 41;
        const body = decompressFrame(encoding, raw, bytes.subarray(at, at + stored));
        at += stored;
        for (const { hash, kind, offset, length } of records) {
          expect(hashOf(kind, body.subarray(offset, offset + length))).toEqual(hash);
          came.add(hash.toString('hex'));
        }
      }
      expect(at).toBe(bytes.length);
      expect(came.has(left[0]?.toString('hex') ?? '')).toBe(true);
      left = left.filter((hash) => !came.has(hash.toString('hex')));
      answers += 1;
    }
    expect(answers).toBeGreaterThan(1);
  });
});

test('a full disk is reported as such, leaves stored objects readable, and frees incomplete packs', async ({
  skip,
}) => {
  const disk = smallDisk();
  if (disk === null) {
    skip('a small disk needs the right to mount one');
    return;
  }
  const home = Home.open(join(disk, 'home'));
  await openStores(home).use(LINEAGE, async (store) => {
    await publishTree(store, WHOLE, ROOT);
    const incoming = new IncomingPacks(store, () => Promise.resolve(1000 * MIB));
    await incoming.beginScan();
    const fill = async (): Promise<void> => {
      for (let at = 0; at < 100; at += 1) await incoming.put(0, at * MIB, Buffer.alloc(MIB, at));
    };
    expect((await rejectedError(fill())).code).toBe('no_space');
    await incoming.close();
    expect(readdirSync(store.incomingDirectory)).toEqual([]);
    const again = objectsOf({ more: 'after it' });
    await publishTree(store, again.objects, again.root);
    expect(await store.read(blobOf('three'), OBJECT_KINDS.blob)).toEqual(Buffer.from('three'));
  });
});

test('the next start removes incomplete packs of a killed supervisor; an unreadable pack is reported by name', async () => {
  const home = temporaryHome();
  const stores = openStores(home);
  await stores.use(LINEAGE, async (store) => {
    await publishTree(store, WHOLE, ROOT);
    const incoming = new IncomingPacks(store, () => Promise.resolve(MIB));
    await incoming.beginScan();
    await incoming.put(0, 0, Buffer.from('half a pack'));
    // It is taken before it is written.
    await expect.poll(() => readdirSync(store.incomingDirectory).length).toBe(1);
  });
  const next = openStores(home);
  await next.clearIncoming();
  const [pack = ''] = readdirSync(join(home.lineage(LINEAGE), 'packs'));
  const path = join(home.lineage(LINEAGE), 'packs', pack);
  const bytes = readFileSync(path);
  bytes[bytes.length - 30] = (bytes[bytes.length - 30] ?? 0) ^ 1;
  writeFileSync(path, bytes);
  await next.use(LINEAGE, async (store) => {
    expect(existsSync(store.incomingDirectory)).toBe(false);
    expect(store.unreadablePacks.map(({ name }) => name)).toEqual([pack]);
    const error = await rejectedError(store.read(blobOf('one'), OBJECT_KINDS.blob));
    expect([error.code, error.why]).toEqual(['snapshot_damaged', expect.stringContaining(pack) as string]);
  });
});

test('a removal waits for all uses, also for those that began while it waited', async () => {
  const stores = openStores(temporaryHome());
  const order: string[] = [];
  const gates = new Map<string, () => void>();
  const using = (name: string, alone: boolean): Promise<void> =>
    stores[alone ? 'useExclusively' : 'use'](LINEAGE, async () => {
      order.push(`${name} in`);
      await new Promise<void>((resolve) => gates.set(name, resolve));
      order.push(`${name} out`);
    });
  const leave = async (name: string): Promise<void> => {
    await expect.poll(() => gates.has(name)).toBe(true);
    gates.get(name)?.();
  };
  const all = [using('a', false), using('b', false), using('alone', true), using('c', false)];
  await leave('a');
  await leave('b');
  await leave('c');
  await leave('alone');
  await Promise.all(all);
  expect(order).toEqual(['a in', 'b in', 'c in', 'a out', 'b out', 'c out', 'alone in', 'alone out']);
});

test('a lineage is removed completely unless it is in use again', async () => {
  const home = temporaryHome();
  const stores = openStores(home);
  await stores.use(LINEAGE, (store) => publishTree(store, WHOLE, ROOT));
  expect(await stores.remove(LINEAGE, () => false)).toBe(false);
  expect(await stores.lineages()).toEqual([LINEAGE]);
  expect(await stores.remove(LINEAGE, () => true)).toBe(true);
  expect(await stores.lineages()).toEqual([]);
  await stores.use(LINEAGE, (store) => {
    expect(store.packs).toEqual([]);
    return Promise.resolve();
  });
});

test('dropped packs are gone from disk, and the remaining ones can be read', async () => {
  const home = temporaryHome();
  const other = objectsOf({ more: 'stays' });
  await openStores(home).use(LINEAGE, async (store) => {
    await publishTree(store, WHOLE, ROOT);
    await publishTree(store, other.objects, other.root);
    const [first] = store.packs;
    await store.dropPacks(new Set([first?.name ?? '']));
    expect(readdirSync(store.packsDirectory)).toEqual(store.packs.map(({ name }) => name));
    expect((await rejectedError(store.read(blobOf('three'), OBJECT_KINDS.blob))).code).toBe(
      'snapshot_damaged',
    );
    expect(await store.read(blobOf('stays'), OBJECT_KINDS.blob)).toEqual(Buffer.from('stays'));
  });
});

test('a store of many packs keeps few of them open and can read all', async () => {
  const home = temporaryHome();
  const trees = Array.from({ length: 40 }, (_, at) => objectsOf({ [`f${at}`]: `content ${at}` }));
  const stores = openStores(home);
  const openPacks = (): number =>
    readdirSync('/proc/self/fd').filter((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`).startsWith(home.lineage(LINEAGE));
      } catch {
        return false; // the folder that is being read itself
      }
    }).length;
  await stores.use(LINEAGE, async (store) => {
    for (const { objects, root } of trees) await publishTree(store, objects, root);
    expect(store.packs.length).toBe(40);
    const read = await Promise.all(
      trees.map((_, at) => store.read(blobOf(`content ${at}`), OBJECT_KINDS.blob)),
    );
    expect(read.map((body) => body.toString())).toEqual(trees.map((_, at) => `content ${at}`));
    expect(openPacks()).toBeGreaterThan(0);
    expect(openPacks()).toBeLessThanOrEqual(16);
  });
  await stores.close();
  expect(openPacks()).toBe(0);
});
