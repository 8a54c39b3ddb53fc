import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  rmSync,
  statSync,
} from 'node:fs';
import type { Server, Socket } from 'node:net';
import { join } from 'node:path';
import { HoldfastError } from '../errors.ts';
import { connectWithReadBuffer } from '../wire/read-buffer.ts';

/** The directory and the name of a socket. */
export interface SocketLocation {
  readonly directory: string;
  readonly name: string;
  /** Whether /proc/self/fd may be used. Only tests set false. */
  readonly useProc?: boolean;
}

/** `sun_path` has 104 bytes on some systems and 108 on others, including the terminating NUL. */
const MAX_ADDRESS_BYTES = 103;
/** Not os.tmpdir(), because programs with different TMPDIR would use different paths. */
const SHORT_ROOT = '/tmp';

/** A socket address that is short enough for the system, valid until it is released. */
interface Address {
  readonly path: string;
  release(): void;
  /** Removes what was created only for this address. */
  forget(): void;
}

/**
 * Listens on a socket that only its owner can use. Resolves with the function that stops listening and removes the socket.
 * Errors: EADDRINUSE if the socket exists, `permission_denied` if the directory belongs to another user.
 */
export async function listenAt(server: Server, place: SocketLocation): Promise<() => Promise<void>> {
  const address = openAddress(place, true);
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(address.path, () => {
        server.off('error', reject);
        resolve();
      });
    });
    chmodSync(address.path, 0o600);
  } catch (error) {
    if (server.listening) server.close();
    address.release();
    throw error;
  }
  return async () => {
    // Closing removes the socket by its address, so that address must be valid until then.
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    address.release();
    address.forget();
    await closed;
  };
}

/** Connects to a socket. Errors: those of the system (`ENOENT` and `ECONNREFUSED`: nobody listens), `permission_denied`. */
export async function dialAt(place: SocketLocation, signal?: AbortSignal): Promise<Socket> {
  const cancelled = (): HoldfastError =>
    new HoldfastError('cancelled', 'Connecting to the supervisor was cancelled', { cause: signal?.reason });
  if (signal?.aborted === true) throw cancelled();
  const address = openAddress(place, false);
  try {
    return await new Promise<Socket>((resolve, reject) => {
      const socket = connectWithReadBuffer(address.path);
      const onAbort = (): void => {
        socket.destroy(
          new HoldfastError('cancelled', 'Connecting to the supervisor was cancelled', {
            cause: signal?.reason,
          }),
        );
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      const settle = (): void => {
        signal?.removeEventListener('abort', onAbort);
        socket.off('connect', onConnect);
        socket.off('error', onError);
      };
      const onConnect = (): void => {
        settle();
        resolve(socket);
      };
      const onError = (error: Error): void => {
        settle();
        reject(error);
      };
      socket.once('connect', onConnect);
      socket.once('error', onError);
    });
  } finally {
    address.release();
  }
}

/** Removes the socket of a killed process. The caller must hold the lock of the home, so that nobody is listening. */
export function removeStaleSocket(place: SocketLocation): void {
  const address = openAddress(place, true);
  try {
    rmSync(address.path, { force: true });
  } finally {
    address.release();
  }
}

function openAddress(place: SocketLocation, create: boolean): Address {
  const descriptor = openSync(place.directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    refuseForeign(place.directory, fstatSync(descriptor));
    const link = `/proc/self/fd/${descriptor}`;
    if (place.useProc !== false && leadsTo(link, descriptor)) {
      return { path: `${link}/${place.name}`, release: () => closeSync(descriptor), forget: () => undefined };
    }
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
  closeSync(descriptor);
  const direct = join(place.directory, place.name);
  const none = (): void => undefined;
  if (Buffer.byteLength(direct) <= MAX_ADDRESS_BYTES) return { path: direct, release: none, forget: none };
  const short = shortDirectory(place, create);
  const forget = (): void => rmSync(short, { recursive: true, force: true });
  return { path: join(short, 'socket'), release: none, forget };
}

function leadsTo(link: string, descriptor: number): boolean {
  const wanted = fstatSync(descriptor);
  const found = statSync(link, { throwIfNoEntry: false });
  return found?.ino === wanted.ino && found.dev === wanted.dev;
}

/** A private directory with a short name that depends only on the location of the socket. */
function shortDirectory(place: SocketLocation, create: boolean): string {
  const uid = process.getuid?.() ?? 0;
  const hash = createHash('sha256').update(join(place.directory, place.name)).digest('hex').slice(0, 16);
  const directory = join(SHORT_ROOT, `holdfast-${uid}-${hash}`);
  if (create) {
    try {
      mkdirSync(directory, { mode: 0o700 });
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    }
  }
  // Every user can create files in /tmp: use the directory only if we own it and nobody else can access it.
  const found = lstatSync(directory);
  if (!found.isDirectory()) throw foreign(directory, 'it is not a directory');
  refuseForeign(directory, found);
  if ((found.mode & 0o077) !== 0) throw foreign(directory, 'other users may enter it');
  return directory;
}

function refuseForeign(directory: string, found: { readonly uid: number; readonly mode: number }): void {
  const uid = process.getuid?.();
  if (uid !== undefined && found.uid !== uid) {
    throw foreign(directory, `it belongs to user ${found.uid} and this program runs as user ${uid}`);
  }
  if ((found.mode & 0o022) !== 0) throw foreign(directory, 'other users may write to it');
}

function foreign(directory: string, why: string): HoldfastError {
  return new HoldfastError('permission_denied', `The socket directory ${directory} is not safe to use`, {
    why,
    next: 'make it your own with mode 0700, or set HOLDFAST_HOME to another directory',
  });
}
