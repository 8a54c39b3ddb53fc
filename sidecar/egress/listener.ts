import { createServer, type Server, type Socket } from 'node:net';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Linger, loadLinger } from './linger.ts';

/** Connections of the sandbox that are carried or wait; one more is reset. */
const MOST_SOCKETS = 1024;
/** How long a connection waits for the supervisor to take it. */
const PATIENCE_MS = 10_000;
/** Resets in this time are told together. */
const REPORT_MS = 200;

export interface Accepted {
  readonly socket: Socket;
  readonly linger: Linger;
  /** Others that wait. */
  readonly waiting: number;
}

/** What the supervisor is told while it waits. */
export interface AcceptReport {
  /** Processes can connect. */
  readonly listening: () => void;
  /** So many connections more have been reset, because there were too many or nobody took them in time. */
  readonly refused: (count: number) => void;
}

interface Taker {
  readonly report: AcceptReport;
  readonly take: (accepted: Accepted) => void;
  readonly refuse: (error: Error) => void;
}

interface Waiting {
  readonly socket: Socket;
  readonly giveUp: NodeJS.Timeout;
}

/**
 * A listener on the sandbox's loopback. It is there while the supervisor wants connections: without one, as with an empty list of
 * rules, whoever connects is refused at once.
 */
export class EgressListener {
  readonly #host: string;
  readonly #port: number;
  readonly #takers: Taker[] = [];
  readonly #waiting: Waiting[] = [];
  readonly #sockets = new Set<Socket>();
  #server: Server | null = null;
  #opening: Promise<Linger> | null = null;
  /** Connections of the supervisor that ask or carry. */
  #users = 0;
  /** Connections that were reset and not told of yet. */
  #refused = 0;
  #reporting: NodeJS.Timeout | undefined;

  constructor(host: string, port: number) {
    this.#host = host;
    this.#port = port;
  }

  /** For the life of one connection of the supervisor: when the last has ended, nothing listens any more. */
  lease(closed: Promise<unknown>): void {
    this.#users += 1;
    void closed.then(() => {
      this.#users -= 1;
      if (this.#users === 0) this.close();
    });
  }

  /** The next connection of a process in the sandbox. Errors: `conflict` where something else has the port. */
  async accept(signal: AbortSignal, report: AcceptReport): Promise<Accepted> {
    const linger = await this.#listen();
    report.listening();
    for (let first = this.#waiting.shift(); first !== undefined; first = this.#waiting.shift()) {
      clearTimeout(first.giveUp);
      if (!first.socket.destroyed) return { socket: first.socket, linger, waiting: this.#waiting.length };
    }
    signal.throwIfAborted();
    return await new Promise<Accepted>((resolve, reject) => {
      const taker: Taker = { report, take: resolve, refuse: reject };
      this.#takers.push(taker);
      if (this.#refused > 0) this.#reportSoon();
      signal.addEventListener('abort', () => {
        const at = this.#takers.indexOf(taker);
        if (at >= 0) this.#takers.splice(at, 1);
        reject(HoldfastError.from(signal.reason));
      });
    });
  }

  close(): void {
    clearTimeout(this.#reporting);
    this.#reporting = undefined;
    this.#server?.close();
    this.#server = null;
    this.#opening = null;
    for (const { socket, giveUp } of this.#waiting.splice(0)) {
      clearTimeout(giveUp);
      socket.resetAndDestroy();
    }
    const gone = new HoldfastError('shutting_down', 'Nothing is accepted any more');
    for (const { refuse } of this.#takers.splice(0)) refuse(gone);
  }

  #listen(): Promise<Linger> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = null;
      throw error;
    });
    return this.#opening;
  }

  async #open(): Promise<Linger> {
    // Only where there is egress at all: it is some megabytes.
    const linger = await loadLinger();
    const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, (socket) =>
      this.#connected(socket, linger),
    );
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause) => {
        if (this.#server === server) this.#server = null;
        reject(
          new HoldfastError('conflict', `Nothing can listen on ${this.#host}:${this.#port} in the sandbox`, {
            why: cause.message,
            next: `end what uses port ${this.#port} there, or have it listen on 127.0.0.1 only`,
            cause,
          }),
        );
      });
      server.listen({ host: this.#host, port: this.#port, backlog: MOST_SOCKETS }, resolve);
    });
    server.on('error', (error) => console.error('egress:', error));
    return linger;
  }

  #connected(socket: Socket, linger: Linger): void {
    // Heard by whoever carries it too; until then it must not end the program.
    socket.on('error', () => socket.destroy());
    if (this.#sockets.size >= MOST_SOCKETS) {
      this.#refuse(socket);
      return;
    }
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    linger.resetOnClose(socket);
    const taker = this.#takers.shift();
    if (taker !== undefined) {
      taker.take({ socket, linger, waiting: this.#waiting.length });
      return;
    }
    const giveUp = setTimeout(() => {
      const at = this.#waiting.findIndex((one) => one.socket === socket);
      if (at >= 0) this.#waiting.splice(at, 1);
      this.#refuse(socket);
    }, PATIENCE_MS);
    this.#waiting.push({ socket, giveUp });
  }

  #refuse(socket: Socket): void {
    socket.resetAndDestroy();
    this.#refused += 1;
    this.#reportSoon();
  }

  /** Without anybody who asks for connections it waits for the next one who does. */
  #reportSoon(): void {
    this.#reporting ??= setTimeout(() => {
      this.#reporting = undefined;
      const [taker] = this.#takers;
      if (taker === undefined) return;
      taker.report.refused(this.#refused);
      this.#refused = 0;
    }, REPORT_MS);
  }
}
