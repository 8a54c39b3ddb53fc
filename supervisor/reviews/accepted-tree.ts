import { buildContentRef, type ObjectSink, type Piece } from '../../snapshot-format/content-ref.ts';
import {
  type DirectoryEntry,
  encodeRoot,
  entriesOf,
  parseRoot,
  type TreeEntry,
  TreeSplitter,
} from '../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, type ObjectReader } from '../../snapshot-format/objects.ts';
import type { PathSegments } from '../snapshots/compare/differences.ts';
import { findChild } from '../snapshots/compare/find-entry.ts';

/**
 * Replaces the entry at a path; null removes it. `folderOnly`: of a folder only the attributes, and not what is in it; it
 * is removed only if nothing is left in it.
 */
export interface TreeEdit {
  readonly path: PathSegments;
  readonly entry: TreeEntry | null;
  readonly folderOnly?: boolean;
}

/** The edits of a folder and below it. */
interface Node {
  edit: TreeEdit | null;
  readonly children: Map<string, Node>;
}

export interface EditContext {
  readonly reader: ObjectReader;
  readonly sink: ObjectSink;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The tree `base` with edits, whose order does not matter. Folders that an edit needs and the base lacks are made as
 * `target` has them; a folder that loses its last entry goes, unless `target` has it. Only folders with edits are read.
 * New trees and lists go to `sink`. Returns the root.
 */
export async function editTree(
  base: Hash,
  target: Hash,
  edits: readonly TreeEdit[],
  context: EditContext,
): Promise<Hash> {
  if (edits.length === 0) return base;
  const top: Node = { edit: null, children: new Map() };
  for (const edit of edits) nodeAt(top, edit.path).edit = edit;
  const { reader, sink } = context;
  const before = parseRoot(await reader.read(base, OBJECT_KINDS.root));
  const after = parseRoot(await reader.read(target, OBJECT_KINDS.root));
  const made = (await editFolder(before, after, top, context)) ?? { ...before, content: EMPTY };
  const attributes = top.edit?.folderOnly === true ? top.edit.entry : null;
  const root = attributes === null ? made : withAttributes(made, attributes);
  return sink(OBJECT_KINDS.root, encodeRoot(root));
}

const EMPTY = { depth: 0, items: [] } as const;

function nodeAt(top: Node, path: PathSegments): Node {
  let node = top;
  for (const name of path) {
    const key = name.toString('latin1');
    let child = node.children.get(key);
    if (child === undefined) {
      child = { edit: null, children: new Map() };
      node.children.set(key, child);
    }
    node = child;
  }
  return node;
}

/** The folder with its edits; null where nothing is left of it. */
async function editFolder(
  before: DirectoryEntry | null,
  after: DirectoryEntry | null,
  node: Node,
  context: EditContext,
): Promise<DirectoryEntry | null> {
  const { reader, sink, signal } = context;
  signal?.throwIfAborted();
  const pieces: Piece[] = [];
  const splitter = new TreeSplitter((body) => {
    pieces.push({ index: pieces.length, hash: sink(OBJECT_KINDS.tree, body) });
  });
  const edited = [...node.children].sort(([one], [other]) => (one < other ? -1 : 1));
  let next = 0;
  let count = 0;
  const put = (entry: TreeEntry | null): void => {
    if (entry === null) return;
    splitter.add(entry);
    count += 1;
  };
  const editUpTo = async (limit: Buffer | null): Promise<void> => {
    for (;;) {
      const [key, child] = edited[next] ?? [];
      if (key === undefined || child === undefined) return;
      const name = Buffer.from(key, 'latin1');
      if (limit !== null && name.compare(limit) >= 0) return;
      next += 1;
      put(await editEntry(name, null, after, child, context));
    }
  };
  if (before !== null) {
    for await (const entry of entriesOf(reader, before)) {
      await editUpTo(entry.name);
      const [key, child] = edited[next] ?? [];
      if (child === undefined || key !== entry.name.toString('latin1')) put(entry);
      else {
        next += 1;
        put(await editEntry(entry.name, entry, after, child, context));
      }
    }
  }
  await editUpTo(null);
  splitter.end();
  const model = before ?? after;
  if (model === null || (count === 0 && after === null)) return null;
  return { ...model, content: buildContentRef(pieces, sink) };
}

async function editEntry(
  name: Buffer,
  before: TreeEntry | null,
  after: DirectoryEntry | null,
  node: Node,
  context: EditContext,
): Promise<TreeEntry | null> {
  const { edit, children } = node;
  const isWhole = edit !== null && edit.folderOnly !== true;
  if (isWhole && children.size === 0) return edit.entry === null ? null : { ...edit.entry, name };
  const counterpart = after === null ? null : await findChild(context.reader, after, name);
  const old = isWhole ? edit.entry : before;
  // What lies below an accepted path goes into what is there: nothing can be put below a file.
  if (old !== null && old.type !== 'directory') return old;
  const shape = counterpart?.type === 'directory' ? counterpart : null;
  const folder = await editFolder(old, shape, node, context);
  if (folder === null) return null;
  const attributes = edit?.folderOnly === true ? edit.entry : null;
  return { ...(attributes === null ? folder : withAttributes(folder, attributes)), name };
}

function withAttributes(folder: DirectoryEntry, { mode, mtimeNs, xattrs }: TreeEntry): DirectoryEntry {
  return { ...folder, mode, mtimeNs, xattrs };
}
