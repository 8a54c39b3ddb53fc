import type { OnReadOpts, Socket } from 'node:net';
import type { Tunnel } from './tunnel.ts';

/** What is read at a time. */
const INTAKE_BYTES = 64 * 1024;

/**
 * Carries what a server sends into a tunnel through one buffer that is used again and again: a new one for every read makes the
 * collector of garbage cost more than the carrying. At most one buffer is on its way, so a slow reader slows the server down.
 */
export class ReadBuffer {
  /** What came before anybody took it. */
  readonly #early: Buffer[] = [];
  #sink: { readonly tunnel: Tunnel; readonly upstream: Socket } | null = null;

  /** For `connect`: such a socket has no data events. */
  get onread(): OnReadOpts {
    const buffer = Buffer.allocUnsafeSlow(INTAKE_BYTES);
    return {
      buffer,
      callback: (length) => {
        const bytes = buffer.subarray(0, length);
        if (this.#sink === null) this.#early.push(Buffer.from(bytes));
        else this.#carry(bytes);
        // The buffer is free again when the tunnel has passed it on.
        return false;
      },
    };
  }

  /** From here on everything goes into the tunnel; its end is the end of that direction. */
  pipeInto(tunnel: Tunnel, upstream: Socket): void {
    this.#sink = { tunnel, upstream };
    upstream.once('end', () => tunnel.end());
    if (this.#early.length > 0) this.#carry(Buffer.concat(this.#early.splice(0)));
    else upstream.resume();
  }

  #carry(bytes: Buffer): void {
    const sink = this.#sink;
    if (sink === null) return;
    const { tunnel, upstream } = sink;
    tunnel.writeUnbuffered(bytes, () => {
      if (!upstream.destroyed) upstream.resume();
    });
  }
}
