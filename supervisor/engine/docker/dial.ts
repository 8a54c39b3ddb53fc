import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import type { Socket } from 'node:net';
import { HoldfastError } from '../../../protocol/errors.ts';
import { connectWithSharedBuffer } from '../../../protocol/wire/shared-buffer-socket.ts';

/** Linux's O_PATH, which Node does not name: a descriptor of the place itself, opened without touching what is there. */
const O_PATH = 0o10000000;

/**
 * Connects to a unix socket that a container may swap for anything at any time. What was checked is what is connected to: the
 * descriptor pins it, a link is refused, and the path may be longer than a socket address can carry. Null: nobody listens.
 */
export async function connectToSidecarSocket(path: string): Promise<Socket | null> {
  const descriptor = openPlace(path);
  if (descriptor === null) return null;
  try {
    if (!fstatSync(descriptor).isSocket()) throw notASocket(path);
    return await connected(`/proc/self/fd/${descriptor}`);
  } finally {
    closeSync(descriptor);
  }
}

function openPlace(path: string): number | null {
  try {
    return openSync(path, O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw error;
  }
}

function connected(path: string): Promise<Socket | null> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket | null>();
  const socket = connectWithSharedBuffer(path);
  const failed = (error: Error): void => {
    socket.destroy();
    // A socket without a listener is one that was left behind, that is just closed, or is about to be listened to.
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
    next: 'stop the session and look at what it ran',
    details: { path },
  });
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
