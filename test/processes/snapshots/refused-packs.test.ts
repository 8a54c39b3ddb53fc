import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { FrameBuilder } from '../../../snapshot-format/frames.ts';
import { hashOf, OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import { PackWriter } from '../../../snapshot-format/pack-writer.ts';
import { IncomingPacks } from '../../../supervisor/snapshots/store/incoming-packs.ts';
import { temporaryHome } from '../../fixtures/store/temporary-home.ts';
import { blobOf, objectsOf } from '../../fixtures/snapshots/small-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';
import {
  LINEAGE,
  MIB,
  publishError,
  ROOT,
  sendPack,
  openStores,
  TREE,
  WHOLE,
} from '../../fixtures/snapshots/store-fixture.ts';

const PACKED = WHOLE.pack();

test.each([
  ['bytes after a gap', (one: IncomingPacks) => one.put(0, 5, Buffer.from('x')), /do not continue the pack/],
  [
    'bytes twice',
    async (one: IncomingPacks) => {
      await one.put(0, 0, Buffer.from('abc'));
      await one.put(0, 0, Buffer.from('abc'));
    },
    /do not continue the pack/,
  ],
  ['the end of an unknown pack', (one: IncomingPacks) => one.seal(3, 0, 0), /length differs/],
  [
    'a wrong length',
    async (one: IncomingPacks) => {
      await one.put(0, 0, PACKED);
      await one.seal(0, PACKED.length - 1, WHOLE.bodies.size);
    },
    /length differs/,
  ],
  ['a wrong number of objects', (one: IncomingPacks) => sendPack(one, 0, PACKED, 1), /number of objects/],
  [
    'bytes after the end',
    async (one: IncomingPacks) => {
      await sendPack(one, 0, PACKED, WHOLE.bodies.size);
      await one.put(0, PACKED.length, Buffer.from('x'));
    },
    /sealed pack/,
  ],
  [
    'too many packs',
    async (one: IncomingPacks) => {
      for (let pack = 0; pack < 100; pack += 1) await one.put(pack, 0, Buffer.from('x'));
    },
    /too many packs at once/,
  ],
  [
    'endless bytes',
    async (one: IncomingPacks) => {
      const bytes = Buffer.alloc(4 * MIB);
      for (let at = 0; at < 100; at += 1) await one.put(0, at * bytes.length, bytes);
    },
    /^no_space/,
  ],
  [
    'a bit flipped on the way',
    async (one: IncomingPacks) => {
      const bytes = Buffer.from(PACKED);
      bytes[20] = (bytes[20] ?? 0) ^ 4;
      await sendPack(one, 0, bytes, WHOLE.bodies.size);
    },
    /^snapshot_damaged: the bytes of a frame have changed/,
  ],
  [
    'bytes that are not a pack',
    (one: IncomingPacks) => sendPack(one, 0, Buffer.alloc(500, 'x'), 1),
    /^snapshot_damaged/,
  ],
  [
    'a hash that does not match its object',
    (one: IncomingPacks) => {
      const forged = new StoredObjects();
      forged.bodies.set(blobOf('one').toString('hex'), { kind: OBJECT_KINDS.blob, body: Buffer.from('two') });
      return sendPack(one, 0, forged.pack(), 1);
    },
    /^snapshot_damaged: the bytes of an object have changed/,
  ],
  [
    'an invalid tree',
    (one: IncomingPacks) => {
      const forged = new StoredObjects();
      forged.add(OBJECT_KINDS.tree, Buffer.from('no tree'));
      return sendPack(one, 0, forged.pack(), 1);
    },
    /^snapshot_damaged/,
  ],
  [
    'overlapping objects',
    (one: IncomingPacks) => {
      const builder = new FrameBuilder();
      const body = Buffer.alloc(1000, 'x');
      builder.add(hashOf(OBJECT_KINDS.blob, body), OBJECT_KINDS.blob, body);
      const frame = builder.finish();
      const half = {
        hash: hashOf(OBJECT_KINDS.blob, body.subarray(1)),
        kind: OBJECT_KINDS.blob,
        offset: 1,
        length: 999,
      };
      const writer = new PackWriter();
      const parts = writer.append({ ...frame, objects: [...frame.objects, half] });
      return sendPack(one, 0, Buffer.concat([...parts, writer.end()]), 2);
    },
    /share bytes/,
  ],
  [
    'a root that was not sent',
    async (one: IncomingPacks) => {
      await sendPack(one, 0, PACKED, WHOLE.bodies.size);
      await one.publish('ab'.repeat(32));
    },
    /root that does not exist/,
  ],
  [
    'a blob as a root',
    async (one: IncomingPacks) => {
      await sendPack(one, 0, PACKED, WHOLE.bodies.size);
      await one.publish(blobOf('one').toString('hex'));
    },
    /root that does not exist/,
  ],
  [
    'a tree without its contents',
    async (one: IncomingPacks) => {
      const { objects } = objectsOf(TREE);
      objects.bodies.delete(blobOf('three').toString('hex'));
      await sendPack(one, 0, objects.pack(), objects.bodies.size);
      await one.publish(ROOT);
    },
    /references a missing object/,
  ],
] as const)('a sidecar that sends %s is rejected, and nothing is published', async (_what, act, why) => {
  expect(await publishError(act)).toMatch(why);
});

test('a small pack is accepted before its check: publishing then fails, and nothing is published', async () => {
  const { objects, root } = objectsOf(TREE);
  const harmed = objects.pack();
  harmed[20] = (harmed[20] ?? 0) ^ 1;
  const said = await publishError(async (incoming) => {
    await incoming.put(0, 0, harmed);
    await incoming.sealWithDeferredCheck(0, harmed.length, objects.bodies.size);
    await incoming.publish(root);
  });
  expect(said).toMatch(/^snapshot_damaged: .*frame/);
});

test('a small pack is stored as received even if the caller reuses its buffer, also without compression', async () => {
  const { objects, root } = objectsOf(TREE);
  for (let at = 0; at < 40; at += 1) objects.add(OBJECT_KINDS.blob, randomBytes(10_000));
  const bytes = objects.pack();
  const sent = Buffer.from(bytes);
  await openStores(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new IncomingPacks(store, () => Promise.resolve(64 * MIB));
    await incoming.beginScan();
    const put = incoming.put(0, 0, sent).then(() => sent.fill(0));
    const taken = incoming.sealWithDeferredCheck(0, bytes.length, objects.bodies.size);
    await Promise.all([put, taken, incoming.publish(root)]);
    await incoming.close();
    expect(store.packs.map(({ path }) => readFileSync(path))).toEqual([bytes]);
  });
});
