import { execFile } from 'node:child_process';
import {
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Change } from '../../../protocol/snapshots.ts';
import { encodeRoot, TreeCutter, type TreeEntry } from '../../../protocol/snapshots/entries.ts';
import {
  type Hash,
  OBJECT_KINDS,
  type ObjectKind,
  type ObjectReader,
} from '../../../protocol/snapshots/objects.ts';
import type { Ref } from '../../../protocol/snapshots/refs.ts';
import { Comparison } from '../../../supervisor/snapshots/compare/comparison.ts';
import type { Names } from '../../../supervisor/snapshots/compare/differences.ts';
import { LineThread } from '../../../supervisor/snapshots/patch/line-thread.ts';
import { patchChangeOf } from '../../../supervisor/snapshots/patch/patch-changes.ts';
import { type PatchChange, writePatch } from '../../../supervisor/snapshots/patch/write-patch.ts';
import { Seeded, seedOfRun } from '../protocol/seeded.ts';
import {
  byPath,
  folder,
  type Item,
  itemAt,
  type ModelTree,
  plainFile,
  RandomTrees,
  remove,
  storeTree,
} from './model-tree.ts';
import { StoredObjects } from './stored-objects.ts';
import { times } from '../../setup/run-length.ts';
import { PLAIN_GIT, THREAD } from './patching.ts';

/** What the comparison must say, thought of in the simplest way. Paths are the model's. */
interface Expected {
  readonly path: string;
  readonly kind: Change['kind'];
  readonly oldPath?: string;
}

function naive(before: ModelTree, after: ModelTree, within = ''): Expected[] {
  const inside = (path: string): boolean => within === '' || path === within || path.startsWith(`${within}/`);
  const found: Expected[] = [];
  for (const path of new Set([...before.keys(), ...after.keys()].filter(inside))) {
    const old = before.get(path);
    const now = after.get(path);
    if (old === undefined) found.push({ path, kind: 'added' });
    else if (now === undefined) found.push({ path, kind: 'deleted' });
    else if (old.type !== now.type) found.push({ path, kind: 'typechange' });
    else if (old.type !== 'directory' && (!old.bytes.equals(now.bytes) || old.sparse !== now.sparse)) {
      found.push({ path, kind: 'modified' });
    } else if (attributes(old) !== attributes(now)) found.push({ path, kind: 'mode' });
    else if (old.mtimeNs !== now.mtimeNs) {
      const same = old.type !== 'directory' || children(before, path) === children(after, path);
      if (same) found.push({ path, kind: 'mode' });
    }
  }
  found.sort((one, other) => byPath(one.path, other.path));

  // The rule of renames: same content, same name first, then in order.
  const content = (tree: ModelTree, { path }: Expected): string => {
    const { type, bytes, sparse } = itemAt(tree, path);
    return type === 'file' && bytes.length > 0 ? `${sparse} ${bytes.toString('latin1')}` : '';
  };
  const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
  const come = found.filter((one) => one.kind === 'added' && content(after, one) !== '');
  const gone = found.filter((one) => one.kind === 'deleted' && content(before, one) !== '');
  const origins = new Map<string, string>();
  for (const byName of [true, false]) {
    for (const to of come) {
      const from = gone.find(
        (one) =>
          content(before, one) === content(after, to) &&
          (!byName || nameOf(one.path) === nameOf(to.path)) &&
          ![...origins.values()].includes(one.path),
      );
      if (from !== undefined && !origins.has(to.path)) origins.set(to.path, from.path);
    }
  }
  const left = new Set(origins.values());
  return found
    .filter(({ path, kind }) => kind !== 'deleted' || !left.has(path))
    .map((one) => {
      const oldPath = one.kind === 'added' ? origins.get(one.path) : undefined;
      return oldPath === undefined ? one : { path: one.path, kind: 'renamed', oldPath };
    });
}

function attributes({ mode, xattrs, group }: Item): string {
  const named = xattrs.map(({ name, value }) => `${name.toString('hex')}=${value.toString('hex')}`);
  return JSON.stringify([mode, named, group?.toString('hex') ?? null]);
}

/** All that is below a folder, as one text. */
function children(tree: ModelTree, path: string): string {
  const below = [...tree].filter(([one]) => one !== path && (path === '' || one.startsWith(`${path}/`)));
  return below
    .sort(([one], [other]) => byPath(one, other))
    .map(([one, item]) =>
      [one, item.type, attributes(item), item.mtimeNs, item.sparse, item.bytes.toString('base64')].join(),
    )
    .join('\n');
}

const namesOf = (path: string): Names =>
  path === '' ? [] : path.split('/').map((name) => Buffer.from(name, 'latin1'));
const pathOf = (names: Names): string => names.map((name) => name.toString('latin1')).join('/');

async function all(comparison: Comparison, behind: Names | null = null): Promise<Expected[]> {
  const found: Expected[] = [];
  for await (const { path, kind, origin } of comparison.differences(behind)) {
    const oldPath = origin === null ? {} : { oldPath: pathOf(origin.path) };
    found.push({ path: pathOf(path), kind, ...oldPath });
  }
  return found;
}

function compare(
  objects: ObjectReader,
  before: Hash,
  after: Hash,
  path = '',
  budget?: number,
): Promise<Comparison> {
  const renameBudgetBytes = budget === undefined ? {} : { renameBudgetBytes: budget };
  return Comparison.make(objects, { before, after, path: namesOf(path), ...renameBudgetBytes });
}

describe('the comparison of two trees', () => {
  test(
    'says what the naive one says, in every part and from every place on',
    { timeout: 600_000 },
    async () => {
      const random = new Seeded(seedOfRun('compare'));
      const trees = new RandomTrees(random);
      for (let round = 0; round < times(150, 6000); round += 1) {
        const before = trees.tree(1 + random.below(40));
        const after = random.below(5) === 0 ? trees.tree(30) : trees.edited(before, random.below(12));
        const objects = new StoredObjects();
        const [a, b] = [storeTree(before, objects.add), storeTree(after, objects.add)];
        const comparison = await compare(objects, a, b);
        const expected = naive(before, after);
        expect(await all(comparison)).toEqual(expected);

        const count = (kind: Change['kind']): number => expected.filter((one) => one.kind === kind).length;
        const size = (path: string): number => {
          const item = itemAt(after, path);
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
          bytes: written.reduce((sum, { path }) => sum + size(path), 0),
        });

        // In pages of any size, each asked for with nothing but the last path.
        const pages: Change[] = [];
        const limit = 1 + random.below(7);
        let behind: Names | null = null;
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
        expect(await all(await compare(objects, a, b, within))).toEqual(naive(before, after, within));
        const place = paths[random.below(paths.length)] ?? '';
        expect(await all(comparison, namesOf(place))).toEqual(
          expected.filter(({ path }) => byPath(path, place) > 0),
        );
      }
    },
  );

  test('applied to the one tree gives the other', { timeout: 600_000 }, async () => {
    const random = new Seeded(seedOfRun('apply'));
    const trees = new RandomTrees(random);
    for (let round = 0; round < times(150, 6000); round += 1) {
      const before = trees.tree(40);
      const after = trees.edited(before, random.below(12));
      const objects = new StoredObjects();
      const comparison = await compare(
        objects,
        storeTree(before, objects.add),
        storeTree(after, objects.add),
      );
      const applied: ModelTree = new Map(before);
      const take = (path: string): void => {
        const item = after.get(path);
        if (item !== undefined) applied.set(path, item);
      };
      for (const { path, kind, oldPath } of await all(comparison)) {
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

  test('does not read what both sides have: not a folder, and not a piece of a long one', async () => {
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
    const comparison = await compare(counted, a, b);
    expect(await all(comparison)).toEqual(naive(before, after));
    // Two walks of two sides: the roots, the tops, and a few pieces around each of three changes.
    expect(counted.reads).toBeLessThan(2 * (2 + 2 + 2 * 2 * 3) + 2);
    expect([...objects.bodies.values()].filter(({ kind }) => kind === 1).length).toBeGreaterThan(40);
  });

  test('a path that neither has is not found; one that is no folder on the way is nothing', async () => {
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
    await expect(compare(objects, a, b, 'other')).rejects.toMatchObject({ code: 'file_not_found' });
    expect(await all(await compare(objects, a, b, 'd/x'))).toEqual([{ path: 'd/x', kind: 'deleted' }]);
  });

  test('with more candidates than it may hold, nothing is called renamed and all is still told', async () => {
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
    expect(await all(await compare(objects, a, b))).toEqual([{ path: 'b', kind: 'renamed', oldPath: 'a' }]);
    expect(await all(await compare(objects, a, b, '', 100))).toEqual([
      { path: 'a', kind: 'deleted' },
      { path: 'b', kind: 'added' },
    ]);
  });

  test('ends when it is told to, however much there is to compare', async () => {
    const objects = new StoredObjects();
    const [before, after] = [explode(objects, 'one', 40), explode(objects, 'two', 40)];
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(new Error('enough')), 300);
    const comparing = Comparison.make(objects, { before, after, path: [], signal: controller.signal });
    await expect(comparing).rejects.toThrow('enough');
    clearTimeout(timer);
  });
});

/** Folders of two names that both lead to the folder before: twice as many paths with each. */
function explode(objects: StoredObjects, text: string, depth: number): Hash {
  const basics = { mode: 0o755, mtimeNs: 1n, xattrs: [] };
  const piece = (entries: TreeEntry[]): Ref => {
    const bodies: Buffer[] = [];
    const cutter = new TreeCutter((body) => bodies.push(body));
    for (const entry of entries) cutter.add(entry);
    cutter.end();
    return {
      depth: 0,
      items: bodies.map((body, index) => ({ index, hash: objects.add(OBJECT_KINDS.tree, body) })),
    };
  };
  let content = piece([
    { ...basics, type: 'symlink', name: Buffer.from('x'), group: null, target: Buffer.from(text) },
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

const run = promisify(execFile);
describe('the patch of a comparison', () => {
  test('real git makes the one tree the other with it', { timeout: 600_000 }, async () => {
    const random = new Seeded(seedOfRun('patches'));
    const trees = new RandomTrees(random);
    const lines = new LineThread(THREAD);
    const root = await mkdtemp(join(tmpdir(), 'holdfast-compare-'));
    try {
      for (let round = 0; round < times(8, 400); round += 1) {
        const before = trees.tree(30);
        for (const path of [...before.keys()]) if (/(^|\/)\.git$/.test(path)) remove(before, path);
        const after = trees.edited(before, 8);
        for (const path of [...after.keys()]) if (/(^|\/)\.git$/.test(path)) remove(after, path);
        const objects = new StoredObjects();
        const comparison = await compare(
          objects,
          storeTree(before, objects.add),
          storeTree(after, objects.add),
        );
        const changes: PatchChange[] = [];
        for await (const difference of comparison.differences()) {
          const change = patchChangeOf(objects, difference);
          if (change !== null) changes.push(change);
        }
        const patch: Buffer[] = [];
        for await (const piece of writePatch(changes, lines, (path) => expect.fail(String(path)))) {
          patch.push(piece);
        }
        const place = join(root, `case-${round}`);
        await lay(place, before);
        await writeFile(`${place}.patch`, Buffer.concat(patch));
        if (patch.length > 0) {
          await run('git', ['apply', '--whitespace=nowarn', `${place}.patch`], {
            cwd: place,
            env: PLAIN_GIT,
          });
        }
        expect(await found(place)).toEqual(forGit(after));
      }
    } finally {
      await lines.end();
      await rm(root, { recursive: true, force: true });
    }
  });
});

const on = (place: string, path: string): Buffer =>
  Buffer.concat([Buffer.from(`${place}/`), Buffer.from(path, 'latin1')]);

/** Files and links, and the folders that they need: a folder that git does not know of would be in its way. */
async function lay(place: string, tree: ModelTree): Promise<void> {
  await mkdir(place);
  for (const [path, { type, mode, bytes }] of [...tree].sort(([one], [other]) => byPath(one, other))) {
    if (type !== 'file' && type !== 'symlink') continue;
    await mkdir(on(place, path.slice(0, Math.max(path.lastIndexOf('/'), 0))), { recursive: true });
    if (type === 'symlink') await symlink(bytes, on(place, path));
    else {
      await writeFile(on(place, path), bytes);
      await chmod(on(place, path), (mode & 0o100) === 0 ? 0o644 : 0o755);
    }
  }
}

/** Path → what git knows of it: files and links. */
function forGit(tree: ModelTree): Record<string, string> {
  return Object.fromEntries(
    [...tree]
      .filter(([, { type }]) => type === 'file' || type === 'symlink')
      .map(([path, { type, mode, bytes }]) => [
        path,
        `${type} ${type === 'file' && (mode & 0o100) !== 0} ${bytes.toString('base64')}`,
      ]),
  );
}

async function found(place: string, below = ''): Promise<Record<string, string>> {
  const tree: Record<string, string> = {};
  for (const name of await readdir(on(place, below), { encoding: 'latin1' })) {
    const path = below === '' ? name : `${below}/${name}`;
    const status = await lstat(on(place, path));
    if (status.isDirectory()) Object.assign(tree, await found(place, path));
    else if (status.isSymbolicLink()) {
      tree[path] = `symlink false ${(await readlink(on(place, path), 'buffer')).toString('base64')}`;
    } else {
      const bytes = await readFile(on(place, path));
      tree[path] = `file ${(status.mode & 0o100) !== 0} ${bytes.toString('base64')}`;
    }
  }
  return tree;
}
