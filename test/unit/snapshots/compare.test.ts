import { describe, expect, test } from 'vitest';
import type { Change } from '../../../protocol/snapshots.ts';
import { encodeRoot, TreeSplitter, type TreeEntry } from '../../../snapshot-format/entries.ts';
import {
  type Hash,
  OBJECT_KINDS,
  type ObjectKind,
  type ObjectReader,
} from '../../../snapshot-format/objects.ts';
import type { ContentRef } from '../../../snapshot-format/content-ref.ts';
import { Comparison } from '../../../supervisor/snapshots/compare/comparison.ts';
import type { PathSegments } from '../../../supervisor/snapshots/compare/differences.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import {
  byPath,
  folder,
  entryAt,
  type ModelTree,
  plainFile,
  RandomTrees,
  remove,
  storeTree,
} from '../../fixtures/snapshots/model-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';
import { soakCount } from '../../setup/run-length.ts';
import {
  listChanges,
  openComparison,
  expectedChanges,
  namesOf,
} from '../../fixtures/snapshots/expected-changes.ts';

describe('comparing two trees', () => {
  test('equals a naive comparison, for every path and from every cursor', { timeout: 600_000 }, async () => {
    const random = new SeededRandom(seedOfRun('compare'));
    const trees = new RandomTrees(random);
    for (let round = 0; round < soakCount(25, 6000); round += 1) {
      const before = trees.tree(1 + random.below(40));
      const after = random.below(5) === 0 ? trees.tree(30) : trees.edited(before, random.below(12));
      const objects = new StoredObjects();
      const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
      const comparison = await openComparison(objects, a, b);
      const expected = expectedChanges(before, after);
      expect(await listChanges(comparison)).toEqual(expected);

      const isFolder = ({ path }: { readonly path: string }): boolean =>
        [before.get(path), after.get(path)].every((one) => one === undefined || one.type === 'directory');
      const count = (kind: Change['kind']): number =>
        expected.filter((one) => one.kind === kind && !isFolder(one)).length;
      const size = (path: string): number => {
        const item = entryAt(after, path);
        return item.type === 'file' ? item.bytes.length : 0;
      };
      const written = expected.filter(({ kind }) => ['added', 'modified', 'typechange'].includes(kind));
      expect(comparison.totals).toEqual({
        added: count('added'),
        modified: count('modified'),
        deleted: count('deleted'),
        renamed: count('renamed'),
        mode: count('mode'),
        typechange: count('typechange'),
        directories: expected.filter(isFolder).length,
        bytes: written.reduce((sum, { path }) => sum + size(path), 0),
      });

      // In pages of any size, each asked for with nothing but the last path.
      const pages: Change[] = [];
      const limit = 1 + random.below(7);
      let behind: PathSegments | null = null;
      for (let page = 0; page < 1000; page += 1) {
        const { changes, next } = await comparison.page(behind, limit);
        pages.push(...changes);
        expect(changes.length).toBeLessThanOrEqual(limit);
        behind = next;
        if (next === null) break;
      }
      expect(behind).toBeNull();
      expect(pages.map(({ kind }) => kind)).toEqual(expected.map(({ kind }) => kind));

      const paths = [...new Set([...before.keys(), ...after.keys()])];
      const within = paths[random.below(paths.length)] ?? '';
      expect(await listChanges(await openComparison(objects, a, b, within))).toEqual(
        expectedChanges(before, after, within),
      );
      const place = paths[random.below(paths.length)] ?? '';
      expect(await listChanges(comparison, namesOf(place))).toEqual(
        expected.filter(({ path }) => byPath(path, place) > 0),
      );
    }
  });

  test('its changes turn the first tree into the second', { timeout: 600_000 }, async () => {
    const random = new SeededRandom(seedOfRun('apply'));
    const trees = new RandomTrees(random);
    for (let round = 0; round < soakCount(25, 6000); round += 1) {
      const before = trees.tree(40);
      const after = trees.edited(before, random.below(12));
      const objects = new StoredObjects();
      const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
      const comparison = await openComparison(objects, a, b, '', { findEdited: true });
      const applied: ModelTree = new Map(before);
      const take = (path: string): void => {
        const item = after.get(path);
        if (item !== undefined) applied.set(path, item);
      };
      for (const { path, kind, oldPath } of await listChanges(comparison)) {
        if (oldPath !== undefined) applied.delete(oldPath);
        if (kind === 'deleted') remove(applied, path);
        take(path);
        // The times of the folders around go with it.
        for (const one of [path, ...(oldPath === undefined ? [] : [oldPath])]) {
          for (let at = one.lastIndexOf('/'); at > 0; at = one.lastIndexOf('/', at - 1))
            take(one.slice(0, at));
          take('');
        }
      }
      expect(storeTree(applied, objects.add)).toEqual(storeTree(after, objects.add));
    }
  });

  test('does not read directories, or pieces of large directories, that both sides share', async () => {
    const before: ModelTree = new Map([
      ['', folder()],
      ['same', folder()],
      ['long', folder()],
    ]);
    for (let index = 0; index < 200; index += 1) before.set(`same/${index}`, plainFile(`${index}`));
    for (let index = 0; index < 20_000; index += 1) before.set(`long/${index}`, plainFile('x'));
    const after: ModelTree = new Map(before);
    after.set('long/1234x', plainFile('new'));
    after.delete('long/777');
    after.set('long/9', plainFile('changed'));
    const objects = new StoredObjects();
    const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
    const counted = new CountedReader(objects);
    const comparison = await openComparison(counted, a, b);
    expect(await listChanges(comparison)).toEqual(expectedChanges(before, after));
    // Two walks of two sides: the roots, the tops, and a few pieces around each of three changes.
    expect(counted.reads).toBeLessThan(2 * (2 + 2 + 2 * 2 * 3) + 2);
    expect([...objects.bodies.values()].filter(({ kind }) => kind === 1).length).toBeGreaterThan(40);
  });

  test('a path missing on both sides is not found; a path below a file does not exist', async () => {
    const objects = new StoredObjects();
    const a = storeTree(
      new Map([
        ['', folder()],
        ['d', folder()],
        ['d/x', plainFile('1')],
      ]),
      objects.add,
    );
    const b = storeTree(
      new Map([
        ['', folder()],
        ['d', plainFile('2')],
      ]),
      objects.add,
    );
    await expect(openComparison(objects, a, b, 'other')).rejects.toMatchObject({ code: 'file_not_found' });
    expect(await listChanges(await openComparison(objects, a, b, 'd/x'))).toEqual([
      { path: 'd/x', kind: 'deleted' },
    ]);
  });

  test('beyond the memory limit it reports no renames but still every change', async () => {
    const objects = new StoredObjects();
    const before: ModelTree = new Map([
      ['', folder()],
      ['a', plainFile('content')],
    ]);
    const after: ModelTree = new Map([
      ['', folder()],
      ['b', plainFile('content')],
    ]);
    const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
    expect(await listChanges(await openComparison(objects, a, b))).toEqual([
      { path: 'b', kind: 'renamed', oldPath: 'a' },
    ]);
    expect(await listChanges(await openComparison(objects, a, b, '', { renameBudgetBytes: 100 }))).toEqual([
      { path: 'a', kind: 'deleted' },
      { path: 'b', kind: 'added' },
    ]);
  });

  test('stops when aborted, however much there is to compare', async () => {
    const objects = new StoredObjects();
    const [before, after] = [explode(objects, 'one', 40), explode(objects, 'two', 40)];
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(new Error('enough')), 50);
    const comparing = Comparison.create(objects, { before, after, path: [], signal: controller.signal });
    await expect(comparing).rejects.toThrow('enough');
    clearTimeout(timer);
  });
});

/** Folders of two names that both lead to the folder before: twice as many paths with each. */
function explode(objects: StoredObjects, text: string, depth: number): Hash {
  const basics = { mode: 0o755, mtimeNs: 1n, xattrs: [] };
  const piece = (entries: TreeEntry[]): ContentRef => {
    const bodies: Buffer[] = [];
    const cutter = new TreeSplitter((body) => bodies.push(body));
    for (const entry of entries) cutter.add(entry);
    cutter.end();
    return {
      depth: 0,
      items: bodies.map((body, index) => ({ index, hash: objects.add(OBJECT_KINDS.tree, body) })),
    };
  };
  let content = piece([
    { ...basics, type: 'symlink', name: Buffer.from('x'), linkGroup: null, target: Buffer.from(text) },
  ]);
  for (let level = 0; level < depth; level += 1) {
    const entry = (name: string): TreeEntry => ({
      ...basics,
      type: 'directory',
      name: Buffer.from(name),
      content,
    });
    content = piece([entry('a'), entry('b')]);
  }
  const root = encodeRoot({ ...basics, type: 'directory', name: Buffer.alloc(0), content });
  return objects.add(OBJECT_KINDS.root, root);
}

class CountedReader implements ObjectReader {
  reads = 0;
  readonly #reader: ObjectReader;
  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }
  read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    this.reads += 1;
    return this.#reader.read(hash, kind);
  }
}
