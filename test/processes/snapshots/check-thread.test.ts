import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { OBJECT_KINDS, parseHash } from '../../../snapshot-format/objects.ts';
import { CheckThread } from '../../../supervisor/snapshots/store/check-thread.ts';
import { IncomingPacks } from '../../../supervisor/snapshots/store/incoming-packs.ts';
import { rejectedError, temporaryHome } from '../../fixtures/store/temporary-home.ts';
import { objectsOf } from '../../fixtures/snapshots/small-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';
import {
  MIB,
  LINEAGE,
  TREE,
  openStores,
  incompressibleBytes,
  publishError,
} from '../../fixtures/snapshots/store-fixture.ts';

/** Takes some 3 MiB in a pack, so that a thread checks it. */
function largeObjects(seed: number): { objects: StoredObjects; root: string } {
  const names = Array.from({ length: 6 }, (_, file) => file + 6 * seed);
  return objectsOf(
    Object.fromEntries(names.map((file) => [`${file}`, incompressibleBytes(file).toString('base64')])),
  );
}

test('packs are published after the check thread is done, together with the packs that arrived meanwhile', async () => {
  const large = largeObjects(0);
  const { objects, root } = objectsOf({ ...TREE, 'another.txt': 'small' });
  await openStores(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(64 * MIB));
    await incoming.beginScan();
    const bytes = large.objects.pack();
    const small = objects.pack();
    const order: string[] = [];
    await Promise.all([
      incoming.put(0, 0, bytes),
      incoming.seal(0, bytes.length, large.objects.bodies.size).then(() => order.push('sealed')),
      incoming.put(1, 0, small).then(() => order.push('put')),
      incoming.seal(1, small.length, objects.bodies.size),
      incoming.publish(root).then(() => order.push('published')),
    ]);
    expect(order).toEqual(['put', 'sealed', 'published']);
    await incoming.close();
    expect(store.packs.map(({ file }) => file.size)).toEqual([bytes.length, small.length]);
    for (const [hex, { kind, body }] of large.objects.bodies)
      expect(await store.read(parseHash(hex), kind)).toEqual(body);
  });
});

test('checking packs in a thread does not block the supervisor', async () => {
  const large = largeObjects(1);
  await openStores(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(64 * MIB));
    await incoming.beginScan();
    const bytes = large.objects.pack();
    await incoming.put(0, 0, bytes);
    const used = process.cpuUsage();
    const mine = process.threadCpuUsage();
    await incoming.seal(0, bytes.length, large.objects.bodies.size);
    const all = process.cpuUsage(used);
    const here = process.threadCpuUsage(mine);
    // What it takes is used elsewhere.
    expect(here.user).toBeLessThan(all.user / 2);
    await incoming.close();
  });
});

test.each([
  ['a flipped bit in a large pack', (bytes: Buffer) => void (bytes[MIB] = (bytes[MIB] ?? 0) ^ 4), /frame/],
  [
    'a large pack with a truncated index',
    (bytes: Buffer) => void bytes.fill(0, bytes.length - 8),
    /wrong magic bytes/,
  ],
])(
  '%s is rejected by the thread, whatever follows it, and nothing is published',
  async (_what, harm, why) => {
    const large = largeObjects(2);
    const { objects, root } = objectsOf(TREE);
    const said = await publishError(async (incoming) => {
      const bytes = large.objects.pack();
      harm(bytes);
      await incoming.put(0, 0, bytes);
      const sealed = rejectedError(incoming.seal(0, bytes.length, large.objects.bodies.size));
      const small = objects.pack();
      const put = incoming.put(1, 0, small);
      const more = incoming.seal(1, small.length, objects.bodies.size).catch(() => undefined);
      await put;
      expect((await rejectedError(incoming.publish(root))).code).toBe('snapshot_damaged');
      await more;
      throw await sealed;
    });
    expect(said).toMatch(/^snapshot_damaged/);
    expect(said).toMatch(why);
  },
);

test('when the check thread exits, all waiting calls fail and nothing is published', async () => {
  const home = temporaryHome();
  const large = largeObjects(3);
  const program = join(home.store, '..', 'ends.cjs');
  writeFileSync(program, `require('node:worker_threads').parentPort.on('message', () => process.exit(3));`);
  await openStores(home).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(64 * MIB), new CheckThread(program));
    await incoming.beginScan();
    const bytes = large.objects.pack();
    await incoming.put(0, 0, bytes);
    const error = await rejectedError(incoming.seal(0, bytes.length, large.objects.bodies.size));
    expect(error).toMatchObject({ code: 'internal', why: 'its thread ended' });
    expect((await rejectedError(incoming.publish(large.root))).code).toBe('internal');
    await incoming.close();
    expect(store.packs).toEqual([]);
    expect(readdirSync(store.incomingDirectory)).toEqual([]);
  });
});

test('the thread also checks a small pack that decompresses to much', async () => {
  const home = temporaryHome();
  const program = join(home.store, '..', 'ends.cjs');
  writeFileSync(program, `require('node:worker_threads').parentPort.on('message', () => process.exit(3));`);
  const objects = new StoredObjects();
  for (let at = 0; at < 20; at += 1) objects.add(OBJECT_KINDS.blob, Buffer.alloc(MIB, at));
  const bytes = objects.pack();
  expect(bytes.length).toBeLessThan(MIB / 8);
  await openStores(home).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(64 * MIB), new CheckThread(program));
    await incoming.beginScan();
    await incoming.put(0, 0, bytes);
    const error = await rejectedError(incoming.seal(0, bytes.length, objects.bodies.size));
    expect(error).toMatchObject({ code: 'internal', why: 'its thread ended' });
    await incoming.close();
  });
});

test('closing during a check ends at once and leaves no files', async () => {
  const home = temporaryHome();
  const large = largeObjects(4);
  const program = join(home.store, '..', 'hangs.cjs');
  writeFileSync(program, `require('node:worker_threads').parentPort.on('message', () => { for (;;); });`);
  await openStores(home).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(64 * MIB), new CheckThread(program));
    await incoming.beginScan();
    const bytes = large.objects.pack();
    await incoming.put(0, 0, bytes);
    const sealed = rejectedError(incoming.seal(0, bytes.length, large.objects.bodies.size));
    await incoming.put(1, 0, Buffer.from('more'));
    await incoming.close();
    expect((await sealed).code).toBe('cancelled');
    expect(readdirSync(store.incomingDirectory)).toEqual([]);
  });
});
