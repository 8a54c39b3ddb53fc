import { HoldfastError } from '../../../protocol/errors.ts';
import {
  FILE_CHUNK_BYTES,
  type FileEntry,
  type FileStat,
  type FileType,
  LIST_LIMITS,
} from '../../../protocol/files.ts';
import { decodeName, encodeLink, encodeName, parsePath } from '../../../protocol/paths.ts';
import { contentPieces, extentsOfPiece } from '../../../snapshot-format/content.ts';
import { entriesOf, type FileEntry as StoredFile, type TreeEntry } from '../../../snapshot-format/entries.ts';
import {
  type Hash,
  OBJECT_KINDS,
  type ObjectReader,
  SNAPSHOT_LIMITS,
} from '../../../snapshot-format/objects.ts';
import { isMissing } from '../../../snapshot-format/missing-entry.ts';
import { contentKey } from '../compare/renames.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import { resolveEntry } from './resolve.ts';

const NS_PER_MS = 1_000_000n;
/** Characters of one page, so that the answer fits into one line of at most 1 MiB. */
const PAGE_CHARACTERS = 256 * 1024;

export interface ReadPart {
  readonly bytes: Buffer;
  readonly offset: number;
  readonly size: number;
  readonly version: string;
  readonly mtimeMs: number;
  readonly mode: number;
}

/**
 * Serves the files of one tree as `files/stat`, `files/list` and `files/read` serve those of a workspace. They never
 * change.
 */
export class SnapshotFiles {
  readonly #reader: ObjectReader;
  readonly #root: Hash;

  constructor(reader: ObjectReader, root: Hash) {
    this.#reader = reader;
    this.#root = root;
  }

  async stat(
    path: string,
    { follow = true, version = false }: { follow?: boolean | undefined; version?: boolean | undefined },
  ): Promise<FileStat & { version: string | null }> {
    const names = parsePath(path);
    const entry = await resolveEntry(this.#reader, this.#root, names, path, follow);
    const stat = await this.#view(entry, names);
    return { ...stat, version: version && entry.type === 'file' ? versionOf(entry) : null };
  }

  async list(
    path: string,
    { cursor, limit = LIST_LIMITS.default }: { cursor?: string | undefined; limit?: number | undefined },
    signal?: AbortSignal,
  ): Promise<{ entries: FileEntry[]; nextCursor: string | null }> {
    const names = parsePath(path);
    const folder = await resolveEntry(this.#reader, this.#root, names, path, true);
    if (folder.type !== 'directory')
      throw new HoldfastError('file_not_a_directory', `${path} is not a folder`);
    const after = cursor === undefined ? null : decodeName(cursor);
    const slices = new TimeSlice(signal);
    const entries: FileEntry[] = [];
    let last = '';
    let characters = 0;
    for await (const entry of entriesOf(this.#reader, folder)) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      if (isMissing(entry)) continue;
      if (after !== null && entry.name.compare(after) <= 0) continue;
      if (entries.length >= limit || characters > PAGE_CHARACTERS) return { entries, nextCursor: last };
      const stat = await this.#view(entry, [...names, entry.name]);
      last = encodeName(entry.name);
      entries.push({ name: last, ...stat });
      // An upper bound: an escaped byte takes three characters, and a character up to three bytes.
      characters += 100 + last.length + (stat.link?.length ?? 0);
    }
    return { entries, nextCursor: null };
  }

  async read(
    path: string,
    {
      offset = 0,
      length = FILE_CHUNK_BYTES,
      ifVersion,
    }: {
      offset?: number | undefined;
      length?: number | undefined;
      ifVersion?: string | undefined;
    },
  ): Promise<ReadPart> {
    const entry = await resolveEntry(this.#reader, this.#root, parsePath(path), path, true);
    if (entry.type === 'directory') throw new HoldfastError('file_is_a_directory', `${path} is a folder`);
    if (entry.type !== 'file') throw new HoldfastError('file_not_regular', `${path} is not a regular file`);
    const version = versionOf(entry);
    if (ifVersion !== undefined && ifVersion !== version) {
      throw new HoldfastError('conflict', `${path} has another version`, {
        why: 'files of a snapshot never change, so the requested version belongs to another file',
        details: { version },
      });
    }
    const bytes = await this.#content(entry, offset, Math.min(length, Math.max(0, entry.size - offset)));
    const { size, mode } = entry;
    return { bytes, offset, size, version, mtimeMs: msOf(entry), mode };
  }

  /** The bytes as a read of the file returns them: holes are zeros. */
  async #content(entry: StoredFile, offset: number, length: number): Promise<Buffer> {
    const bytes = Buffer.alloc(length);
    const end = offset + length;
    const kind = entry.sparse ? OBJECT_KINDS.block : OBJECT_KINDS.blob;
    for await (const piece of contentPieces(this.#reader, entry)) {
      const begin = piece.index * SNAPSHOT_LIMITS.pieceBytes;
      if (begin + SNAPSHOT_LIMITS.pieceBytes <= offset) continue;
      if (begin >= end) break;
      for (const extent of extentsOfPiece(entry, piece, await this.#reader.read(piece.hash, kind))) {
        const from = Math.max(extent.offset, offset);
        const to = Math.min(extent.offset + extent.bytes.length, end);
        if (from < to) extent.bytes.copy(bytes, from - offset, from - extent.offset, to - extent.offset);
      }
    }
    return bytes;
  }

  async #view(entry: TreeEntry, path: readonly Buffer[]): Promise<FileStat> {
    const isLink = entry.type === 'symlink';
    return {
      type: entry.type,
      size: entry.type === 'file' ? entry.size : isLink ? entry.target.length : 0,
      mtimeMs: msOf(entry),
      mtimeNs: String(entry.mtimeNs),
      mode: entry.mode,
      link: isLink ? encodeLink(entry.target) : null,
      linkType: isLink ? await this.#targetType(path) : null,
    };
  }

  async #targetType(path: readonly Buffer[]): Promise<FileType | null> {
    try {
      return (await resolveEntry(this.#reader, this.#root, path, '', true)).type;
    } catch (error) {
      // The link is dangling. Other errors, such as damage, fail the listing.
      if (error instanceof HoldfastError && error.code.startsWith('file_')) return null;
      throw error;
    }
  }
}

function versionOf(entry: StoredFile): string {
  return `snapshot-${Buffer.from(contentKey(entry), 'latin1').toString('hex')}`;
}

/** Whole milliseconds, rounded as `stat` of a live file rounds them. */
function msOf({ mtimeNs }: TreeEntry): number {
  return Number(mtimeNs / NS_PER_MS);
}
