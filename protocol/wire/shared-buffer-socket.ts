import type { Duplex } from 'node:stream';
import { connect, Socket, type SocketConstructorOpts } from 'node:net';

/**
 * Node reads each piece of a socket into 64 KiB of fresh memory. A connection that carries much spends more time on collecting that than
 * on everything else, although its reader copies the bytes at once. The sockets made here are all read into the same memory.
 */
const SCRATCH_BYTES = 64 * 1024;
let scratch: Buffer | undefined;

type TakeChunk = (chunk: Buffer) => void;
/** Who takes the bytes of a socket as they come; where nobody does, it is a stream like any other. */
const takers = new WeakMap<Duplex, { take: TakeChunk | undefined }>();

function lending(): {
  onread: NonNullable<SocketConstructorOpts['onread']>;
  serves: (socket: Socket) => Socket;
} {
  let own: Socket | undefined;
  const entry: { take: TakeChunk | undefined } = { take: undefined };
  scratch ??= Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  return {
    onread: {
      buffer: scratch,
      callback: (count, buffer) => {
        const chunk = (buffer as Buffer).subarray(0, count);
        if (own === undefined) return false;
        // A paused stream reads on until it has buffered enough; what is in its buffer comes first.
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

/** As `net.connect`. */
export function connectWithSharedBuffer(path: string): Socket {
  const { onread, serves } = lending();
  return serves(connect({ path, onread }));
}

/**
 * Calls `take` with every piece that comes, as long as the returned function is not called. A piece is only good until `take` returns:
 * where the socket was made here, the next one overwrites it.
 */
export function readChunks(stream: Duplex, take: TakeChunk): () => void {
  const entry = takers.get(stream);
  if (entry !== undefined) entry.take = take;
  // Also what came before there was anybody.
  stream.on('data', take);
  return () => {
    stream.off('data', take);
    if (entry?.take === take) entry.take = undefined;
  };
}

/**
 * A socket that a server has accepted, with `pauseOnConnect`, read in the same way; the one given must not be used beside it. It is
 * given back as it is where this Node does not let it be done. Either is to be read from the same turn of the event loop on.
 *
 * `onread` is an option of the constructor of sockets, and a server makes its own without it. The constructor takes a descriptor as well,
 * but nothing tells that of an accepted socket, and one that two handles poll is closed under one of them. So its handle is moved to
 * a socket that is made with `onread`.
 */
export function acceptWithSharedBuffer(socket: Socket): Socket {
  // Documentation names neither the field nor the option, and another Node may not have them.
  const handle: unknown = Reflect.get(socket, '_handle');
  if (typeof handle !== 'object' || handle === null || !('useUserBuffer' in handle)) {
    socket.resume();
    return socket;
  }
  const { onread, serves } = lending();
  Reflect.set(socket, '_handle', null);
  const own = serves(new Socket({ handle, onread } as unknown as SocketConstructorOpts));
  // Its server counts the one that it made.
  own.once('close', () => socket.destroy());
  return own;
}
