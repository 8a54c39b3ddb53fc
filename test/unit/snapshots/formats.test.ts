import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { readContent, encodeBlock, parseBlock } from '../../../snapshot-format/content.ts';
import {
  type DirectoryEntry,
  encodeRoot,
  entriesOf,
  type FileEntry,
  parseRoot,
  parseTree,
  TreeSplitter,
  type TreeEntry,
} from '../../../snapshot-format/entries.ts';
import {
  encodeFrameTable,
  FrameBuilder,
  parseFrameTable,
  decompressFrame,
} from '../../../snapshot-format/frames.ts';
import { hashInPlace, hashOf, OBJECT_KINDS, SNAPSHOT_LIMITS } from '../../../snapshot-format/objects.ts';
import { PackIndex, readObject } from '../../../snapshot-format/pack-index.ts';
import {
  buildContentRef,
  EMPTY_CONTENT_REF,
  parseList,
  type Piece,
  piecesOf,
} from '../../../snapshot-format/content-ref.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { memoryFile, StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';
import { soakCount } from '../../setup/run-length.ts';

const { blob, tree, list } = OBJECT_KINDS;

function file(name: string | Buffer, more: Partial<FileEntry> = {}): FileEntry {
  return {
    type: 'file',
    name: Buffer.from(name),
    mode: 0o644,
    mtimeNs: 1_700_000_000_123_456_789n,
    xattrs: [],
    linkGroup: null,
    size: 0,
    sparse: false,
    content: EMPTY_CONTENT_REF,
    ...more,
  };
}

function cut(entries: readonly TreeEntry[]): Buffer[] {
  const bodies: Buffer[] = [];
  const cutter = new TreeSplitter((body) => bodies.push(body));
  for (const entry of entries) cutter.add(entry);
  cutter.end();
  return bodies;
}

async function collect<T>(from: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of from) all.push(one);
  return all;
}

function names(count: number): FileEntry[] {
  const sorted = Array.from({ length: count }, (_, index) => `file-${String(index).padStart(7, '0')}.txt`);
  return sorted.map((name) =>
    file(name, { size: 1, content: { depth: 0, items: [{ index: 0, hash: randomBytes(32) }] } }),
  );
}

test('hashing an object in place gives the same hash and leaves the bytes around it unchanged', () => {
  const memory = Buffer.from('before|the body|after');
  const whole = Buffer.from(memory);
  for (const [from, to] of [
    [7, 15],
    [0, 6],
    [16, memory.length],
    [3, 3],
  ] as const) {
    const body = memory.subarray(from, to);
    for (const kind of Object.values(OBJECT_KINDS)) {
      expect(hashInPlace(kind, memory, body)).toEqual(hashOf(kind, Buffer.from(body)));
      // Memory of which the body is no part is left alone.
      expect(hashInPlace(kind, Buffer.alloc(9), body)).toEqual(hashOf(kind, body));
      expect(hashInPlace(kind, null, body)).toEqual(hashOf(kind, body));
    }
    expect(memory).toEqual(whole);
  }
  // Nor is memory that has a part of it only.
  const body = memory.subarray(7, 15);
  expect(hashInPlace(OBJECT_KINDS.tree, memory.subarray(0, 12), body)).toEqual(
    hashOf(OBJECT_KINDS.tree, body),
  );
});

test('every kind of entry survives a round trip', () => {
  const group = randomBytes(16);
  const basics = { mode: 0o7777, mtimeNs: -1n, xattrs: [], linkGroup: group };
  const xattrs = [
    { name: Buffer.from('user.a'), value: Buffer.alloc(0) },
    { name: Buffer.from('user.b'), value: randomBytes(5000) },
  ];
  const far = 2n ** 62n * 1_000_000_000n;
  const entries: TreeEntry[] = [
    { ...basics, type: 'fifo', name: Buffer.from([0x01]) },
    { ...basics, type: 'socket', name: Buffer.from('b'), linkGroup: null, mtimeNs: far },
    { type: 'directory', name: Buffer.from('d'), mode: 0, mtimeNs: -far, xattrs, content: EMPTY_CONTENT_REF },
    file('f', {
      xattrs,
      linkGroup: group,
      size: 2 ** 40,
      sparse: true,
      content: { depth: 2, items: [{ index: 9, hash: randomBytes(32) }] },
    }),
    { ...basics, type: 'symlink', name: Buffer.from([0xff, 0xfe]), target: Buffer.from('../x\n') },
  ];
  expect(cut(entries).flatMap(parseTree)).toEqual(entries);
  const root: DirectoryEntry = {
    type: 'directory',
    name: Buffer.alloc(0),
    mode: 0o755,
    mtimeNs: 5n,
    xattrs,
    content: EMPTY_CONTENT_REF,
  };
  expect(parseRoot(encodeRoot(root))).toEqual(root);
});

test('a new name in a large directory changes only one or two pieces', () => {
  const many = names(20_000);
  const before = cut(many).map((body) => hashOf(tree, body).toString('hex'));
  const after = cut([...many.slice(0, 9000), file('file-0008999.txu'), ...many.slice(9000)]);
  expect(before.length).toBeGreaterThan(20);
  expect(after.filter((body) => !before.includes(hashOf(tree, body).toString('hex'))).length).toBeLessThan(3);
  for (const body of after) expect(body.length).toBeLessThanOrEqual(SNAPSHOT_LIMITS.treePieceBytes);
});

test('a directory of many pieces is read in order; one with swapped pieces is rejected', async () => {
  const objects = new StoredObjects();
  const many = names(12_000);
  const pieces = cut(many).map((body, index): Piece => ({ index, hash: objects.add(tree, body) }));
  const content = buildContentRef(pieces, objects.add);
  expect(content.depth).toBe(1);
  const read = await collect(entriesOf(objects, { content }));
  expect(read.map(({ name }) => name.toString())).toEqual(many.map(({ name }) => name.toString()));
  const swapped = pieces.map(({ index }, at): Piece => ({
    index,
    hash: (pieces[at ^ 1] ?? pieces[at])?.hash ?? Buffer.alloc(32),
  }));
  await expect(
    collect(entriesOf(objects, { content: buildContentRef(swapped, objects.add) })),
  ).rejects.toMatchObject({
    code: 'snapshot_damaged',
  });
});

test('sparse pieces below several levels of lists survive a round trip', async () => {
  const objects = new StoredObjects();
  const pieces = Array.from({ length: 140_000 }, (_, at): Piece => ({
    index: at * 1000 + (at % 7),
    hash: Buffer.alloc(32, at),
  }));
  const ref = buildContentRef(pieces, objects.add);
  expect(ref.depth).toBe(2);
  const read = await collect(piecesOf(objects, ref));
  expect(read.length).toBe(pieces.length);
  const wrong = read.findIndex(
    ({ index, hash }, at) => index !== pieces[at]?.index || !hash.equals(pieces[at].hash),
  );
  expect(wrong).toBe(-1);
  const body = objects.bodies.get(ref.items[0]?.hash.toString('hex') ?? '')?.body ?? Buffer.alloc(0);
  expect(() => parseList(body, 1)).toThrow(HoldfastError);
});

test('content is read piece by piece, and a file without one of its pieces is damaged', async () => {
  const objects = new StoredObjects();
  const bytes = randomBytes(2 ** 20 * 2 + 5);
  const items = [0, 1, 2].map((index) => ({
    index,
    hash: objects.add(blob, bytes.subarray(index * 2 ** 20, (index + 1) * 2 ** 20)),
  }));
  const whole = file('f', { size: bytes.length, content: { depth: 0, items } });
  const read = await collect(readContent(objects, whole));
  expect(Buffer.concat(read.map((extent) => extent.bytes)).equals(bytes)).toBe(true);
  for (const wrong of [
    { ...whole, content: { depth: 0, items: items.slice(1) } },
    { ...whole, content: { depth: 0, items: items.slice(0, 2) } },
    { ...whole, size: bytes.length + 1 },
    { ...whole, size: bytes.length - 1 },
    { ...whole, size: 2 ** 21 },
    { ...whole, sparse: true },
  ]) {
    await expect(collect(readContent(objects, wrong))).rejects.toMatchObject({ code: 'snapshot_damaged' });
  }
});

test('a block keeps its extents; overlapping extents and extents beyond its end are rejected', async () => {
  const extents = [
    { offset: 0, bytes: Buffer.from('one') },
    { offset: 4096, bytes: Buffer.from('two') },
  ];
  expect(parseBlock(encodeBlock(extents))).toEqual(extents);
  for (const wrong of [
    [],
    [{ offset: 0, bytes: Buffer.alloc(0) }],
    [{ offset: 2 ** 20 - 1, bytes: Buffer.alloc(2) }],
    [
      { offset: 0, bytes: Buffer.alloc(2) },
      { offset: 2, bytes: Buffer.alloc(2) },
    ],
  ]) {
    expect(() => parseBlock(encodeBlock(wrong))).toThrow(HoldfastError);
  }
  const objects = new StoredObjects();
  const hash = objects.add(OBJECT_KINDS.block, encodeBlock(extents));
  const sparse = file('s', {
    size: 2 ** 21,
    sparse: true,
    content: { depth: 0, items: [{ index: 1, hash }] },
  });
  expect((await collect(readContent(objects, sparse))).map(({ offset }) => offset)).toEqual([
    2 ** 20,
    2 ** 20 + 4096,
  ]);
  await expect(collect(readContent(objects, { ...sparse, size: 2 ** 20 + 4098 }))).rejects.toMatchObject({
    code: 'snapshot_damaged',
  });
});

test('objects of any size can be read back from a pack', async () => {
  const objects = new StoredObjects();
  objects.add(blob, Buffer.alloc(0));
  for (let size = 1; size < 100; size += 1) objects.add(size % 2 === 0 ? blob : list, randomBytes(size));
  objects.add(blob, Buffer.alloc(2 ** 20, 7));
  objects.add(blob, randomBytes(2 ** 20));
  const pack = memoryFile(objects.pack());
  const index = await PackIndex.read(pack);
  expect(index.objects).toBe(objects.bodies.size);
  for (const [hex, { kind, body }] of objects.bodies) {
    const found = index.find(Buffer.from(hex, 'hex'));
    if (found === null) throw new Error('an object is missing');
    expect((await readObject(pack, index, found, kind)).equals(body)).toBe(true);
    await expect(readObject(pack, index, found, tree)).rejects.toMatchObject({ code: 'snapshot_damaged' });
  }
  expect(index.find(randomBytes(32))).toBeNull();
  expect(index.objectsByFrame().flat().length).toBe(index.objects);
});

test('a frame that decompresses to more than it states is rejected', () => {
  const builder = new FrameBuilder();
  const zeros = Buffer.alloc(2 ** 20);
  builder.add(hashOf(blob, zeros), blob, zeros);
  const { encoding, stored, objects } = builder.finish();
  expect(stored.length).toBeLessThan(1000);
  for (const said of [0, 10, 2 ** 20 - 1, 2 ** 20 + 1, 2 ** 30]) {
    expect(() => decompressFrame(encoding, said, stored)).toThrow(HoldfastError);
  }
  expect(parseFrameTable(encodeFrameTable(objects), 2 ** 20)).toEqual(objects);
  expect(() => parseFrameTable(encodeFrameTable(objects), 2 ** 20 - 1)).toThrow(HoldfastError);
});

/** Only `snapshot_damaged`, never a crash, whatever the bytes are. */
async function survives(work: () => unknown): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'snapshot_damaged') throw error;
  }
}

test('every flipped bit of a pack is detected', async () => {
  const objects = new StoredObjects();
  for (let size = 0; size < 40; size += 1) objects.add(blob, Buffer.alloc(size * 50, `line ${size}\n`));
  objects.add(tree, Buffer.concat(cut([file('a'), file('b', { linkGroup: randomBytes(16) })])));
  const bytes = objects.pack();
  const random = new SeededRandom(seedOfRun('packs'));
  const readAll = async (pack: Buffer): Promise<void> => {
    const from = memoryFile(pack);
    const index = await PackIndex.read(from);
    for (const [hex, { kind }] of objects.bodies) {
      const found = index.find(Buffer.from(hex, 'hex'));
      if (found === null) throw new HoldfastError('snapshot_damaged', 'missing');
      await readObject(from, index, found, kind);
    }
  };
  await readAll(bytes);
  for (let round = 0; round < soakCount(60, 20_000); round += 1) {
    const changed = Buffer.from(bytes);
    const at = random.below(changed.length);
    changed[at] = (changed[at] ?? 0) ^ (1 << random.below(8));
    await expect(readAll(changed), `byte ${at}`).rejects.toMatchObject({ code: 'snapshot_damaged' });
    await expect(readAll(bytes.subarray(0, random.below(bytes.length)))).rejects.toThrow(HoldfastError);
  }
});

test('for any bytes the parsers return a result or fail with `snapshot_damaged`', async () => {
  const random = new SeededRandom(seedOfRun('parsers'));
  const target = { ...file('z'), type: 'symlink' as const, target: Buffer.from('there') };
  const samples = [
    ...cut([
      file('a', { xattrs: [{ name: Buffer.from('user.x'), value: Buffer.from('y') }] }),
      file('b', { linkGroup: randomBytes(16) }),
      target,
    ]),
    encodeRoot({
      type: 'directory',
      name: Buffer.alloc(0),
      mode: 0o755,
      mtimeNs: 1n,
      xattrs: [],
      content: EMPTY_CONTENT_REF,
    }),
    encodeBlock([{ offset: 5, bytes: Buffer.from('data') }]),
    Buffer.from([1, 2, 0, ...randomBytes(32), 5, ...randomBytes(32)]),
  ];
  for (let round = 0; round < soakCount(600, 300_000); round += 1) {
    const body = Buffer.from(samples[random.below(samples.length)] ?? Buffer.alloc(0));
    for (let changes = random.below(4); changes >= 0; changes -= 1)
      body[random.below(body.length)] = random.below(256);
    const shortened = body.subarray(0, random.below(body.length + 1));
    for (const bytes of [body, shortened]) {
      await survives(() => parseTree(bytes));
      await survives(() => parseRoot(bytes));
      await survives(() => parseList(bytes, 1));
      await survives(() => parseBlock(bytes));
      await survives(() => parseFrameTable(bytes, 1000));
    }
  }
});
