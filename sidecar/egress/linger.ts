import type { Socket } from 'node:net';
import { loadLibc } from '../libc.ts';

const SOL_SOCKET = 1;
const SO_LINGER = 13;
const LINGER_BYTES = 8;

/** Makes the kernel reset a connection that was not ended in order, even if the sidecar is killed (SO_LINGER). */
export interface Linger {
  /** From now on, closing the socket resets it unless `flushOnClose` was called. False if that cannot be set. */
  resetOnClose(socket: Socket): boolean;
  /** The connection ends in order: queued bytes must arrive before it closes. */
  flushOnClose(socket: Socket): void;
}

/** Loads koffi at first use. Without koffi, connections of a killed sidecar end as if they were complete. */
export async function loadLinger(): Promise<Linger> {
  const libc = await loadLibc('egress: connections cannot be reset on close');
  if (libc === null) return { resetOnClose: () => false, flushOnClose: () => undefined };
  const setsockopt = libc.func('int setsockopt(int, int, int, void *, uint)');
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

/** Node has no public access to a socket's descriptor. Null if the socket is closed, or if a later Node hides it. */
function descriptorOf(socket: Socket): number | null {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (typeof handle !== 'object' || handle === null) return null;
  const fd: unknown = Reflect.get(handle, 'fd');
  return typeof fd === 'number' && fd >= 0 ? fd : null;
}
