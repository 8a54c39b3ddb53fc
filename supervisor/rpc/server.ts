import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { listenAt, removeStaleSocket } from '../../protocol/client/socket.ts';
import type { SocketLocation } from '../../protocol/client/socket.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { METHODS, NOTIFICATIONS } from '../../protocol/methods.ts';
import type { PeerLimits } from '../../protocol/wire/limits.ts';
import type { BufferPool } from '../../protocol/wire/buffer-pool.ts';
import { Peer } from '../../protocol/wire/peer.ts';
import { acceptWithReadBuffer } from '../../protocol/wire/read-buffer.ts';
import { EMPTY_MAP } from '../../protocol/wire/shapes.ts';
import type { InternalErrorListener } from '../../protocol/wire/shapes.ts';
import { answerHello } from './hello.ts';
import type { Identity } from './hello.ts';
import type { ClientPeer, HandlerTable } from './handler-table.ts';

const MOST_CONNECTIONS = 512;
/** A connection without hello is closed after this. */
const HELLO_MS = 60_000;

export interface RpcServerOptions {
  /** A directory with mode 0700. The socket of a killed supervisor is removed from it, so the caller holds the home's lock. */
  readonly place: SocketLocation;
  readonly identity: Identity;
  readonly handlers: HandlerTable;
  /** Errors whose text is not sent to the client, for the log. */
  readonly onInternalError: InternalErrorListener;
  /** Called for every connection that violated the protocol or was aborted. */
  readonly onConnectionBroken?: (error: HoldfastError) => void;
  /** Called when a client has said who it is. */
  readonly onHello?: (connection: ClientPeer, clientName: string) => void;
  readonly limits?: Partial<PeerLimits>;
  readonly payloads?: BufferPool | undefined;
  readonly helloMs?: number;
}

/** The supervisor's socket: one peer per connection, which says hello first. */
export class RpcServer {
  readonly #options: RpcServerOptions;
  readonly #server: Server;
  readonly #peers = new Set<ClientPeer>();
  #stopListening: () => Promise<void> = () => Promise.resolve();
  #closing: Promise<void> | undefined;

  private constructor(options: RpcServerOptions) {
    this.#options = options;
    this.#server = createServer({ pauseOnConnect: true }, (socket) =>
      this.#accept(acceptWithReadBuffer(socket)),
    );
    this.#server.maxConnections = MOST_CONNECTIONS;
  }

  static async listen(options: RpcServerOptions): Promise<RpcServer> {
    const server = new RpcServer(options);
    removeStaleSocket(options.place);
    server.#stopListening = await listenAt(server.#server, options.place);
    // An accept that fails (no descriptors left) affects one client only.
    server.#server.on('error', (error) => {
      options.onInternalError(error, { method: 'accept', name: 'socket' });
    });
    return server;
  }

  /** Number of open connections, with or without hello. */
  get connections(): number {
    return this.#peers.size;
  }

  /** Number of running requests on all connections. */
  get runningRequests(): number {
    let running = 0;
    for (const peer of this.#peers) running += peer.runningRequests;
    return running;
  }

  /**
   * Accepts no more connections and answers pending requests with `shutting_down`. Resolves when every connection has ended and the
   * socket is removed. A client that does not read is disconnected after the linger time.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const stopped = this.#stopListening();
    const reason = new HoldfastError('shutting_down', 'The supervisor is shutting down', {
      next: 'try again: the next supervisor continues where this one stopped',
    });
    const peers = [...this.#peers];
    for (const peer of peers) peer.close(reason);
    await Promise.all(peers.map((peer) => peer.closed));
    await stopped;
  }

  #accept(socket: Socket): void {
    const { identity, handlers, onInternalError, onConnectionBroken, limits, payloads, helloMs } =
      this.#options;
    const waiting = setTimeout(() => {
      peer.close(new HoldfastError('timeout', 'The connection was ended', { why: 'it did not say hello' }));
    }, helloMs ?? HELLO_MS);
    const peer: ClientPeer = new Peer({
      stream: socket,
      name: 'a client',
      serves: METHODS,
      handlers: {
        ...handlers,
        hello: (params) => {
          const answer = answerHello(identity, params);
          this.#options.onHello?.(peer, params.client.name);
          clearTimeout(waiting);
          return answer;
        },
      },
      calls: EMPTY_MAP,
      sends: NOTIFICATIONS,
      receives: EMPTY_MAP,
      // A newer client without a common protocol version can still ask for a handover.
      handshake: { method: 'hello', allowedBefore: ['ping', 'supervisor/handover'] },
      onInternalError,
      bufferPool: payloads,
      ...(limits === undefined ? {} : { limits }),
    });
    this.#peers.add(peer);
    void peer.closed.then((error) => {
      clearTimeout(waiting);
      this.#peers.delete(peer);
      if (error !== undefined && error.code !== 'shutting_down') onConnectionBroken?.(error);
    });
  }
}
