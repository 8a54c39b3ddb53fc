import { HoldfastError } from '../../protocol/errors.ts';
import { FILE_CHUNK_BYTES, LIST_LIMITS } from '../../protocol/files.ts';
import type { FileEntry, FileStat, WriteResult } from '../../protocol/files.ts';
import type { Connection } from '../connection/connection.ts';

/** Whole files cross VS Code's process boundary, and its memory: what is larger is not opened. */
export const MAX_FILE_BYTES = 50 * 2 ** 20;

/** Whose files: a session's as they are now, or what a snapshot has of them. */
export type FileSource = { readonly session: string } | { readonly snapshot: string };

/** What a write expects to find, see `files/write`. */
export type WritePrecondition =
  { readonly ifVersion: string } | { readonly create?: boolean; readonly overwrite?: boolean };

export interface WholeFile {
  readonly bytes: Buffer;
  readonly version: string;
  readonly mtimeMs: number;
}

/** What a file is, with the version that a write of it can be bound to. */
export interface VersionedStat {
  readonly size: number;
  readonly mtimeMs: number;
  readonly mtimeNs: string;
  /** Null where it is no regular file. */
  readonly version: string | null;
}

const AGAIN = { repeatable: true } as const;

/** Whole files and listings of a session or snapshot, put together from the pieces that the protocol carries. */
export class SessionFiles {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** What the path leads to, and whether it is a link. A link that leads nowhere is told of as itself. */
  async stat(source: FileSource, path: string): Promise<{ stat: FileStat; isLink: boolean }> {
    const own = await this.#connection.call('files/stat', { ...source, path, follow: false }, AGAIN);
    if (own.type !== 'symlink') return { stat: own, isLink: false };
    if (own.linkType === null) return { stat: own, isLink: true };
    return { stat: await this.#connection.call('files/stat', { ...source, path }, AGAIN), isLink: true };
  }

  async versionedStat(session: string, path: string): Promise<VersionedStat> {
    return this.#connection.call('files/stat', { session, path, version: true }, AGAIN);
  }

  async list(source: FileSource, path: string): Promise<FileEntry[]> {
    const all: FileEntry[] = [];
    let cursor: string | null = null;
    do {
      const page: { entries: FileEntry[]; nextCursor: string | null } = await this.#connection.call(
        'files/list',
        { ...source, path, limit: LIST_LIMITS.max, ...(cursor === null ? {} : { cursor }) },
        AGAIN,
      );
      all.push(...page.entries);
      cursor = page.nextCursor;
    } while (cursor !== null);
    return all;
  }

  /** Errors: `file_too_large`, and those of `files/read`. A file that changes between two pieces is read anew. */
  async read(source: FileSource, path: string): Promise<WholeFile> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#readOnce(source, path);
      } catch (error) {
        if (!isVersionConflict(error) || tries === 3) throw error;
      }
    }
  }

  async #readOnce(source: FileSource, path: string): Promise<WholeFile> {
    const first = await this.#connection.callWithBytes(
      'files/read',
      { ...source, path, length: FILE_CHUNK_BYTES },
      AGAIN,
    );
    const { size, version, mtimeMs } = first.result;
    if (size > MAX_FILE_BYTES) throw tooLarge(path, size, 'opened');
    const pieces = [first.bytes];
    for (let offset = first.bytes.length; offset < size;) {
      const { bytes } = await this.#connection.callWithBytes(
        'files/read',
        { ...source, path, offset, length: FILE_CHUNK_BYTES, ifVersion: version },
        AGAIN,
      );
      if (bytes.length === 0) break;
      pieces.push(bytes);
      offset += bytes.length;
    }
    const [only] = pieces;
    return {
      bytes: pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces),
      version,
      mtimeMs,
    };
  }

  /** The last bytes of a file, as many as one message carries, and the size of all of it. */
  async readTail(source: FileSource, path: string): Promise<{ bytes: Buffer; size: number }> {
    const { size } = await this.#connection.call('files/stat', { ...source, path }, AGAIN);
    const { result, bytes } = await this.#connection.callWithBytes(
      'files/read',
      { ...source, path, offset: Math.max(0, size - FILE_CHUNK_BYTES), length: FILE_CHUNK_BYTES },
      AGAIN,
    );
    return { bytes, size: result.size };
  }

  /** Errors: `conflict` with `details.version` (null: the file is gone) where it is not what was expected. */
  async write(
    session: string,
    path: string,
    content: Uint8Array,
    expectation: WritePrecondition,
  ): Promise<WriteResult> {
    if (content.byteLength > MAX_FILE_BYTES) throw tooLarge(path, content.byteLength, 'saved');
    if (content.byteLength <= FILE_CHUNK_BYTES) {
      const params = { session, path, ...expectation };
      // What is there already may be written again.
      return this.#connection.call('files/write', params, { ...AGAIN, bytes: content });
    }
    // An upload belongs to its connection, so all of it goes over one.
    const peer = await this.#connection.ready();
    const { upload } = await peer.call('files/begin', { session, path, ...expectation });
    try {
      for (let offset = 0; offset < content.byteLength; offset += FILE_CHUNK_BYTES) {
        const bytes = content.subarray(offset, offset + FILE_CHUNK_BYTES);
        await peer.call('files/append', { session, upload, offset }, { bytes });
      }
      return await peer.call('files/commit', { session, upload, size: content.byteLength });
    } catch (error) {
      // Without an answer here it goes with its connection.
      await peer.call('files/abort', { session, upload }).catch(() => undefined);
      throw error;
    }
  }

  async createFolder(session: string, path: string): Promise<void> {
    await this.#connection.call('files/mkdir', { session, path });
  }

  async remove(session: string, path: string, recursive: boolean): Promise<void> {
    await this.#connection.call('files/delete', { session, path, recursive });
  }

  async rename(session: string, from: string, to: string, overwrite: boolean): Promise<void> {
    await this.#connection.call('files/rename', { session, from, to, overwrite });
  }

  async copy(session: string, from: string, to: string, overwrite: boolean): Promise<void> {
    await this.#connection.call('files/copy', { session, from, to, overwrite });
  }
}

/** The file is not what was expected. */
export function isVersionConflict(error: unknown): error is HoldfastError {
  return (
    error instanceof HoldfastError &&
    error.code === 'conflict' &&
    error.details !== undefined &&
    Object.hasOwn(error.details, 'version')
  );
}

function tooLarge(path: string, size: number, what: 'opened' | 'saved'): HoldfastError {
  const megabytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(bytes < 2 ** 30 ? 1 : 0)} MB`;
  return new HoldfastError('file_too_large', `${path} cannot be ${what} here`, {
    why: `it has ${megabytes(size)}, and an editor takes at most ${megabytes(MAX_FILE_BYTES)} of a session's file`,
    next: 'look at it in a terminal, or copy it out with `holdfast workspace cat`',
  });
}
