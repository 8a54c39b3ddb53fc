import { parsePath } from '../../../protocol/paths.ts';
import {
  type DirectoryEntry,
  encodeRoot,
  entriesOf,
  TreeSplitter,
  type TreeEntry,
} from '../../../snapshot-format/entries.ts';
import {
  type Hash,
  hashOf,
  OBJECT_KINDS,
  type ObjectReader,
  SNAPSHOT_LIMITS,
} from '../../../snapshot-format/objects.ts';
import {
  buildContentRef,
  type ObjectSink,
  type Piece,
  type ContentRef,
} from '../../../snapshot-format/content-ref.ts';
import { readRange, type SeedItem } from '../../profiles/seed-source.ts';

const FOLDER_MODE = 0o755;
const LINK_MODE = 0o777;
const { pieceBytes } = SNAPSHOT_LIMITS;

/** The planned content of a directory, by name (latin1). */
type PlannedDirectory = Map<string, SeedItem | PlannedDirectory>;

interface BuildContext {
  readonly reader: ObjectReader;
  readonly sink: ObjectSink;
  readonly signal: AbortSignal | undefined;
}

/**
 * Builds the tree of a workspace that is seeded with these items. All objects except file contents go to `sink`. Seed
 * items have no mtime: each takes that of the entry with the same name and type in `now`, and the root takes all
 * attributes of `now`, so that a comparison with `now` reports only real differences.
 */
export async function seedTree(
  items: AsyncIterable<SeedItem> | null,
  now: DirectoryEntry,
  context: BuildContext,
): Promise<Hash> {
  const top: PlannedDirectory = new Map();
  for await (const item of items ?? []) {
    context.signal?.throwIfAborted();
    const names = parsePath(item.path).map((name) => name.toString('latin1'));
    let folder = top;
    for (const name of names.slice(0, -1)) {
      const below = folder.get(name);
      if (below instanceof Map) folder = below;
    }
    folder.set(
      names.at(-1) ?? '',
      item.kind === 'folder' ? new Map<string, SeedItem | PlannedDirectory>() : item,
    );
  }
  const content = await folderOf(top, now, context);
  return context.sink(OBJECT_KINDS.root, encodeRoot({ ...now, content }));
}

async function folderOf(
  planned: PlannedDirectory,
  now: DirectoryEntry | null,
  context: BuildContext,
): Promise<ContentRef> {
  const present = new Map<string, TreeEntry>();
  if (now !== null) {
    for await (const entry of entriesOf(context.reader, now))
      present.set(entry.name.toString('latin1'), entry);
  }
  const pieces: Piece[] = [];
  const cutter = new TreeSplitter((body) => {
    pieces.push({ index: pieces.length, hash: context.sink(OBJECT_KINDS.tree, body) });
  });
  for (const key of [...planned.keys()].sort()) {
    const item = planned.get(key);
    if (item !== undefined)
      cutter.add(await entryOf(Buffer.from(key, 'latin1'), item, present.get(key), context));
  }
  cutter.end();
  return buildContentRef(pieces, context.sink);
}

async function entryOf(
  name: Buffer,
  item: SeedItem | PlannedDirectory,
  present: TreeEntry | undefined,
  context: BuildContext,
): Promise<TreeEntry> {
  const timeOf = (type: TreeEntry['type']): bigint => (present?.type === type ? present.mtimeNs : 0n);
  if (item instanceof Map) {
    const now = present?.type === 'directory' ? present : null;
    const content = await folderOf(item, now, context);
    return { type: 'directory', name, mode: FOLDER_MODE, mtimeNs: timeOf('directory'), xattrs: [], content };
  }
  switch (item.kind) {
    case 'link': {
      const target = Buffer.from(item.target, 'base64');
      const mtimeNs = timeOf('symlink');
      return { type: 'symlink', name, mode: LINK_MODE, mtimeNs, xattrs: [], linkGroup: null, target };
    }
    case 'file': {
      const { mode, size } = item;
      const basics = { name, mode, mtimeNs: timeOf('file'), xattrs: [], linkGroup: null };
      return { ...basics, type: 'file', size, sparse: false, content: await contentOf(item, context) };
    }
    case 'folder':
      throw new TypeError('a folder item must be planned as a directory');
  }
}

async function contentOf(
  { source, size }: Extract<SeedItem, { kind: 'file' }>,
  { sink, signal }: BuildContext,
): Promise<ContentRef> {
  const pieces: Piece[] = [];
  for (let at = 0; at < size; at += pieceBytes) {
    signal?.throwIfAborted();
    const bytes = await readRange(source, at, Math.min(pieceBytes, size - at));
    pieces.push({ index: pieces.length, hash: hashOf(OBJECT_KINDS.blob, bytes) });
  }
  return buildContentRef(pieces, sink);
}
