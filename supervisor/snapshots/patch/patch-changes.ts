import { readContent } from '../../../snapshot-format/content.ts';
import type { FileEntry, TreeEntry } from '../../../snapshot-format/entries.ts';
import type { ObjectReader } from '../../../snapshot-format/objects.ts';
import type { PairedDifference } from '../compare/comparison.ts';
import type { PathSegments } from '../compare/differences.ts';
import { contentKey, isExecutable } from '../compare/renames.ts';
import type { PatchChange, PatchFile } from './write-patch.ts';

/** Larger files are omitted: git would have to hold them in memory, and a sparse file could be practically endless. */
export const PATCH_FILE_BYTES = 512 * 2 ** 20;
/** Zeros that stand for the holes of a file. */
const HOLE = Buffer.alloc(64 * 1024);
const SLASH = Buffer.from('/');

/**
 * One difference as a change of a patch; null when a patch cannot express it: patches know files and links, their
 * content and the executable bit. Content is read lazily.
 */
export function patchChangeOf(reader: ObjectReader, difference: PairedDifference): PatchChange | null {
  const { path, before, after, origin, sourceEntry } = difference;
  const now = sideOf(reader, path, after);
  const old =
    origin === null || now === null
      ? sideOf(reader, path, before)
      : sourceEntry === null
        ? { ...now, path: joined(origin.path), executable: origin.executable }
        : sideOf(reader, origin.path, sourceEntry);
  return old === null && now === null ? null : { before: old, after: now };
}

/** Whether the content of one side changed and is too large for a patch. */
export function isTooLarge({ before, after }: PatchChange): boolean {
  if (before !== null && after !== null && before.contentId === after.contentId) return false;
  return [before, after].some((side) => side !== null && side.size > PATCH_FILE_BYTES);
}

function sideOf(reader: ObjectReader, path: PathSegments, entry: TreeEntry | null): PatchFile | null {
  if (entry?.type === 'file') {
    return {
      path: joined(path),
      type: 'file',
      executable: isExecutable(entry),
      size: entry.size,
      contentId: contentKey(entry),
      content: () => wholeContent(reader, entry),
    };
  }
  if (entry?.type === 'symlink') {
    const { target } = entry;
    return {
      path: joined(path),
      type: 'symlink',
      executable: false,
      size: target.length,
      contentId: target.toString('latin1'),
      async *content() {
        yield await Promise.resolve(target);
      },
    };
  }
  return null;
}

function joined(path: PathSegments): Buffer {
  return Buffer.concat(path.flatMap((name, index) => (index === 0 ? [name] : [SLASH, name])));
}

/** The bytes as a read of the file returns them: holes are zeros. */
export async function* wholeContent(reader: ObjectReader, file: FileEntry): AsyncGenerator<Uint8Array> {
  let end = 0;
  for await (const { offset, bytes } of readContent(reader, file)) {
    yield* zeros(offset - end);
    yield bytes;
    end = offset + bytes.length;
  }
  yield* zeros(file.size - end);
}

function* zeros(count: number): Generator<Uint8Array> {
  for (let left = count; left > 0; left -= HOLE.length) yield HOLE.subarray(0, Math.min(left, HOLE.length));
}
