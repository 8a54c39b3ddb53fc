import type { OnReadOpts, Socket } from 'node:net';
import type { Tunnel } from './tunnel.ts';

/** Size of one read. */
const READ_BYTES = 64 * 1024;

/**
 * Copies what a server sends into a tunnel through one reused buffer: a new buffer per read makes garbage collection
 * cost more than the copying. At most one buffer is in flight, so a slow reader slows the server down.
 */
export class ReadBuffer {
  /** Data that arrived before `pipeInto`. */
  readonly #early: Buffer[] = [];
  #sink: { readonly tunnel: Tunnel; readonly upstream: Socket } | null = null;

  /** The option for `connect`; such a socket emits no data events. */
  get onread(): OnReadOpts {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    return {
      buffer,
      callback: (length) => {
        const bytes = buffer.subarray(0, length);
        if (this.#sink === null) this.#early.push(Buffer.from(bytes));
        else this.#write(bytes);
        // The buffer is free again when the tunnel has written it.
        return false;
      },
    };
  }

  /** Sends all data to the tunnel from now on; the end of the upstream ends that direction. */
  pipeInto(tunnel: Tunnel, upstream: Socket): void {
    this.#sink = { tunnel, upstream };
    const hasEnded = upstream.readableEnded;
    if (!hasEnded) upstream.once('end', () => tunnel.end());
    if (this.#early.length > 0) this.#write(Buffer.concat(this.#early.splice(0)));
    else if (hasEnded) tunnel.end();
    else upstream.resume();
  }

  #write(bytes: Buffer): void {
    const sink = this.#sink;
    if (sink === null) return;
    const { tunnel, upstream } = sink;
    tunnel.writeUnbuffered(bytes, () => {
      if (!upstream.destroyed) upstream.resume();
    });
  }
}
