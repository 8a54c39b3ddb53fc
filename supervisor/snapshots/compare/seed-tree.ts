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

/** By name (latin1). */
type Planned = Map<string, SeedItem | Planned>;

interface Making {
  readonly reader: ObjectReader;
  readonly sink: ObjectSink;
  readonly signal: AbortSignal | undefined;
}

/**
 * The tree of a workspace that begins with these items; its objects but for the files' contents go to `sink`. Nothing begins with a
 * time: what is in `now` under the same name and of the same type lends its own, and the top all of its attributes, so that a
 * comparison with `now` tells of what would be another file only.
 */
export async function seedTree(
  items: AsyncIterable<SeedItem> | null,
  now: DirectoryEntry,
  making: Making,
): Promise<Hash> {
  const top: Planned = new Map();
  for await (const item of items ?? []) {
    making.signal?.throwIfAborted();
    const names = parsePath(item.path).map((name) => name.toString('latin1'));
    let folder = top;
    for (const name of names.slice(0, -1)) {
      const below = folder.get(name);
      if (below instanceof Map) folder = below;
    }
    folder.set(names.at(-1) ?? '', item.kind === 'folder' ? new Map<string, SeedItem | Planned>() : item);
  }
  const content = await folderOf(top, now, making);
  return making.sink(OBJECT_KINDS.root, encodeRoot({ ...now, content }));
}

async function folderOf(planned: Planned, now: DirectoryEntry | null, making: Making): Promise<ContentRef> {
  const present = new Map<string, TreeEntry>();
  if (now !== null) {
    for await (const entry of entriesOf(making.reader, now))
      present.set(entry.name.toString('latin1'), entry);
  }
  const pieces: Piece[] = [];
  const cutter = new TreeSplitter((body) => {
    pieces.push({ index: pieces.length, hash: making.sink(OBJECT_KINDS.tree, body) });
  });
  for (const key of [...planned.keys()].sort()) {
    const item = planned.get(key);
    if (item !== undefined)
      cutter.add(await entryOf(Buffer.from(key, 'latin1'), item, present.get(key), making));
  }
  cutter.end();
  return buildContentRef(pieces, making.sink);
}

async function entryOf(
  name: Buffer,
  item: SeedItem | Planned,
  present: TreeEntry | undefined,
  making: Making,
): Promise<TreeEntry> {
  const timeOf = (type: TreeEntry['type']): bigint => (present?.type === type ? present.mtimeNs : 0n);
  if (item instanceof Map) {
    const now = present?.type === 'directory' ? present : null;
    const content = await folderOf(item, now, making);
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
      return { ...basics, type: 'file', size, sparse: false, content: await contentOf(item, making) };
    }
    case 'folder':
      throw new TypeError('a folder is planned as one');
  }
}

async function contentOf(
  { source, size }: Extract<SeedItem, { kind: 'file' }>,
  { sink, signal }: Making,
): Promise<ContentRef> {
  const pieces: Piece[] = [];
  for (let at = 0; at < size; at += pieceBytes) {
    signal?.throwIfAborted();
    const bytes = await readRange(source, at, Math.min(pieceBytes, size - at));
    pieces.push({ index: pieces.length, hash: hashOf(OBJECT_KINDS.blob, bytes) });
  }
  return buildContentRef(pieces, sink);
}
