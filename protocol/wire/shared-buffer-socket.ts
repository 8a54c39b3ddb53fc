import type { Duplex } from 'node:stream';
import { connect, Socket, type SocketConstructorOpts } from 'node:net';

/**
 * Node reads each chunk of a socket into 64 KiB of fresh memory. Garbage collection of these buffers dominates the cost of
 * a busy connection, although its reader copies the bytes at once. The sockets created here all read into one buffer.
 */
const SHARED_BUFFER_BYTES = 64 * 1024;
let sharedBuffer: Buffer | undefined;

type TakeChunk = (chunk: Buffer) => void;
/** The direct reader of each socket. Without one the socket is an ordinary stream. */
const takers = new WeakMap<Duplex, { take: TakeChunk | undefined }>();

function onreadOption(): {
  onread: NonNullable<SocketConstructorOpts['onread']>;
  serves: (socket: Socket) => Socket;
} {
  let own: Socket | undefined;
  const entry: { take: TakeChunk | undefined } = { take: undefined };
  sharedBuffer ??= Buffer.allocUnsafeSlow(SHARED_BUFFER_BYTES);
  return {
    onread: {
      buffer: sharedBuffer,
      callback: (count, buffer) => {
        const chunk = (buffer as Buffer).subarray(0, count);
        if (own === undefined) return false;
        // A paused stream still buffers some data, which must be read first.
        if (entry.take === undefined || own.isPaused() || own.readableLength > 0)
          return own.push(Buffer.from(chunk));
        entry.take(chunk);
        return true;
      },
    },
    serves: (socket) => {
      own = socket;
      takers.set(socket, entry);
      return socket;
    },
  };
}

/** Like `net.connect`. */
export function connectWithSharedBuffer(path: string): Socket {
  const { onread, serves } = onreadOption();
  return serves(connect({ path, onread }));
}

/**
 * Calls `take` with every chunk until the returned function is called. A chunk is valid only until `take` returns, because
 * the next one may overwrite it.
 */
export function readChunks(stream: Duplex, take: TakeChunk): () => void {
  const entry = takers.get(stream);
  if (entry !== undefined) entry.take = take;
  // Also delivers what was buffered before.
  stream.on('data', take);
  return () => {
    stream.off('data', take);
    if (entry?.take === take) entry.take = undefined;
  };
}

/**
 * Replaces a socket that a server has accepted with `pauseOnConnect` by one that reads into the shared buffer. The given
 * socket must not be used any more. Returns the given socket if this version of Node does not support that. Start reading
 * the result in the same turn of the event loop.
 *
 * `onread` is an option of the constructor of sockets, which servers do not pass. The constructor also accepts a file
 * descriptor, but Node does not expose that of an accepted socket. So the handle is moved to a new socket with `onread`.
 */
export function acceptWithSharedBuffer(socket: Socket): Socket {
  // Neither the field nor the option is documented, so another version of Node may not have them.
  const handle: unknown = Reflect.get(socket, '_handle');
  if (typeof handle !== 'object' || handle === null || !('useUserBuffer' in handle)) {
    socket.resume();
    return socket;
  }
  const { onread, serves } = onreadOption();
  Reflect.set(socket, '_handle', null);
  const own = serves(new Socket({ handle, onread } as unknown as SocketConstructorOpts));
  // The server tracks the original socket.
  own.once('close', () => socket.destroy());
  return own;
}
