import { createHash } from 'node:crypto';
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
  /** Without holes. Read before the next entry, or not at all. */
  readonly content: AsyncIterable<Buffer>;
  /** Of a large file. Equal for files with the same content, such as the names of one with hard links. */
  readonly contentId?: string;
}

/** A search of one ends within a slice or so. */
const CHUNK_BYTES = 64 * 1024;
/** Reading smaller ones again costs little. */
const IDENTIFIED_BYTES = 32 * 1024;

/** Every entry of a tree, each directory before what is in it. `top`: where the tree lies. Errors: `snapshot_damaged`. */
export async function* treeFiles(
  reader: ObjectReader,
  root: Hash,
  top: string,
  signal: AbortSignal,
): AsyncGenerator<TreeFile> {
  const slices = new TimeSlice(signal);
  async function* inside(directory: DirectoryEntry, path: string): AsyncGenerator<TreeFile> {
    yield { path, metadata: metadataOf(directory), content: contentOf(reader, directory, slices) };
    for await (const entry of entriesOf(reader, directory)) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      const below = `${path}/${entry.name.toString('utf8')}`;
      if (entry.type === 'directory') yield* inside(entry, below);
      else
        yield {
          path: below,
          metadata: metadataOf(entry),
          content: contentOf(reader, entry, slices),
          ...contentIdOf(entry),
        };
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

/** Frames of equal pieces are in memory, so that nothing but the slices lets the event loop run. */
async function* contentOf(reader: ObjectReader, entry: TreeEntry, slices: TimeSlice): AsyncGenerator<Buffer> {
  if (entry.type !== 'file') return;
  for await (const { bytes } of readContent(reader, entry)) {
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      yield bytes.subarray(at, at + CHUNK_BYTES);
    }
  }
}

function contentIdOf(entry: TreeEntry): Pick<TreeFile, 'contentId'> {
  if (entry.type !== 'file' || entry.size < IDENTIFIED_BYTES) return {};
  const { size, sparse, content } = entry;
  const hash = createHash('sha256').update(`${size} ${sparse} ${content.depth}`);
  for (const piece of content.items) hash.update(` ${piece.index} `).update(piece.hash);
  return { contentId: hash.digest('base64') };
}
