import { encodeRoot, TreeCutter, type TreeEntry } from '../../../snapshot-format/entries.ts';
import { type Hash, hashOf, OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import { buildRef, type Piece, type Ref } from '../../../snapshot-format/refs.ts';
import { StoredObjects } from './stored-objects.ts';

/** Files by name, small ones, or folders of such. */
export interface Tree {
  readonly [name: string]: string | Tree;
}

const MTIME = 1_700_000_000_000_000_001n;

/** The objects of a tree of small files. */
export function objectsOf(tree: Tree): { objects: StoredObjects; root: string } {
  const objects = new StoredObjects();
  const content = folder(objects, tree);
  const body = encodeRoot({
    type: 'directory',
    name: Buffer.alloc(0),
    mode: 0o700,
    mtimeNs: MTIME,
    xattrs: [],
    content,
  });
  return { objects, root: objects.add(OBJECT_KINDS.root, body).toString('hex') };
}

export function blobOf(text: string): Hash {
  return hashOf(OBJECT_KINDS.blob, Buffer.from(text));
}

function folder(objects: StoredObjects, tree: Tree): Ref {
  const pieces: Piece[] = [];
  const cutter = new TreeCutter((body) =>
    pieces.push({ index: pieces.length, hash: objects.add(OBJECT_KINDS.tree, body) }),
  );
  for (const name of Object.keys(tree).sort()) {
    const value = tree[name] ?? '';
    const basics = { name: Buffer.from(name), mtimeNs: MTIME, xattrs: [] };
    const entry: TreeEntry =
      typeof value === 'string'
        ? {
            ...basics,
            type: 'file',
            mode: 0o644,
            group: null,
            size: Buffer.byteLength(value),
            sparse: false,
            content: buildRef(
              value === '' ? [] : [{ index: 0, hash: objects.add(OBJECT_KINDS.blob, Buffer.from(value)) }],
              objects.add,
            ),
          }
        : { ...basics, type: 'directory', mode: 0o755, content: folder(objects, value) };
    cutter.add(entry);
  }
  cutter.end();
  return buildRef(pieces, objects.add);
}
