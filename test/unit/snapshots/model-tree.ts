import { encodeBlock } from '../../../snapshot-format/content.ts';
import {
  type DirectoryEntry,
  encodeRoot,
  type ExtendedAttribute,
  TreeCutter,
  type TreeEntry,
} from '../../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, SNAPSHOT_LIMITS } from '../../../snapshot-format/objects.ts';
import { buildRef, type ObjectSink, type Piece, type Ref } from '../../../snapshot-format/refs.ts';
import type { Seeded } from '../protocol/seeded.ts';

/** One path of a tree as a test thinks of it: plain values that can be compared with each other. */
export interface Item {
  type: 'file' | 'directory' | 'symlink' | 'fifo' | 'socket';
  mode: number;
  mtimeNs: bigint;
  xattrs: readonly ExtendedAttribute[];
  /** Of what has several names: what they share. */
  group: Buffer | null;
  /** Content of a file, text of a link. */
  bytes: Buffer;
  /** The file has holes where this many zeros and more lie; 0 for none. */
  sparse: boolean;
}
/** Names as latin1 joined by `/` → what is there. The top is `''`. Every folder on the way is there. */
export type ModelTree = Map<string, Item>;

const { pieceBytes } = SNAPSHOT_LIMITS;

/** Stores a tree; gives the hash of its root. */
export function storeTree(tree: ModelTree, sink: ObjectSink): Hash {
  const children = new Map<string, string[]>();
  for (const path of tree.keys()) {
    if (path === '') continue;
    const parent = path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '';
    const known = children.get(parent);
    if (known === undefined) children.set(parent, [path]);
    else known.push(path);
  }
  const directory = (path: string, name: string): DirectoryEntry => {
    const pieces: Piece[] = [];
    const cutter = new TreeCutter((body) => {
      pieces.push({ index: pieces.length, hash: sink(OBJECT_KINDS.tree, body) });
    });
    for (const child of (children.get(path) ?? []).sort(byBytes)) cutter.add(entry(child));
    cutter.end();
    const { mode, mtimeNs, xattrs } = itemAt(tree, path);
    const basics = { name: Buffer.from(name, 'latin1'), mode, mtimeNs, xattrs };
    return { ...basics, type: 'directory', content: buildRef(pieces, sink) };
  };
  const entry = (path: string): TreeEntry => {
    const name = path.slice(path.lastIndexOf('/') + 1);
    const { type, mode, mtimeNs, xattrs, group, bytes, sparse } = itemAt(tree, path);
    if (type === 'directory') return directory(path, name);
    const basics = { name: Buffer.from(name, 'latin1'), mode, mtimeNs, xattrs, group };
    if (type === 'symlink') return { ...basics, type, target: bytes };
    if (type === 'file') {
      return { ...basics, type, size: bytes.length, sparse, content: storeContent(bytes, sparse, sink) };
    }
    return { ...basics, type };
  };
  return sink(OBJECT_KINDS.root, encodeRoot(directory('', '')));
}

function storeContent(bytes: Buffer, sparse: boolean, sink: ObjectSink): Ref {
  const pieces: Piece[] = [];
  for (let index = 0; index * pieceBytes < bytes.length; index += 1) {
    const piece = bytes.subarray(index * pieceBytes, (index + 1) * pieceBytes);
    if (!sparse) pieces.push({ index, hash: sink(OBJECT_KINDS.blob, Buffer.from(piece)) });
    else if (piece.some((byte) => byte !== 0)) {
      const first = piece.findIndex((byte) => byte !== 0);
      const block = encodeBlock([{ offset: first, bytes: piece.subarray(first) }]);
      pieces.push({ index, hash: sink(OBJECT_KINDS.block, block) });
    }
  }
  return buildRef(pieces, sink);
}

export function itemAt(tree: ModelTree, path: string): Item {
  const item = tree.get(path);
  if (item === undefined) throw new Error(`no ${JSON.stringify(path)}`);
  return item;
}

/** In the order in which snapshots tell paths: name by name, each by its bytes. */
export function byPath(one: string, other: string): number {
  return byBytes(one.replaceAll('/', '\0'), other.replaceAll('/', '\0'));
}

function byBytes(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

export function folder(more: Partial<Item> = {}): Item {
  return {
    type: 'directory',
    mode: 0o755,
    mtimeNs: 1_700_000_000_000_000_001n,
    xattrs: [],
    group: null,
    bytes: Buffer.alloc(0),
    sparse: false,
    ...more,
  };
}

export function plainFile(content: string | Buffer, more: Partial<Item> = {}): Item {
  return { ...folder(), type: 'file', mode: 0o644, bytes: Buffer.from(content), ...more };
}

const NAMES = [
  'a',
  'b',
  'B',
  'a.b',
  'a b',
  'c-',
  '\xff\xfe',
  '\xc3\xa9',
  '.git',
  'q"',
  '\x01',
  'zz',
] as const;
const TEXTS = ['', 'one\n', 'two\nlines\n', 'the same\n', 'no end'] as const;

/** A tree and its edits, the same for the same seed. */
export class RandomTrees {
  readonly #random: Seeded;

  constructor(random: Seeded) {
    this.#random = random;
  }

  tree(most: number): ModelTree {
    const tree: ModelTree = new Map([['', folder()]]);
    for (let count = this.#random.below(most + 1); count > 0; count -= 1) this.#add(tree);
    return tree;
  }

  /** Another tree, made of this one by so many edits. */
  edited(tree: ModelTree, edits: number): ModelTree {
    const after: ModelTree = new Map([...tree].map(([path, item]) => [path, { ...item }]));
    for (let count = edits; count > 0; count -= 1) this.#edit(after);
    return after;
  }

  #edit(tree: ModelTree): void {
    const paths = [...tree.keys()].filter((path) => path !== '');
    const path = paths[this.#random.below(paths.length)];
    const item = path === undefined ? undefined : tree.get(path);
    if (path === undefined || item === undefined) {
      this.#add(tree);
      return;
    }
    switch (this.#random.below(9)) {
      case 0:
      case 1:
        this.#add(tree);
        break;
      case 2:
        remove(tree, path);
        break;
      case 3: {
        // Moved, with all that is in it.
        const parent = this.#random.pick(['', ...folders(tree)] as [string, ...string[]]);
        if (parent === path || parent.startsWith(`${path}/`)) break;
        const target = join(parent, this.#random.pick([...NAMES]));
        if (target === path || path.startsWith(`${target}/`)) break;
        const moved = [...tree].filter(([one]) => one === path || one.startsWith(`${path}/`));
        remove(tree, path);
        remove(tree, target);
        for (const [one, what] of moved) tree.set(target + one.slice(path.length), what);
        break;
      }
      case 4:
        item.mode = this.#random.below(0o10000);
        break;
      case 5:
        item.mtimeNs += BigInt(1 + this.#random.below(5));
        break;
      case 6:
        item.xattrs = [{ name: Buffer.from('user.k'), value: Buffer.from([this.#random.below(3)]) }];
        break;
      case 7:
        if (item.type === 'file') item.bytes = this.#content();
        else if (item.type === 'symlink') item.bytes = Buffer.from(`../${this.#random.below(5)}`);
        break;
      default:
        // Something else in its place.
        remove(tree, path);
        tree.set(path, this.#item());
    }
  }

  #add(tree: ModelTree): void {
    const parent = this.#random.pick(['', ...folders(tree)] as [string, ...string[]]);
    const path = join(parent, this.#random.pick([...NAMES]));
    remove(tree, path);
    tree.set(path, this.#item());
  }

  #item(): Item {
    const mode = this.#random.pick([0o644, 0o755, 0, 0o4711]);
    switch (this.#random.below(8)) {
      case 0:
      case 1:
      case 2:
        return folder({ mode });
      case 3:
        return plainFile(Buffer.from('../x'), { type: 'symlink', mode: 0o777 });
      case 4:
        return plainFile('', { type: this.#random.pick(['fifo', 'socket']), mode });
      default:
        return plainFile(this.#content(), { mode, sparse: this.#random.below(6) === 0 });
    }
  }

  #content(): Buffer {
    if (this.#random.below(40) === 0) {
      // Of several pieces, with a stretch of zeros in it.
      const bytes = Buffer.alloc(pieceBytes * 2 + this.#random.below(1000));
      bytes.write('begin');
      bytes.write('end', bytes.length - 3);
      return bytes;
    }
    if (this.#random.below(8) === 0) return Buffer.from([0, this.#random.below(256), 255]);
    return Buffer.from(this.#random.pick([...TEXTS]));
  }
}

function folders(tree: ModelTree): string[] {
  return [...tree].filter(([path, { type }]) => path !== '' && type === 'directory').map(([path]) => path);
}

function join(parent: string, name: string): string {
  return parent === '' ? name : `${parent}/${name}`;
}

export function remove(tree: ModelTree, path: string): void {
  for (const one of [...tree.keys()]) if (one === path || one.startsWith(`${path}/`)) tree.delete(one);
}
