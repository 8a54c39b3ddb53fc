import type { Duplex } from 'node:stream';
import { connect, Socket, type SocketConstructorOpts } from 'node:net';

/**
 * Node reads each chunk of a socket into 64 KiB of fresh memory. Collecting that garbage costs more than everything else on
 * a connection that carries much: four times the processor time for reading a 100 MB file, 1.6 times for writing one. The
 * sockets made here read into a buffer instead. Each has its own, so a chunk that a reader retains by mistake never shows
 * the bytes of another connection.
 */
const READ_BUFFER_BYTES = 64 * 1024;

type TakeChunk = (chunk: Buffer) => void;
/** The direct reader of each socket. Without one the socket is an ordinary stream. */
const readers = new WeakMap<Duplex, { take: TakeChunk | undefined }>();

/** Makes a socket with a read buffer. The plain stream gets copies of the chunks. */
function withReadBuffer(make: (onread: NonNullable<SocketConstructorOpts['onread']>) => Socket): Socket {
  const reader: { take: TakeChunk | undefined } = { take: undefined };
  const socket: Socket = make({
    buffer: Buffer.allocUnsafeSlow(READ_BUFFER_BYTES),
    callback: (count, buffer) => {
      const chunk = (buffer as Buffer).subarray(0, count);
      // A paused stream still buffers some data, which must be read first.
      if (reader.take === undefined || socket.isPaused() || socket.readableLength > 0) {
        return socket.push(Buffer.from(chunk));
      }
      reader.take(chunk);
      return true;
    },
  });
  readers.set(socket, reader);
  return socket;
}

/** Like `net.connect`. */
export function connectWithReadBuffer(path: string): Socket {
  return withReadBuffer((onread) => connect({ path, onread }));
}

/**
 * Calls `take` with every chunk until the returned function is called. A chunk is valid only until `take` returns, because
 * the next one may overwrite it.
 */
export function readChunks(stream: Duplex, take: TakeChunk): () => void {
  const reader = readers.get(stream);
  if (reader !== undefined) reader.take = take;
  // Also delivers what was buffered before.
  stream.on('data', take);
  return () => {
    stream.off('data', take);
    if (reader?.take === take) reader.take = undefined;
  };
}

/**
 * Replaces a socket that a server has accepted with `pauseOnConnect` by one with a read buffer. The given socket must not be
 * used any more. Returns the given socket if this version of Node does not support that. Start reading the result in the
 * same turn of the event loop.
 *
 * `onread` is an option of the constructor of sockets, which servers do not pass. The constructor also accepts a file
 * descriptor, but Node does not expose that of an accepted socket. So the handle is moved to a new socket with `onread`.
 */
export function acceptWithReadBuffer(socket: Socket): Socket {
  // Neither the field nor the option is documented, so another version of Node may not have them.
  const handle: unknown = Reflect.get(socket, '_handle');
  if (typeof handle !== 'object' || handle === null || !('useUserBuffer' in handle)) {
    socket.resume();
    return socket;
  }
  Reflect.set(socket, '_handle', null);
  const accepted = withReadBuffer(
    (onread) => new Socket({ handle, onread } as unknown as SocketConstructorOpts),
  );
  // The server tracks the original socket.
  accepted.once('close', () => socket.destroy());
  return accepted;
}
