import { connectToSidecarSocket } from '../../supervisor/engine/docker/dial.ts';
import { FilesConnection } from '../../supervisor/workspace/files-connection.ts';
import type { ContainerPair } from './container-pair.ts';

/** Opens a connection for files to the pair's sidecar. */
export async function connectFiles(pair: ContainerPair): Promise<FilesConnection> {
  const dial = async () => {
    const socket = await connectToSidecarSocket(pair.path('control/sidecar.sock'));
    if (socket === null) throw new Error('the sidecar does not listen');
    return socket;
  };
  return await FilesConnection.open(dial, pair.session);
}
