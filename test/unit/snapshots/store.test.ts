import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { entriesOf, parseRoot } from '../../../protocol/snapshots/entries.ts';
import { FrameBuilder, parseRecords, unpackFrame } from '../../../protocol/snapshots/frames.ts';
import { type Hash, hashOf, OBJECT_KINDS, parseHash } from '../../../protocol/snapshots/objects.ts';
import { PackWriter } from '../../../protocol/snapshots/pack-writer.ts';
import { CheckThread } from '../../../supervisor/snapshots/store/check-thread.ts';
import { Incoming } from '../../../supervisor/snapshots/store/incoming.ts';
import type { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { LineageStores } from '../../../supervisor/snapshots/store/stores.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { Snapshots, type SnapshotRow } from '../../../supervisor/store/snapshots.ts';
import { errorOf, sessionId, smallDisk, temporaryDatabase, temporaryHome } from '../store/temporary-home.ts';
import { blobOf, objectsOf } from './small-tree.ts';
import { StoredObjects } from './stored-objects.ts';

const MIB = 2 ** 20;
const LINEAGE = sessionId(0);
const OTHER = sessionId(1);
const opened: LineageStores[] = [];

afterEach(async () => {
  for (const stores of opened.splice(0)) await stores.close();
});

function storesOf(home: Home): LineageStores {
  const stores = new LineageStores(home);
  opened.push(stores);
  return stores;
}

/** Sends one pack as a sidecar does, in pieces. */
async function send(incoming: Incoming, pack: number, bytes: Buffer, objects: number): Promise<void> {
  const half = Math.floor(bytes.length / 2);
  await Promise.all([
    incoming.put(pack, 0, bytes.subarray(0, half)),
    incoming.put(pack, half, bytes.subarray(half)),
  ]);
  await incoming.seal(pack, bytes.length, objects);
}

async function take(store: LineageStore, objects: StoredObjects, root: string): Promise<number> {
  const incoming = new Incoming(store, () => Promise.resolve(64 * MIB));
  try {
    await incoming.beginScan();
    await send(incoming, 0, objects.pack(), objects.bodies.size);
    await incoming.publish(root);
    return incoming.published;
  } finally {
    await incoming.close();
  }
}

/** What a sidecar is told when it does this, and that nothing of it is in the store afterwards. */
async function refusal(act: (incoming: Incoming) => Promise<unknown>): Promise<string> {
  const home = temporaryHome();
  return await storesOf(home).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(64 * MIB));
    await incoming.beginScan();
    const error = await errorOf(act(incoming));
    // Whatever it says from now on is refused as well.
    expect((await errorOf(incoming.publish('0'.repeat(64)))).code).toBe(error.code);
    await incoming.close();
    expect(store.packs).toEqual([]);
    expect(existsSync(store.packsDirectory)).toBe(false);
    expect(existsSync(store.incomingDirectory) ? readdirSync(store.incomingDirectory) : []).toEqual([]);
    return `${error.code}: ${error.why ?? ''}`;
  });
}

const TREE = { 'a.txt': 'one', empty: '', folder: { 'b.txt': 'two', deep: { 'c.txt': 'three' } } };

test('what is published is there, whole, in the next supervisor too', async () => {
  const home = temporaryHome();
  const { objects, root } = objectsOf(TREE);
  const bytes = await storesOf(home).use(LINEAGE, (store) => take(store, objects, root));
  expect(bytes).toBe(objects.pack().length);
  await storesOf(home).use(LINEAGE, async (store) => {
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

test('no object of one lineage is in another', async () => {
  const stores = storesOf(temporaryHome());
  const { objects, root } = objectsOf(TREE);
  await stores.use(LINEAGE, (store) => take(store, objects, root));
  await stores.use(OTHER, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(MIB));
    expect(await incoming.have(blobOf('one'))).toEqual(Buffer.from([0]));
    await incoming.close();
    expect((await errorOf(store.read(blobOf('one'), OBJECT_KINDS.blob))).code).toBe('snapshot_damaged');
    expect((await errorOf(store.framesWith([blobOf('one')]))).code).toBe('snapshot_damaged');
  });
});

test('have tells object by object, of what is sealed and of what is stored', async () => {
  const stores = storesOf(temporaryHome());
  const first = objectsOf({ a: 'stored' });
  const second = objectsOf({ b: 'sealed' });
  await stores.use(LINEAGE, async (store) => {
    await take(store, first.objects, first.root);
    const incoming = new Incoming(store, () => Promise.resolve(MIB));
    await incoming.beginScan();
    const asked = [...Array.from({ length: 9 }, () => blobOf('never')), blobOf('stored'), blobOf('sealed')];
    expect(await incoming.have(Buffer.concat(asked))).toEqual(Buffer.from([0, 0b010]));
    await send(incoming, 0, second.objects.pack(), second.objects.bodies.size);
    expect(await incoming.have(Buffer.concat(asked))).toEqual(Buffer.from([0, 0b110]));
    await incoming.close();
  });
});

test('what was found damaged is had no more, stored anew, and read from its other copy, by the next supervisor too', async () => {
  const home = temporaryHome();
  const { objects, root } = objectsOf(TREE);
  const hashes = [...objects.bodies.keys()].map(parseHash);
  const have = async (store: LineageStore): Promise<Buffer> => {
    const incoming = new Incoming(store, () => Promise.resolve(MIB));
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
  await storesOf(home).use(LINEAGE, async (store) => {
    await take(store, objects, root);
    expect(await have(store)).toEqual(all);
    expect(store.damage).toBeNull();
    flip(store.packs[0]?.path ?? '');
    expect((await errorOf(store.framesWith(hashes))).code).toBe('snapshot_damaged');
    expect(store.damage).toBe(store.packs[0]?.name);
    expect(await have(store)).toEqual(none);
  });
  await storesOf(home).use(LINEAGE, async (store) => {
    const [bad] = store.packs;
    expect([store.damage, await have(store)]).toEqual([bad?.name, none]);
    await take(store, objects, root);
    expect(await have(store)).toEqual(all);
    for (const [hex, { kind, body }] of objects.bodies)
      expect(await store.read(parseHash(hex), kind)).toEqual(body);
    // With the copy that was sound gone, too.
    flip(store.packs[1]?.path ?? '');
    expect((await errorOf(store.framesWith(hashes))).code).toBe('snapshot_damaged');
    expect(store.damage?.split(',')).toHaveLength(2);
  });
  await storesOf(home).use(LINEAGE, async (store) => {
    await store.drop(new Set(store.packs.map(({ name }) => name)));
    expect(store.damage).toBeNull();
  });
  await storesOf(home).use(LINEAGE, (store) => {
    expect(store.damage).toBeNull();
    return Promise.resolve();
  });
});

test('a copy that turns out to be damaged while it is read is read from another pack', async () => {
  const home = temporaryHome();
  const { objects, root } = objectsOf(TREE);
  const stores = storesOf(home);
  await stores.use(LINEAGE, async (store) => {
    await take(store, objects, root);
    await take(store, objects, root);
    const newest = store.packs[1];
    const bytes = readFileSync(newest?.path ?? '');
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    writeFileSync(newest?.path ?? '', bytes);
    const { frames } = await store.framesWith([blobOf('one')]);
    expect(frames).toHaveLength(1);
    expect(store.damage).toBe(newest?.name);
    for (const [hex, { kind, body }] of objects.bodies)
      expect(await store.read(parseHash(hex), kind)).toEqual(body);
  });
});

test('a second scan of one snapshot numbers its packs anew and goes on from what the first sent', async () => {
  const { objects: blobs } = objectsOf({ a: 'content' });
  const { objects, root } = objectsOf({ a: 'content', b: 'more' });
  for (const hash of blobs.bodies.keys()) objects.bodies.delete(hash);
  await storesOf(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(MIB));
    await incoming.beginScan();
    await send(incoming, 0, blobs.pack(), blobs.bodies.size);
    await incoming.put(1, 0, Buffer.from('never sealed'));
    await incoming.beginScan();
    await send(incoming, 0, objects.pack(), objects.bodies.size);
    await incoming.publish(root);
    expect(incoming.published).toBe(blobs.pack().length + objects.pack().length);
    await incoming.close();
    expect(store.packs.length).toBe(2);
    expect(await store.read(blobOf('content'), OBJECT_KINDS.blob)).toEqual(Buffer.from('content'));
  });
});

test('frames go out as they are stored, as many as one message has room for, the first one always', async () => {
  const objects = new StoredObjects();
  const hashes = Array.from({ length: 12 }, (_, at) =>
    objects.add(OBJECT_KINDS.blob, Buffer.alloc(MIB, `${at} `).fill(noise(at), 0, MIB / 2)),
  );
  const { objects: tree, root } = objectsOf(TREE);
  await storesOf(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(64 * MIB));
    await incoming.beginScan();
    await send(incoming, 0, objects.pack(), objects.bodies.size);
    await send(incoming, 1, tree.pack(), tree.bodies.size);
    await incoming.publish(root);
    await incoming.close();
    let left: Hash[] = [...hashes, parseHash(root)];
    let answers = 0;
    while (left.length > 0) {
      const { frames, bytes } = await store.framesWith(left);
      expect(bytes.length).toBeLessThanOrEqual(4 * MIB);
      const came = new Set<string>();
      let at = 0;
      for (const { objects: count, stored, raw, encoding } of frames) {
        const records = parseRecords(bytes.subarray(at, at + count * 41), raw);
        at += count * 41;
        const body = unpackFrame(encoding, raw, bytes.subarray(at, at + stored));
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

/** Bytes that zstd makes no smaller. */
function noise(seed: number): Buffer {
  const out = Buffer.alloc(MIB / 2);
  for (let at = 0; at < out.length; at += 32)
    hashOf(OBJECT_KINDS.blob, Buffer.from(`${seed} ${at}`)).copy(out, at);
  return out;
}

const { objects: WHOLE, root: ROOT } = objectsOf(TREE);
const PACKED = WHOLE.pack();

test.each([
  ['bytes with a gap', (one: Incoming) => one.put(0, 5, Buffer.from('x')), /do not follow/],
  [
    'bytes twice',
    async (one: Incoming) => {
      await one.put(0, 0, Buffer.from('abc'));
      await one.put(0, 0, Buffer.from('abc'));
    },
    /do not follow/,
  ],
  ['an end of what never began', (one: Incoming) => one.seal(3, 0, 0), /another length/],
  [
    'a length that is not the one it was',
    async (one: Incoming) => {
      await one.put(0, 0, PACKED);
      await one.seal(0, PACKED.length - 1, WHOLE.bodies.size);
    },
    /another length/,
  ],
  ['another number of objects', (one: Incoming) => send(one, 0, PACKED, 1), /number of objects/],
  [
    'more after the end',
    async (one: Incoming) => {
      await send(one, 0, PACKED, WHOLE.bodies.size);
      await one.put(0, PACKED.length, Buffer.from('x'));
    },
    /has ended/,
  ],
  [
    'ever more packs',
    async (one: Incoming) => {
      for (let pack = 0; pack < 100; pack += 1) await one.put(pack, 0, Buffer.from('x'));
    },
    /more packs at once/,
  ],
  [
    'bytes without an end',
    async (one: Incoming) => {
      const bytes = Buffer.alloc(4 * MIB);
      for (let at = 0; at < 100; at += 1) await one.put(0, at * bytes.length, bytes);
    },
    /^no_space/,
  ],
  [
    'a bit that changed on the way',
    async (one: Incoming) => {
      const bytes = Buffer.from(PACKED);
      bytes[20] = (bytes[20] ?? 0) ^ 4;
      await send(one, 0, bytes, WHOLE.bodies.size);
    },
    /^snapshot_damaged: the bytes of a frame have changed/,
  ],
  ['what is no pack', (one: Incoming) => send(one, 0, Buffer.alloc(500, 'x'), 1), /^snapshot_damaged/],
  [
    'a hash that is not its object’s',
    (one: Incoming) => {
      const forged = new StoredObjects();
      forged.bodies.set(blobOf('one').toString('hex'), { kind: OBJECT_KINDS.blob, body: Buffer.from('two') });
      return send(one, 0, forged.pack(), 1);
    },
    /^snapshot_damaged: the bytes of an object have changed/,
  ],
  [
    'a tree that is none',
    (one: Incoming) => {
      const forged = new StoredObjects();
      forged.add(OBJECT_KINDS.tree, Buffer.from('no tree'));
      return send(one, 0, forged.pack(), 1);
    },
    /^snapshot_damaged/,
  ],
  [
    'objects over each other',
    (one: Incoming) => {
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
      return send(one, 0, Buffer.concat([...parts, writer.end()]), 2);
    },
    /share bytes/,
  ],
  [
    'a root that never came',
    async (one: Incoming) => {
      await send(one, 0, PACKED, WHOLE.bodies.size);
      await one.publish('ab'.repeat(32));
    },
    /root that is not there/,
  ],
  [
    'a blob as a root',
    async (one: Incoming) => {
      await send(one, 0, PACKED, WHOLE.bodies.size);
      await one.publish(blobOf('one').toString('hex'));
    },
    /root that is not there/,
  ],
  [
    'a tree without what is in it',
    async (one: Incoming) => {
      const { objects } = objectsOf(TREE);
      objects.bodies.delete(blobOf('three').toString('hex'));
      await send(one, 0, objects.pack(), objects.bodies.size);
      await one.publish(ROOT);
    },
    /names an object which is not there/,
  ],
] as const)('a sidecar that sends %s is refused, and nothing is published', async (_what, act, why) => {
  expect(await refusal(act)).toMatch(why);
});

/** Takes some 3 MiB in a pack, so that a thread checks it. */
function largeObjects(seed: number): { objects: StoredObjects; root: string } {
  const names = Array.from({ length: 6 }, (_, file) => file + 6 * seed);
  return objectsOf(Object.fromEntries(names.map((file) => [`${file}`, noise(file).toString('base64')])));
}

test('packs that a thread checks are published when it is done, with all that comes meanwhile', async () => {
  const large = largeObjects(0);
  const { objects, root } = objectsOf({ ...TREE, 'another.txt': 'small' });
  await storesOf(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(64 * MIB));
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

test('a thread that checks keeps nobody else waiting', async () => {
  const large = largeObjects(1);
  await storesOf(temporaryHome()).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(64 * MIB));
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
  [
    'a bit that changed in a large pack',
    (bytes: Buffer) => void (bytes[MIB] = (bytes[MIB] ?? 0) ^ 4),
    /frame/,
  ],
  [
    'a large pack whose index was cut off',
    (bytes: Buffer) => void bytes.fill(0, bytes.length - 8),
    /begin and end/,
  ],
])(
  '%s is refused by the thread, whatever comes after it, and nothing is published',
  async (_what, harm, why) => {
    const large = largeObjects(2);
    const { objects, root } = objectsOf(TREE);
    const said = await refusal(async (incoming) => {
      const bytes = large.objects.pack();
      harm(bytes);
      await incoming.put(0, 0, bytes);
      const sealed = errorOf(incoming.seal(0, bytes.length, large.objects.bodies.size));
      const small = objects.pack();
      const put = incoming.put(1, 0, small);
      const more = incoming.seal(1, small.length, objects.bodies.size).catch(() => undefined);
      await put;
      expect((await errorOf(incoming.publish(root))).code).toBe('snapshot_damaged');
      await more;
      throw await sealed;
    });
    expect(said).toMatch(/^snapshot_damaged/);
    expect(said).toMatch(why);
  },
);

test('where the thread that checks ends, whoever waits is told, and nothing is published', async () => {
  const home = temporaryHome();
  const large = largeObjects(3);
  const program = join(home.store, '..', 'ends.cjs');
  writeFileSync(program, `require('node:worker_threads').parentPort.on('message', () => process.exit(3));`);
  await storesOf(home).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(64 * MIB), new CheckThread(program));
    await incoming.beginScan();
    const bytes = large.objects.pack();
    await incoming.put(0, 0, bytes);
    const error = await errorOf(incoming.seal(0, bytes.length, large.objects.bodies.size));
    expect(error).toMatchObject({ code: 'internal', why: 'its thread ended' });
    expect((await errorOf(incoming.publish(large.root))).code).toBe('internal');
    await incoming.close();
    expect(store.packs).toEqual([]);
    expect(readdirSync(store.incomingDirectory)).toEqual([]);
  });
});

test('closed in the middle of a check, it ends at once and leaves nothing', async () => {
  const home = temporaryHome();
  const large = largeObjects(4);
  const program = join(home.store, '..', 'hangs.cjs');
  writeFileSync(program, `require('node:worker_threads').parentPort.on('message', () => { for (;;); });`);
  await storesOf(home).use(LINEAGE, async (store) => {
    const incoming = new Incoming(store, () => Promise.resolve(64 * MIB), new CheckThread(program));
    await incoming.beginScan();
    const bytes = large.objects.pack();
    await incoming.put(0, 0, bytes);
    const sealed = errorOf(incoming.seal(0, bytes.length, large.objects.bodies.size));
    await incoming.put(1, 0, Buffer.from('more'));
    await incoming.close();
    expect((await sealed).code).toBe('cancelled');
    expect(readdirSync(store.incomingDirectory)).toEqual([]);
  });
});

test('a full disk is told as such, leaves what was there readable, and frees what was begun', async () => {
  const disk = smallDisk();
  if (disk === null) return;
  const home = Home.open(join(disk, 'home'));
  await storesOf(home).use(LINEAGE, async (store) => {
    await take(store, WHOLE, ROOT);
    const incoming = new Incoming(store, () => Promise.resolve(1000 * MIB));
    await incoming.beginScan();
    const fill = async (): Promise<void> => {
      for (let at = 0; at < 100; at += 1) await incoming.put(0, at * MIB, Buffer.alloc(MIB, at));
    };
    expect((await errorOf(fill())).code).toBe('no_space');
    await incoming.close();
    expect(readdirSync(store.incomingDirectory)).toEqual([]);
    const again = objectsOf({ more: 'after it' });
    await take(store, again.objects, again.root);
    expect(await store.read(blobOf('three'), OBJECT_KINDS.blob)).toEqual(Buffer.from('three'));
  });
});

test('what a killed supervisor had begun to receive goes at the next start; a broken pack is named', async () => {
  const home = temporaryHome();
  const stores = storesOf(home);
  await stores.use(LINEAGE, async (store) => {
    await take(store, WHOLE, ROOT);
    const incoming = new Incoming(store, () => Promise.resolve(MIB));
    await incoming.beginScan();
    await incoming.put(0, 0, Buffer.from('half a pack'));
    expect(readdirSync(store.incomingDirectory).length).toBe(1);
  });
  const next = storesOf(home);
  await next.clearIncoming();
  const [pack = ''] = readdirSync(join(home.lineage(LINEAGE), 'packs'));
  const path = join(home.lineage(LINEAGE), 'packs', pack);
  const bytes = readFileSync(path);
  bytes[bytes.length - 30] = (bytes[bytes.length - 30] ?? 0) ^ 1;
  writeFileSync(path, bytes);
  await next.use(LINEAGE, async (store) => {
    expect(existsSync(store.incomingDirectory)).toBe(false);
    expect(store.broken.map(({ name }) => name)).toEqual([pack]);
    const error = await errorOf(store.read(blobOf('one'), OBJECT_KINDS.blob));
    expect([error.code, error.why]).toEqual(['snapshot_damaged', expect.stringContaining(pack) as string]);
  });
});

test('who takes away waits for all who read, and they for it; first come, first served', async () => {
  const stores = storesOf(temporaryHome());
  const order: string[] = [];
  const gates = new Map<string, () => void>();
  const using = (name: string, alone: boolean): Promise<void> =>
    stores[alone ? 'useAlone' : 'use'](LINEAGE, async () => {
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
  await leave('alone');
  await leave('c');
  await Promise.all(all);
  expect(order).toEqual(['a in', 'b in', 'a out', 'b out', 'alone in', 'alone out', 'c in', 'c out']);
});

test('a lineage is removed as a whole, unless somebody needs it again by then', async () => {
  const home = temporaryHome();
  const stores = storesOf(home);
  await stores.use(LINEAGE, (store) => take(store, WHOLE, ROOT));
  expect(await stores.remove(LINEAGE, () => false)).toBe(false);
  expect(await stores.lineages()).toEqual([LINEAGE]);
  expect(await stores.remove(LINEAGE, () => true)).toBe(true);
  expect(await stores.lineages()).toEqual([]);
  await stores.use(LINEAGE, (store) => {
    expect(store.packs).toEqual([]);
    return Promise.resolve();
  });
});

test('packs that are dropped are gone from the disk, and what is left can be read', async () => {
  const home = temporaryHome();
  const other = objectsOf({ more: 'stays' });
  await storesOf(home).use(LINEAGE, async (store) => {
    await take(store, WHOLE, ROOT);
    await take(store, other.objects, other.root);
    const [first] = store.packs;
    await store.drop(new Set([first?.name ?? '']));
    expect(readdirSync(store.packsDirectory)).toEqual(store.packs.map(({ name }) => name));
    expect((await errorOf(store.read(blobOf('three'), OBJECT_KINDS.blob))).code).toBe('snapshot_damaged');
    expect(await store.read(blobOf('stays'), OBJECT_KINDS.blob)).toEqual(Buffer.from('stays'));
  });
});

test('rows: the newest first in pages, by reason, and what may be changed', () => {
  const snapshots = new Snapshots(temporaryDatabase());
  const row = (n: number, change: Partial<SnapshotRow> = {}): SnapshotRow => ({
    id: `snp-${'abcdefgh'.charAt(n).repeat(16)}`,
    sessionId: LINEAGE,
    lineage: LINEAGE,
    createdAt: 1000 + n,
    reason: 'manual',
    label: null,
    pinned: false,
    base: null,
    root: ROOT,
    files: 4,
    directories: 2,
    bytes: 11,
    changedFiles: 4,
    changedBytes: 11,
    newBytes: 500,
    scanMs: 1.5,
    frozenMs: 0,
    eventSeq: n,
    ...change,
  });
  const rows = [row(0), row(1, { reason: 'before-turn' }), row(2, { pinned: true, label: 'good' }), row(3)];
  for (const one of rows) snapshots.insert(one);
  snapshots.insert(row(4, { sessionId: OTHER, lineage: OTHER }));
  const first = snapshots.list(LINEAGE, { limit: 3 });
  expect(first.rows).toEqual([rows[3], rows[2], rows[1]]);
  expect(snapshots.list(LINEAGE, { limit: 3, cursor: first.nextCursor ?? '' })).toEqual({
    rows: [rows[0]],
    nextCursor: null,
  });
  expect(snapshots.list(LINEAGE, { reason: 'before-turn' }).rows).toEqual([rows[1]]);
  expect(() => snapshots.list(LINEAGE, { cursor: 'x' })).toThrow(/cursor/);
  expect(snapshots.newest(LINEAGE)).toEqual(rows[3]);
  expect(snapshots.update(row(0).id, { label: 'kept', pinned: true })).toEqual(
    row(0, { label: 'kept', pinned: true }),
  );
  expect(snapshots.lineages().sort()).toEqual([LINEAGE, OTHER].sort());
  snapshots.remove(row(0).id);
  expect(() => snapshots.existing(row(0).id)).toThrow(/no snapshot/);
  expect(snapshots.ofLineage(LINEAGE)).toEqual(rows.slice(1));
});

test('a store of many packs keeps few of them open, and reads all of them', async () => {
  const home = temporaryHome();
  const trees = Array.from({ length: 40 }, (_, at) => objectsOf({ [`f${at}`]: `content ${at}` }));
  const stores = storesOf(home);
  const openPacks = (): number =>
    readdirSync('/proc/self/fd').filter((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`).startsWith(home.lineage(LINEAGE));
      } catch {
        return false; // the folder that is being read itself
      }
    }).length;
  await stores.use(LINEAGE, async (store) => {
    for (const { objects, root } of trees) await take(store, objects, root);
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
