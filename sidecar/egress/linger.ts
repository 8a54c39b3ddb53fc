import type { Socket } from 'node:net';

const SOL_SOCKET = 1;
const SO_LINGER = 13;
const LINGER_BYTES = 8;

/** Makes the kernel reset a connection that nobody has ended in order, also when it is the kernel that closes it after our death. */
export interface Linger {
  /** From here on, closing it without `orderly` resets it. False where that cannot be had. */
  resetOnClose(socket: Socket): boolean;
  /** Its end is on the way: what is queued must arrive before the connection goes. */
  flushOnClose(socket: Socket): void;
}

/** Loads koffi, at the first use only. Without it a killed sidecar ends connections as if they had come to their end. */
export async function loadLinger(): Promise<Linger> {
  let koffi;
  try {
    ({ default: koffi } = await import('koffi'));
  } catch (error) {
    console.error('egress: connections cannot be made to reset:', error);
    return { resetOnClose: () => false, flushOnClose: () => undefined };
  }
  const setsockopt = koffi.load(null).func('int setsockopt(int, int, int, void *, uint)');
  const set = (socket: Socket, on: number): boolean => {
    const fd = descriptorOf(socket);
    if (fd === null) return false;
    const value = Buffer.alloc(LINGER_BYTES);
    value.writeInt32LE(on, 0);
    const result: unknown = setsockopt(fd, SOL_SOCKET, SO_LINGER, value, LINGER_BYTES);
    return result === 0;
  };
  return {
    resetOnClose: (socket) => set(socket, 1),
    flushOnClose: (socket) => void set(socket, 0),
  };
}

/** Node has no public way to a socket's descriptor; null once it is closed, or where a later Node hides it. */
function descriptorOf(socket: Socket): number | null {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (typeof handle !== 'object' || handle === null) return null;
  const fd: unknown = Reflect.get(handle, 'fd');
  return typeof fd === 'number' && fd >= 0 ? fd : null;
}
