import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { HANDOFF_LIMITS } from '../../../protocol/handoff.ts';
import { OBJECT_KINDS, type ObjectReader } from '../../../snapshot-format/objects.ts';
import { readContents, RecentPages } from '../../../supervisor/handoff/changed-files.ts';
import { folder, type ModelTree, plainFile, storeTree } from '../../fixtures/snapshots/model-tree.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';

const { signal } = new AbortController();

/** Two trees in memory, and which kinds of objects are read of them. */
function treesOf(before: ModelTree, after: ModelTree) {
  const objects = new StoredObjects();
  const trees = { before: storeTree(before, objects.add), after: storeTree(after, objects.add) };
  const read: number[] = [];
  const reader: ObjectReader = {
    read: (hash, kind) => {
      read.push(kind);
      return objects.read(hash, kind);
    },
  };
  return { reader, trees, read };
}

test('a page is made once for its list and its contents, and again when it was released', async () => {
  const { reader, trees, read } = treesOf(
    new Map([['', folder()]]),
    new Map([
      ['', folder()],
      ['a', plainFile(Buffer.from('one'))],
    ]),
  );
  const pages = new RecentPages();
  const first = await pages.page(reader, trees, undefined, signal);
  expect(first.files.map(({ path }) => path.map(String))).toEqual([['a']]);
  const once = read.length;
  expect(await pages.page(reader, trees, undefined, signal)).toBe(first);
  expect(read.length).toBe(once);
  const swapped = await pages.page(reader, { before: trees.after, after: trees.before }, undefined, signal);
  expect(swapped.files[0]?.after).toBeNull();
  const until = read.length;
  pages.clear();
  expect(await pages.page(reader, trees, undefined, signal)).toEqual(first);
  expect(read.length).toBeGreaterThan(until);
});

test('only the newest pages are kept', async () => {
  const tree: ModelTree = new Map([['', folder()]]);
  for (let n = 0; n < 12; n += 1) tree.set(`f${n + 10}`, plainFile(Buffer.from(`${n}`)));
  const { reader, trees, read } = treesOf(new Map([['', folder()]]), tree);
  const pages = new RecentPages();
  for (let n = 0; n < 12; n += 1) await pages.page(reader, trees, `/workspace/f${n + 10}`, signal);
  const then = read.length;
  await pages.page(reader, trees, '/workspace/f21', signal);
  expect(read.length).toBe(then);
  await pages.page(reader, trees, '/workspace/f10', signal);
  expect(read.length).toBeGreaterThan(then);
});

test('a long content comes in answers that read only their own pieces, with holes as zeros', async () => {
  const size = 2 * HANDOFF_LIMITS.answerBytes + 5;
  const whole = randomBytes(size);
  const holed = Buffer.alloc(size);
  for (const at of [3, 2 ** 20 + 7, HANDOFF_LIMITS.answerBytes - 2, size - 9]) randomBytes(4).copy(holed, at);
  const { reader, trees, read } = treesOf(
    new Map([['', folder()]]),
    new Map([
      ['', folder()],
      ['holed', { ...plainFile(holed), sparse: true }],
      ['whole', plainFile(whole)],
    ]),
  );
  const page = await new RecentPages().page(reader, trees, undefined, signal);
  for (const [index, expected] of [holed, whole].entries()) {
    read.length = 0;
    let got = Buffer.alloc(0);
    while (got.length < size) {
      const { sizes, bytes } = await readContents(reader, page, {
        side: 'after',
        wanted: [index],
        offset: got.length,
      });
      expect(sizes).toEqual([bytes.length]);
      expect(bytes.length).toBeGreaterThan(0);
      got = Buffer.concat([got, bytes]);
    }
    expect(got.equals(expected)).toBe(true);
    if (index === 1) expect(read.filter((kind) => kind === OBJECT_KINDS.blob)).toHaveLength(9);
  }
});
