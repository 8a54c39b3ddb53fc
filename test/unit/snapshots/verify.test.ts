import {
  appendFileSync,
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Hash } from '../../../snapshot-format/objects.ts';
import { OBJECT_KINDS, type ObjectKindName } from '../../../snapshot-format/objects.ts';
import { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { LineageStores } from '../../../supervisor/snapshots/store/lineage-stores.ts';
import { type VerifyResult, verifyTree } from '../../../supervisor/snapshots/verify/verify-tree.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { sessionId, temporaryHome } from '../../fixtures/store/temporary-home.ts';
import { folder, type ModelTree, plainFile } from '../../fixtures/snapshots/model-tree.ts';
import { openStores, publishModelTree } from '../../fixtures/snapshots/publish-tree.ts';
import { soakCount } from '../../setup/run-length.ts';

const LINEAGE = sessionId(0);
const MIB = 2 ** 20;

/** A tree with every kind of object in it. */
function everyKind(): ModelTree {
  const large = Buffer.alloc(9 * MIB + 5);
  for (let at = 0; at < large.length; at += 4096) large.writeUInt32LE(at, at);
  const sparse = Buffer.alloc(3 * MIB);
  sparse.write('in the middle', MIB + 100);
  return new Map([
    ['', folder()],
    ['small', plainFile('small\n')],
    ['twin', plainFile('small\n')],
    ['large', plainFile(large)],
    ['sparse', plainFile(sparse, { sparse: true })],
    ['deep', folder()],
    ['deep/er', folder()],
    ['deep/er/still', plainFile('still\n')],
    ['link', plainFile('small', { type: 'symlink' })],
  ]);
}

/** Opens the store again, as a check does. */
async function verified(home: Home, root: Hash): Promise<VerifyResult> {
  const store = await LineageStore.open(home.lineage(LINEAGE));
  try {
    return await verifyTree(store, root);
  } finally {
    await store.close();
  }
}

function flip(path: string, at: number, bit: number): void {
  const file = openSync(path, 'r+');
  const byte = Buffer.alloc(1);
  readSync(file, byte, 0, 1, at);
  byte[0] = (byte[0] ?? 0) ^ bit;
  writeSync(file, byte, 0, 1, at);
  closeSync(file);
}

interface Taken {
  readonly home: Home;
  readonly root: Hash;
  readonly paths: string[];
}

async function taken(perFrame: number, home = temporaryHome()): Promise<Taken> {
  const stores = new LineageStores(home);
  try {
    return await stores.use(LINEAGE, async (store) => {
      const root = await publishModelTree(store, everyKind(), { packs: 2, perFrame });
      return { home, root, paths: store.packs.map(({ path }) => path) };
    });
  } finally {
    await stores.close();
  }
}

describe('verifying a snapshot', () => {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-verify-'));
  let shared: Taken;
  beforeAll(async () => {
    shared = await taken(1, Home.open(join(directory, 'home')));
  });
  afterAll(() => {
    rmSync(directory, { recursive: true, force: true });
  });

  test('accepts a complete snapshot and counts its objects', async () => {
    const { home, root } = await taken(100);
    const result = await verified(home, root);
    expect(result).toMatchObject({ ok: true, damaged: 0, damages: [] });
    // Three tree pieces, a root, a list, a block, ten pieces of the large one of which eight differ by their numbers,
    // two texts.
    expect(result.objects).toBeGreaterThan(15);
    expect(result.bytes).toBeGreaterThan(9 * MIB);
  });

  test.each(Object.keys(OBJECT_KINDS) as ObjectKindName[])(
    'finds every flipped bit in a %s and locates it',
    async (kindName) => {
      // Each kind leaves it as it was.
      const { home, root } = shared;
      const random = new SeededRandom(seedOfRun(`flips in a ${kindName}`));
      const opened = await LineageStore.open(home.lineage(LINEAGE));
      const places = opened.packs.flatMap(({ name, path, index }) =>
        Array.from({ length: index.objects }, (_, at) => index.object(at))
          .filter(({ kind }) => kind === OBJECT_KINDS[kindName])
          .map(({ hash, frame }) => ({ name, path, hash: hash.toString('hex'), frame: index.frame(frame) })),
      );
      await opened.close();
      expect(places.length).toBeGreaterThan(0);
      for (let round = 0; round < soakCount(2, 60); round += 1) {
        const place = places[random.below(places.length)];
        if (place === undefined) throw new Error('no place');
        const at = place.frame.offset + random.below(place.frame.storedLength);
        const bit = 1 << random.below(8);
        flip(place.path, at, bit);
        const result = await verified(home, root);
        expect(result.ok).toBe(false);
        expect(result.damages).toContainEqual(
          expect.objectContaining({
            pack: place.name,
            object: place.hash,
            path: expect.stringMatching(/^\/workspace/) as string,
          }),
        );
        expect(result.damaged).toBe(result.damages.length);
        flip(place.path, at, bit);
      }
      expect((await verified(home, root)).ok).toBe(true);
    },
  );

  test('names the first file whose content is lost', async () => {
    const { home, root } = await taken(1);
    const opened = await LineageStore.open(home.lineage(LINEAGE));
    const small = opened.packs.flatMap(({ path, index }) =>
      Array.from({ length: index.objects }, (_, at) => index.object(at))
        .filter(({ kind, length }) => kind === OBJECT_KINDS.blob && length === 'small\n'.length)
        .map(({ frame }) => ({ path, offset: index.frame(frame).offset })),
    );
    await opened.close();
    for (const { path, offset } of small) {
      const bytes = readFileSync(path);
      bytes[offset] = (bytes[offset] ?? 0) ^ 1;
      writeFileSync(path, bytes);
    }
    const { damages } = await verified(home, root);
    expect(damages.map(({ path }) => path).sort()).toEqual(['/workspace/deep/er/still', '/workspace/small']);
    expect(damages.every(({ what }) => what === 'the bytes of a frame have changed')).toBe(true);
  });

  test('finds a truncated, extended, empty, missing or modified pack', async () => {
    const { home, root, paths } = await taken(3);
    const random = new SeededRandom(seedOfRun('packs of a check'));
    for (let round = 0; round < soakCount(6, 200); round += 1) {
      const path = paths[random.below(paths.length)] ?? '';
      const name = path.slice(path.lastIndexOf('/') + 1);
      const before = readFileSync(path);
      switch (random.below(4)) {
        case 0:
          truncateSync(path, random.below(before.length));
          break;
        case 1:
          appendFileSync(path, 'x');
          break;
        case 2:
          truncateSync(path, 0);
          break;
        default: {
          const changed = Buffer.from(before);
          const at = changed.length - 1 - random.below(500);
          changed[at] = (changed[at] ?? 0) ^ 0x10;
          writeFileSync(path, changed);
        }
      }
      const result = await verified(home, root);
      expect(result.ok).toBe(false);
      expect(result.damages).toContainEqual(
        expect.objectContaining({ pack: name, object: null, path: null }),
      );
      expect(result.damages.some((one) => one.path?.startsWith('/workspace') === true)).toBe(true);
      writeFileSync(path, before);
    }
    expect((await verified(home, root)).ok).toBe(true);
  });

  test('ignores damage of objects that the snapshot does not need', async () => {
    const home = temporaryHome();
    const stores = openStores(home);
    const other: ModelTree = new Map([
      ['', folder()],
      ['x', plainFile('other')],
    ]);
    const root = await stores.use(LINEAGE, (store) => publishModelTree(store, everyKind()));
    const packs = join(home.lineage(LINEAGE), 'packs');
    const path = await stores.use(LINEAGE, async (store) => {
      await publishModelTree(store, other);
      return join(packs, store.packs.at(-1)?.name ?? '');
    });
    truncateSync(path, 30);
    expect(await verified(home, root)).toMatchObject({ ok: true, damages: [] });
  });
});
