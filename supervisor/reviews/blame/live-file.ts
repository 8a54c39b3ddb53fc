import { BLAME_LIMITS } from '../../../protocol/blame.ts';
import type { FilesConnections } from '../../workspace/files-connections.ts';
import type { LiveFile } from './blames.ts';

/** A file of a workspace as it is, as far as its lines are followed back. Errors: the `file_*` codes. */
export async function readLiveFile(
  connections: Pick<FilesConnections, 'use'>,
  sessionId: string,
  path: string,
  signal?: AbortSignal,
): Promise<LiveFile> {
  return await connections.use(sessionId, 'bulk', true, async (files) => {
    const { result, bytes, release } = await files.call(
      'files/read',
      { path, offset: 0, length: BLAME_LIMITS.bytes },
      signal === undefined ? {} : { signal },
    );
    const own = Buffer.from(bytes);
    release();
    return { bytes: own, version: result.version, size: result.size };
  });
}
