import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import type { Socket } from 'node:net';
import { HoldfastError } from '../../../protocol/errors.ts';
import { connectWithReadBuffer } from '../../../protocol/wire/read-buffer.ts';

/** Linux's O_PATH, which Node does not export: a descriptor of the path itself, opened without touching the file. */
const O_PATH = 0o10000000;

/**
 * Connects to a unix socket that a container may replace at any time. The descriptor pins the checked inode, so the
 * connection goes to exactly that; a symbolic link is refused, and the path may be longer than a socket address
 * allows. Null: nobody listens.
 */
export async function connectToSidecarSocket(path: string): Promise<Socket | null> {
  const descriptor = openPath(path);
  if (descriptor === null) return null;
  try {
    if (!fstatSync(descriptor).isSocket()) throw notASocket(path);
    return await connected(`/proc/self/fd/${descriptor}`);
  } finally {
    closeSync(descriptor);
  }
}

function openPath(path: string): number | null {
  try {
    return openSync(path, O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw error;
  }
}

function connected(path: string): Promise<Socket | null> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket | null>();
  const socket = connectWithReadBuffer(path);
  const failed = (error: Error): void => {
    socket.destroy();
    // A socket without a listener: a leftover, just closed, or about to listen.
    if (['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ENOENT', 'EAGAIN'].includes(codeOf(error) ?? ''))
      resolve(null);
    else reject(error);
  };
  socket.once('error', failed);
  socket.once('connect', () => {
    socket.off('error', failed);
    resolve(socket);
  });
  return promise;
}

function notASocket(path: string): HoldfastError {
  return new HoldfastError('sandbox_failed', 'The sidecar cannot be reached', {
    why: `${path} is not a socket: something in the sandbox replaced it`,
    next: 'stop the session and check what it ran',
    details: { path },
  });
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
