import { HoldfastError } from '../../protocol/errors.ts';
import { FILE_CHUNK_BYTES, LIST_LIMITS } from '../../protocol/files.ts';
import type { FileEntry, FileStat, WriteResult } from '../../protocol/files.ts';
import type { HostConnection } from '../connection/host-connection.ts';

/** VS Code holds whole files in memory and copies them between its processes, so larger ones are not opened. */
export const MAX_FILE_BYTES = 50 * 2 ** 20;

/**
 * The rest of a large file comes in parts of which some are asked for ahead, because on another machine each answer is a
 * round trip away. What is on its way together is what ssh carries in one round trip of 50 ms (2 MiB) and a little more:
 * the echo of a key waits behind it.
 */
const PART_BYTES = 2 ** 20;
const PARTS_AHEAD = 3;

/** A connection to one host, or to all. */
export type SessionConnection = Pick<HostConnection, 'call' | 'callWithBytes'> & {
  of(session: string): Pick<HostConnection, 'ready'>;
};

/** A session's files as they are now, or a snapshot's. */
export type FileSource = { readonly session: string } | { readonly snapshot: string };

/** What a write requires of the existing file, see `files/write`. */
export type WritePrecondition =
  { readonly ifVersion: string } | { readonly create?: boolean; readonly overwrite?: boolean };

export interface WholeFile {
  readonly bytes: Buffer;
  readonly version: string;
  readonly mtimeMs: number;
}

/** The stat of a file with the version that a write can require: null where it is no regular file. */
export type VersionedStat = FileStat & { readonly version: string | null };

/** Reads and writes whole files and listings of a session or snapshot, which the protocol transfers in parts. */
export class SessionFiles {
  readonly #connection: SessionConnection;

  constructor(connection: SessionConnection) {
    this.#connection = connection;
  }

  /** The stat of the target of a path, and whether the path is a link. A dangling link has its own stat. */
  async stat(source: FileSource, path: string): Promise<{ stat: FileStat; isLink: boolean }> {
    const own = await this.#connection.call('files/stat', { ...source, path, follow: false });
    if (own.type !== 'symlink') return { stat: own, isLink: false };
    if (own.linkType === null) return { stat: own, isLink: true };
    return { stat: await this.#connection.call('files/stat', { ...source, path }), isLink: true };
  }

  async versionedStat(session: string, path: string): Promise<VersionedStat> {
    return this.#connection.call('files/stat', { session, path, version: true });
  }

  async list(source: FileSource, path: string): Promise<FileEntry[]> {
    const all: FileEntry[] = [];
    let cursor: string | null = null;
    do {
      const page: { entries: FileEntry[]; nextCursor: string | null } = await this.#connection.call(
        'files/list',
        { ...source, path, limit: LIST_LIMITS.max, ...(cursor === null ? {} : { cursor }) },
      );
      all.push(...page.entries);
      cursor = page.nextCursor;
    } while (cursor !== null);
    return all;
  }

  /** Errors: `file_too_large`, and those of `files/read`. A file that changes while it is read is read again. */
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
    const first = await this.#connection.callWithBytes('files/read', {
      ...source,
      path,
      length: FILE_CHUNK_BYTES,
    });
    const { size, version, mtimeMs } = first.result;
    if (size > MAX_FILE_BYTES) throw tooLarge(path, size, 'opened');
    const pieces = [first.bytes];
    const ahead: Promise<{ readonly bytes: Buffer }>[] = [];
    const ask = (offset: number): void => {
      if (offset >= size) return;
      const part = this.#connection.callWithBytes('files/read', {
        ...source,
        path,
        offset,
        length: PART_BYTES,
        ifVersion: version,
      });
      // Its failure is seen when it is awaited, unless an earlier part fails first.
      part.catch(() => undefined);
      ahead.push(part);
    };
    const begin = first.bytes.length;
    if (begin > 0) for (let n = 0; n < PARTS_AHEAD; n += 1) ask(begin + n * PART_BYTES);
    for (let n = PARTS_AHEAD; ; n += 1) {
      const part = ahead.shift();
      if (part === undefined) break;
      pieces.push((await part).bytes);
      ask(begin + n * PART_BYTES);
    }
    const [only] = pieces;
    return {
      bytes: pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces),
      version,
      mtimeMs,
    };
  }

  /** The last bytes of a file, as many as fit into one message, and the size of the file. */
  async readTail(source: FileSource, path: string): Promise<{ bytes: Buffer; size: number }> {
    const { size } = await this.#connection.call('files/stat', { ...source, path });
    const { result, bytes } = await this.#connection.callWithBytes('files/read', {
      ...source,
      path,
      offset: Math.max(0, size - FILE_CHUNK_BYTES),
      length: FILE_CHUNK_BYTES,
    });
    return { bytes, size: result.size };
  }

  /** Errors: `conflict` with `details.version` (null: the file was deleted) where the precondition does not hold. */
  async write(
    session: string,
    path: string,
    content: Uint8Array,
    precondition: WritePrecondition,
  ): Promise<WriteResult> {
    if (content.byteLength > MAX_FILE_BYTES) throw tooLarge(path, content.byteLength, 'saved');
    if (content.byteLength <= FILE_CHUNK_BYTES) {
      const params = { session, path, ...precondition };
      return this.#connection.call('files/write', params, { bytes: content });
    }
    // An upload belongs to its connection, so all its parts use the same peer.
    const peer = await this.#connection.of(session).ready();
    const { upload } = await peer.call('files/begin', { session, path, ...precondition });
    try {
      for (let offset = 0; offset < content.byteLength; offset += FILE_CHUNK_BYTES) {
        const bytes = content.subarray(offset, offset + FILE_CHUNK_BYTES);
        await peer.call('files/append', { session, upload, offset }, { bytes });
      }
      return await peer.call('files/commit', { session, upload, size: content.byteLength });
    } catch (error) {
      // If this fails, the upload ends with its connection.
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

/** Whether a write failed because its precondition did not hold. */
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
    why: `it has ${megabytes(size)}, and the limit for session files in the editor is ${megabytes(MAX_FILE_BYTES)}`,
    next: 'view it in a terminal of the session, or copy it with `holdfast workspace cat`',
  });
}
