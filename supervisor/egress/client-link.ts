import { FINAL_RESPONSE_MS } from '../../egress-proxy/wire.ts';
import type { MessageChannel } from '../../protocol/wire/message-channel.ts';
import type { Tunnel } from './tunnel.ts';

/** Bytes of a client that are kept until it is known who reads them: more than a head and a ClientHello together. */
const MOST_KEPT = 128 * 1024;
const FIRST_KEPT = 2048;

export interface ClientLinkOptions {
  readonly tunnel: Tunnel;
  readonly channel: MessageChannel;
  readonly onMessage: (message: unknown) => void;
  /** The process was lost, while it was needed. */
  readonly onLost: () => void;
}

/**
 * Carries a connection of the sandbox to the process that reads it, and what that answers back. The first bytes are kept:
 * once their beginning has been read, they may be for a server, and then pass here unread.
 */
export class ClientLink {
  readonly #options: ClientLinkOptions;
  /** A copy, because a small chunk may be a view of a large one; with room at its end. */
  #kept: Buffer | null = Buffer.alloc(FIRST_KEPT);
  #keptBytes = 0;
  #detached = false;

  constructor(options: ClientLinkOptions) {
    this.#options = options;
    const { tunnel, channel, onMessage, onLost } = options;
    tunnel.on('data', this.#take);
    tunnel.on('end', this.#end);
    tunnel.once('close', () => channel.destroy());
    channel.on('drain', this.#flow);
    channel.on('error', () => channel.destroy());
    channel.on('message', (message: unknown) => {
      if (!this.#detached) onMessage(message);
    });
    channel.once('close', () => {
      if (this.#detached) return;
      this.#leave();
      if (!channel.readableEnded) onLost();
      else {
        // The client has its whole answer, and so long to read it.
        const timer = setTimeout(() => tunnel.destroy(), FINAL_RESPONSE_MS);
        tunnel.once('close', () => clearTimeout(timer));
        tunnel.resume();
      }
    });
    channel.pipe(tunnel);
  }

  /** The process reads this client to its end. */
  release(): void {
    this.#kept = null;
    this.#flow();
  }

  /**
   * Takes the client from the process. Returns what the client has sent from the byte `from` on; null if it has not sent so
   * much.
   */
  detach(from: number): Buffer | null {
    const { tunnel, channel } = this.#options;
    if (this.#kept === null || from > this.#keptBytes) return null;
    this.#leave();
    tunnel.pause();
    channel.destroy();
    const bytes = this.#kept.subarray(from, this.#keptBytes);
    this.#kept = null;
    return bytes;
  }

  #leave(): void {
    const { tunnel, channel } = this.#options;
    this.#detached = true;
    tunnel.off('data', this.#take);
    tunnel.off('end', this.#end);
    channel.unpipe(tunnel);
  }

  readonly #take = (bytes: Buffer): void => {
    const { tunnel, channel } = this.#options;
    this.#bufferFirst(bytes);
    if (!channel.write(bytes) || this.#isFull()) tunnel.pause();
  };

  readonly #end = (): void => {
    this.#options.channel.end();
  };

  readonly #flow = (): void => {
    const { tunnel, channel } = this.#options;
    if (!this.#detached && !channel.writableNeedDrain && !this.#isFull()) tunnel.resume();
  };

  #bufferFirst(bytes: Buffer): void {
    if (this.#kept === null) return;
    const length = this.#keptBytes + bytes.length;
    if (length > this.#kept.length) {
      const more = Buffer.alloc(Math.max(length, 2 * this.#kept.length));
      this.#kept.copy(more, 0, 0, this.#keptBytes);
      this.#kept = more;
    }
    bytes.copy(this.#kept, this.#keptBytes);
    this.#keptBytes = length;
  }

  #isFull(): boolean {
    return this.#kept !== null && this.#keptBytes >= MOST_KEPT;
  }
}
