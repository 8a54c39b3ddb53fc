import { dialChecked } from '../../supervisor/engine/docker/dial.ts';
import { FilesConnection } from '../../supervisor/workspace/files-connection.ts';
import type { SidecarPair } from './sidecar-pair.ts';

/** A connection for files with the pair's sidecar. */
export async function filesOf(pair: SidecarPair): Promise<FilesConnection> {
  const dial = async () => {
    const socket = await dialChecked(pair.path('control/sidecar.sock'));
    if (socket === null) throw new Error('the sidecar does not listen');
    return socket;
  };
  return await FilesConnection.open(dial, pair.session);
}
