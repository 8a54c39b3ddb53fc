import type { OnReadOpts, Socket } from 'node:net';
import type { MessageChannel } from '../../protocol/wire/message-channel.ts';
import type { Tunnel } from './tunnel.ts';

/** Size of one read. */
const READ_BYTES = 64 * 1024;

interface Sink {
  /** `done`: the buffer may be reused. */
  readonly write: (bytes: Buffer, done: () => void) => void;
  readonly end: () => void;
  readonly upstream: Socket;
}

/**
 * Copies what a server sends through one reused buffer: a new buffer per read makes garbage collection cost more than the
 * copying. At most one buffer is in flight, so a slow reader slows the server down.
 */
export class ReadBuffer {
  /** Data that arrived before there was a sink. */
  readonly #early: Buffer[] = [];
  #sink: Sink | null = null;

  /** The option for `connect`; such a socket emits no data events. */
  get onread(): OnReadOpts {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    return {
      buffer,
      callback: (length) => {
        const bytes = buffer.subarray(0, length);
        if (this.#sink === null) this.#early.push(Buffer.from(bytes));
        else this.#write(bytes);
        // The buffer is free again when the sink has written it.
        return false;
      },
    };
  }

  /** Sends all data to the tunnel from now on; the end of the upstream ends that direction. */
  pipeIntoTunnel(tunnel: Tunnel, upstream: Socket): void {
    const write = (bytes: Buffer, done: () => void): void => tunnel.writeUnbuffered(bytes, done);
    this.#pipe({ write, end: () => tunnel.end(), upstream });
  }

  /** The same for a channel, which keeps what it is given until it has written it. */
  pipeIntoChannel(channel: MessageChannel, upstream: Socket): void {
    const write = (bytes: Buffer, done: () => void): void =>
      void channel.write(Buffer.from(bytes), () => done());
    this.#pipe({ write, end: () => channel.end(), upstream });
  }

  #pipe(sink: Sink): void {
    const { upstream, end } = sink;
    this.#sink = sink;
    const hasEnded = upstream.readableEnded;
    if (!hasEnded) upstream.once('end', end);
    if (this.#early.length > 0) {
      this.#write(Buffer.concat(this.#early.splice(0)));
      if (hasEnded) end();
    } else if (hasEnded) end();
    else upstream.resume();
  }

  #write(bytes: Buffer): void {
    const sink = this.#sink;
    if (sink === null) return;
    const { upstream } = sink;
    sink.write(bytes, () => {
      if (!upstream.destroyed) upstream.resume();
    });
  }
}
