import { TimeSlice } from '../../protocol/time-slice.ts';
import { readContent } from '../../snapshot-format/content.ts';
import { type DirectoryEntry, entriesOf, parseRoot, type TreeEntry } from '../../snapshot-format/entries.ts';
import { type Hash, OBJECT_KINDS, type ObjectReader } from '../../snapshot-format/objects.ts';

/** One entry of a tree, as a search reads it. */
export interface TreeFile {
  /** Absolute. Bytes that are not UTF-8 are replaced. */
  readonly path: string;
  /** Name, target of a link and extended attributes. */
  readonly metadata: Buffer;
  /** Without holes. Read before the next entry. */
  readonly content: AsyncIterable<Buffer>;
}

/** Every entry of a tree, each directory before what is in it. `top`: where the tree lies. Errors: `snapshot_damaged`. */
export async function* treeFiles(
  reader: ObjectReader,
  root: Hash,
  top: string,
  signal: AbortSignal,
): AsyncGenerator<TreeFile> {
  const slices = new TimeSlice(signal);
  async function* inside(directory: DirectoryEntry, path: string): AsyncGenerator<TreeFile> {
    yield { path, metadata: metadataOf(directory), content: contentOf(reader, directory) };
    for await (const entry of entriesOf(reader, directory)) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      const below = `${path}/${entry.name.toString('utf8')}`;
      if (entry.type === 'directory') yield* inside(entry, below);
      else yield { path: below, metadata: metadataOf(entry), content: contentOf(reader, entry) };
    }
  }
  yield* inside(parseRoot(await reader.read(root, OBJECT_KINDS.root)), top);
}

function metadataOf(entry: TreeEntry): Buffer {
  const newline = Buffer.from('\n');
  const parts = [
    entry.name,
    ...(entry.type === 'symlink' ? [entry.target] : []),
    ...entry.xattrs.flatMap(({ name, value }) => [name, value]),
  ];
  return Buffer.concat(parts.flatMap((part) => [part, newline]));
}

async function* contentOf(reader: ObjectReader, entry: TreeEntry): AsyncGenerator<Buffer> {
  if (entry.type !== 'file') return;
  for await (const { bytes } of readContent(reader, entry)) yield bytes;
}
