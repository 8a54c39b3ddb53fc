import { FILE_CHUNK_BYTES, LIST_LIMITS } from '../../protocol/files.ts';
import type { FileEntry } from '../../protocol/files.ts';
import type { Connection } from '../connection/connection.ts';
import type { ExportSource } from './export-tree.ts';
import type { ImportTarget } from './import-tree.ts';

/** The workspace of a session for an export. */
export function exportSource(connection: Connection, session: string): ExportSource {
  return {
    stat: (path) => connection.call('files/stat', { session, path, follow: false }),
    async *list(path): AsyncGenerator<FileEntry> {
      for (let cursor: string | undefined; ;) {
        const page = await connection.call('files/list', {
          session,
          path,
          limit: LIST_LIMITS.max,
          ...(cursor === undefined ? {} : { cursor }),
        });
        yield* page.entries;
        if (page.nextCursor === null) return;
        cursor = page.nextCursor;
      }
    },
    read: async (path, offset, ifVersion) => {
      const expected = ifVersion === undefined ? {} : { ifVersion };
      const { result, bytes } = await connection.callWithBytes('files/read', {
        session,
        path,
        offset,
        length: FILE_CHUNK_BYTES,
        ...expected,
      });
      return { bytes, size: result.size, version: result.version };
    },
  };
}

/** The workspace of a session for an import. */
export function importTarget(connection: Connection, session: string): ImportTarget {
  return {
    makeFolder: async (path) => {
      await connection.call('files/mkdir', { session, path, parents: true });
    },
    write: async (path, pieces, { mode, size, overwrite }) => {
      const params = { session, path, create: true, overwrite, mode };
      if (size <= FILE_CHUNK_BYTES) {
        const content: Buffer[] = [];
        for await (const piece of pieces) content.push(piece);
        const bytes = Buffer.concat(content);
        if (bytes.length <= FILE_CHUNK_BYTES) {
          await connection.call('files/write', params, { bytes });
          return;
        }
        pieces = resliced(bytes);
      }
      // An upload belongs to its connection, so all its parts use the same peer.
      const peer = await connection.of(session).ready();
      const { upload } = await peer.call('files/begin', params);
      try {
        let offset = 0;
        for await (const bytes of pieces) {
          await peer.call('files/append', { session, upload, offset }, { bytes });
          offset += bytes.length;
        }
        await peer.call('files/commit', { session, upload, size: offset });
      } catch (error) {
        // If this fails, the upload ends with its connection.
        await peer.call('files/abort', { session, upload }).catch(() => undefined);
        throw error;
      }
    },
    link: async (path, text) => {
      await connection.call('files/symlink', { session, path, link: text });
    },
    remove: async (path) => {
      await connection.call('files/delete', { session, path });
    },
  };
}

/** Splits a file that has grown past the size of one message since its stat. */
async function* resliced(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += FILE_CHUNK_BYTES) {
    yield bytes.subarray(at, at + FILE_CHUNK_BYTES);
  }
}
