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
import { connectWithSharedBuffer } from '../wire/shared-buffer-socket.ts';

/** A socket by the directory it lies in and its name there. */
export interface SocketLocation {
  readonly directory: string;
  readonly name: string;
  /** Whether /proc/self/fd may be used; only tests say no. */
  readonly useProc?: boolean;
}

/** `sun_path` takes 104 bytes on some systems and 108 on others, and ends with a zero. */
const LONGEST_ADDRESS = 103;
/** Not os.tmpdir(): two programs with another TMPDIR each would not meet. */
const SHORT_ROOT = '/tmp';

/** An address that the system takes, however long the path is, for as long as it is held. */
interface Address {
  readonly path: string;
  release(): void;
  /** Removes what was made for the address alone. */
  forget(): void;
}

/**
 * Listens at a place and makes the socket its owner's alone. Resolves with the end of it, which removes the socket again.
 * Errors: EADDRINUSE where one lies there already, `permission_denied` where the directory is not ours.
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
    // Closing removes the socket by the address it was bound to, which must mean the same directory until then.
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    address.release();
    address.forget();
    await closed;
  };
}

/** Errors: those of the system (`ENOENT` and `ECONNREFUSED` mean that nobody listens), `permission_denied`. */
export async function dialAt(place: SocketLocation, signal?: AbortSignal): Promise<Socket> {
  const givenUp = (): HoldfastError =>
    new HoldfastError('cancelled', 'The supervisor was not called', { cause: signal?.reason });
  if (signal?.aborted === true) throw givenUp();
  const address = openAddress(place, false);
  try {
    return await new Promise<Socket>((resolve, reject) => {
      const socket = connectWithSharedBuffer(address.path);
      const onAbort = (): void => {
        socket.destroy(
          new HoldfastError('cancelled', 'The supervisor was not called', { cause: signal?.reason }),
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

/** Removes what a killed process left. Only while nobody can be listening there: the caller holds the lock. */
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
  if (Buffer.byteLength(direct) <= LONGEST_ADDRESS) return { path: direct, release: none, forget: none };
  const short = shortDirectory(place, create);
  const forget = (): void => rmSync(short, { recursive: true, force: true });
  return { path: join(short, 'socket'), release: none, forget };
}

function leadsTo(link: string, descriptor: number): boolean {
  const wanted = fstatSync(descriptor);
  const found = statSync(link, { throwIfNoEntry: false });
  return found?.ino === wanted.ino && found.dev === wanted.dev;
}

/** A private directory with a short name, the same for everybody who means the same place. */
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
  // Anybody may make names there: what is found is used only if nobody else could have made it or can write to it.
  const found = lstatSync(directory);
  if (!found.isDirectory()) throw foreign(directory, 'it is not a directory');
  refuseForeign(directory, found);
  if ((found.mode & 0o077) !== 0) throw foreign(directory, 'others than its owner may enter it');
  return directory;
}

function refuseForeign(directory: string, found: { readonly uid: number; readonly mode: number }): void {
  const uid = process.getuid?.();
  if (uid !== undefined && found.uid !== uid) {
    throw foreign(directory, `it belongs to user ${found.uid} and this program runs as user ${uid}`);
  }
  if ((found.mode & 0o022) !== 0) throw foreign(directory, 'others than its owner may write to it');
}

function foreign(directory: string, why: string): HoldfastError {
  return new HoldfastError('permission_denied', `The socket in ${directory} is not used`, {
    why,
    next: 'make it your own and mode 0700, or name another directory in HOLDFAST_HOME',
  });
}
