import { expect, test } from 'vitest';
import { scanEntries } from '../../../supervisor/setup/secret-scan.ts';
import { SecretSearch } from '../../../supervisor/setup/secret-search.ts';
import { treeFiles } from '../../../supervisor/snapshots/tree-files.ts';
import { buildContentRef, type Piece } from '../../../snapshot-format/content-ref.ts';
import { encodeRoot, TreeSplitter } from '../../../snapshot-format/entries.ts';
import {
  type Hash,
  OBJECT_KINDS,
  type ObjectKind,
  SNAPSHOT_LIMITS,
} from '../../../snapshot-format/objects.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';

const MTIME = 1_700_000_000_000_000_001n;
const SECRET = 'tok_4f9Qw7zzkP0';

/** Reads from memory at once, like the frames of a store that are cached. */
class CachedObjects extends StoredObjects {
  blobs = 0;
  override read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    if (kind === OBJECT_KINDS.blob) this.blobs += 1;
    const found = this.bodies.get(hash.toString('hex'));
    return found === undefined ? Promise.reject(new Error('no such object')) : Promise.resolve(found.body);
  }
}

/** Files of equal pieces, each with this many. */
function treeOf(
  objects: StoredObjects,
  files: readonly { readonly name: string; readonly text: string; readonly pieces: number }[],
): Hash {
  const trees: Piece[] = [];
  const splitter = new TreeSplitter((body) =>
    trees.push({ index: trees.length, hash: objects.add(OBJECT_KINDS.tree, body) }),
  );
  for (const { name, text, pieces } of files) {
    const hash = objects.add(OBJECT_KINDS.blob, Buffer.alloc(SNAPSHOT_LIMITS.pieceBytes, text));
    const items = Array.from({ length: pieces }, (_, index) => ({ index, hash }));
    splitter.add({
      ...{ type: 'file', name: Buffer.from(name), mode: 0o644, mtimeNs: MTIME, xattrs: [] },
      ...{ linkGroup: null, size: pieces * SNAPSHOT_LIMITS.pieceBytes, sparse: false },
      content: buildContentRef(items, objects.add),
    });
  }
  splitter.end();
  const root = encodeRoot({
    ...{ type: 'directory', name: Buffer.alloc(0), mode: 0o700, mtimeNs: MTIME, xattrs: [] },
    content: buildContentRef(trees, objects.add),
  });
  return objects.add(OBJECT_KINDS.root, root);
}

const search = () => new SecretSearch([{ name: 'KEY', value: Buffer.from(SECRET) }]);

test('a long file whose pieces are cached lets others work while it is searched', async () => {
  const objects = new CachedObjects();
  const root = treeOf(objects, [{ name: 'zeros', text: 'a', pieces: 8 }]);
  const seen: number[] = [];
  const began = performance.now();
  const timer = setInterval(() => seen.push(performance.now()), 1);
  try {
    expect(
      await scanEntries(treeFiles(objects, root, '/workspace', new AbortController().signal), search()),
    ).toEqual([]);
  } finally {
    clearInterval(timer);
  }
  const took = performance.now() - began;
  expect(took).toBeGreaterThan(20);
  expect(seen.length).toBeGreaterThan(1);

  const stop = new AbortController();
  setTimeout(() => stop.abort(new Error('stopped')), 1);
  await expect(scanEntries(treeFiles(objects, root, '/workspace', stop.signal), search())).rejects.toThrow(
    'stopped',
  );
});

test('a clean content is read once, and one with a secret is found under each name', async () => {
  const objects = new CachedObjects();
  const root = treeOf(objects, [
    { name: 'a1', text: 'clean ', pieces: 4 },
    { name: 'a2', text: 'clean ', pieces: 4 },
    { name: 'a3', text: 'clean ', pieces: 5 },
    { name: 'b1', text: `${SECRET} `, pieces: 1 },
    { name: 'b2', text: `${SECRET} `, pieces: 1 },
  ]);
  const found = await scanEntries(
    treeFiles(objects, root, '/workspace', new AbortController().signal),
    search(),
  );
  expect(found.map(({ path }) => path)).toEqual(['/workspace/b1', '/workspace/b2']);
  expect(objects.blobs).toBe(4 + 5 + 2);
});
