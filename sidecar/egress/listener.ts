import { createServer, type Server, type Socket } from 'node:net';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Linger, loadLinger } from './linger.ts';

/** Limit of connections from the sandbox, carried or waiting. Further ones are reset. */
const MAX_SOCKETS = 1024;
/**
 * How long a connection waits while the supervisor accepts none at all, and how long altogether: on a busy machine the
 * last of a thousand waits long, and is served all the same.
 */
const ACCEPT_TIMEOUT_MS = 10_000;
const LONGEST_WAIT_MS = 60_000;
/** How long a process may take to read that nobody serves its request. */
const UNATTENDED_MS = 2000;
/** What a client of a persistent listener gets while no supervisor serves it. */
const UNATTENDED_BODY = `${JSON.stringify({
  type: 'error',
  error: { type: 'holdfast_unavailable', message: 'Holdfast: nobody serves this for the moment; try again' },
})}\n`;
const UNATTENDED = [
  'HTTP/1.1 503 Service Unavailable',
  'Content-Type: application/json',
  `Content-Length: ${Buffer.byteLength(UNATTENDED_BODY)}`,
  'Retry-After: 2',
  'Connection: close',
  '',
  UNATTENDED_BODY,
].join('\r\n');
/** Resets within this time are reported together. */
const REPORT_MS = 200;

export interface Accepted {
  readonly socket: Socket;
  readonly linger: Linger;
  /** Number of other connections that wait. */
  readonly waiting: number;
}

/** Reports to the supervisor while it waits. */
export interface AcceptReport {
  /** Processes in the sandbox can connect now. */
  readonly listening: () => void;
  /** The number of connections reset since the last report, because of the limit or the timeout. */
  readonly refused: (count: number) => void;
}

interface Acceptor {
  readonly report: AcceptReport;
  readonly take: (accepted: Accepted) => void;
  readonly refuse: (error: Error) => void;
}

interface Waiting {
  readonly socket: Socket;
  /** Milliseconds of the monotonic clock. */
  readonly since: number;
}

export interface EgressListenerOptions {
  /**
   * The listener stays when the supervisor has gone, so that no process of the sandbox can take its port, and answers
   * every connection with 503 over HTTP.
   */
  readonly persistent?: boolean;
  readonly acceptTimeoutMs?: number;
  readonly longestWaitMs?: number;
}

/**
 * A listener on the sandbox's loopback. It exists only while the supervisor accepts connections, unless it is
 * persistent. Otherwise, as with an empty list of rules, every connection is refused at once.
 */
export class EgressListener {
  readonly #host: string;
  readonly #port: number;
  readonly #persistent: boolean;
  readonly #acceptors: Acceptor[] = [];
  readonly #acceptTimeoutMs: number;
  readonly #longestWaitMs: number;
  /** In the order in which they came. */
  readonly #waiting: Waiting[] = [];
  #waitTimer: NodeJS.Timeout | undefined;
  /** When the supervisor last accepted one. */
  #acceptedAt = 0;
  readonly #sockets = new Set<Socket>();
  #server: Server | null = null;
  #linger: Linger | null = null;
  #opening: Promise<Linger> | null = null;
  /** Connections of the supervisor that accept or carry. */
  #leases = 0;
  /** Resets that have not been reported. */
  #refused = 0;
  #reporting: NodeJS.Timeout | undefined;

  constructor(host: string, port: number, options: EgressListenerOptions = {}) {
    this.#host = host;
    this.#port = port;
    this.#persistent = options.persistent ?? false;
    this.#acceptTimeoutMs = options.acceptTimeoutMs ?? ACCEPT_TIMEOUT_MS;
    this.#longestWaitMs = options.longestWaitMs ?? LONGEST_WAIT_MS;
  }

  /**
   * Keeps the listener for the life of one supervisor connection. When the last one closes, the listener closes unless
   * it is persistent.
   */
  lease(closed: Promise<unknown>): void {
    this.#leases += 1;
    void closed.then(() => {
      this.#leases -= 1;
      if (this.#leases === 0 && !this.#persistent) this.close();
    });
  }

  /** The next connection of a process in the sandbox. Errors: `conflict` if another process has the port. */
  async accept(signal: AbortSignal, report: AcceptReport): Promise<Accepted> {
    const linger = await this.#listen();
    report.listening();
    for (let first = this.#waiting.shift(); first !== undefined; first = this.#waiting.shift()) {
      this.#acceptedAt = performance.now();
      if (!first.socket.destroyed) return { socket: first.socket, linger, waiting: this.#waiting.length };
    }
    signal.throwIfAborted();
    return await new Promise<Accepted>((resolve, reject) => {
      const acceptor: Acceptor = { report, take: resolve, refuse: reject };
      this.#acceptors.push(acceptor);
      if (this.#refused > 0) this.#reportSoon();
      signal.addEventListener('abort', () => {
        const at = this.#acceptors.indexOf(acceptor);
        if (at >= 0) this.#acceptors.splice(at, 1);
        reject(HoldfastError.from(signal.reason));
      });
    });
  }

  /** The supervisor that was given this connection has died before it read anything of it. */
  turnBack(socket: Socket): void {
    if (socket.destroyed) return;
    if (this.#persistent && this.#linger !== null) turnAway(socket, this.#linger);
    else socket.resetAndDestroy();
  }

  close(): void {
    clearTimeout(this.#reporting);
    this.#reporting = undefined;
    this.#server?.close();
    this.#server = null;
    this.#opening = null;
    clearTimeout(this.#waitTimer);
    this.#waitTimer = undefined;
    for (const { socket } of this.#waiting.splice(0)) socket.resetAndDestroy();
    const gone = new HoldfastError('shutting_down', 'The listener has closed');
    for (const { refuse } of this.#acceptors.splice(0)) refuse(gone);
  }

  #listen(): Promise<Linger> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = null;
      throw error;
    });
    return this.#opening;
  }

  async #open(): Promise<Linger> {
    // Loaded here, because it takes some megabytes and many sessions have no egress.
    const linger = await loadLinger();
    this.#linger = linger;
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
            next: `stop the process that uses port ${this.#port} in the sandbox, or have it listen on 127.0.0.1 only`,
            cause,
          }),
        );
      });
      server.listen({ host: this.#host, port: this.#port, backlog: MAX_SOCKETS }, resolve);
    });
    server.on('error', (error) => console.error('egress:', error));
    return linger;
  }

  #connected(socket: Socket, linger: Linger): void {
    // An error before the splice starts must not end the process.
    socket.on('error', () => socket.destroy());
    if (this.#sockets.size >= MAX_SOCKETS) {
      this.#refuse(socket);
      return;
    }
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    linger.resetOnClose(socket);
    if (this.#persistent && this.#leases === 0) {
      turnAway(socket, linger);
      return;
    }
    const acceptor = this.#acceptors.shift();
    if (acceptor !== undefined) {
      acceptor.take({ socket, linger, waiting: this.#waiting.length });
      return;
    }
    this.#waiting.push({ socket, since: performance.now() });
    this.#scheduleTimeout();
  }

  /** Looks at the first in the queue when its time may be over. */
  #scheduleTimeout(): void {
    const [first] = this.#waiting;
    if (first === undefined || this.#waitTimer !== undefined) return;
    const left = this.#deadlineOf(first) - performance.now();
    this.#waitTimer = setTimeout(
      () => {
        this.#waitTimer = undefined;
        for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
          if (!next.socket.destroyed && this.#deadlineOf(next) > performance.now()) break;
          this.#waiting.shift();
          if (next.socket.destroyed) continue;
          if (this.#persistent && this.#linger !== null) turnAway(next.socket, this.#linger);
          else this.#refuse(next.socket);
        }
        this.#scheduleTimeout();
      },
      Math.max(1, Math.ceil(left)),
    );
  }

  #deadlineOf({ since }: Waiting): number {
    const idle = Math.max(since, this.#acceptedAt) + this.#acceptTimeoutMs;
    return Math.min(idle, since + this.#longestWaitMs);
  }

  #refuse(socket: Socket): void {
    socket.resetAndDestroy();
    this.#refused += 1;
    this.#reportSoon();
  }

  /** Without a waiting call, the report is sent to the next one. */
  #reportSoon(): void {
    this.#reporting ??= setTimeout(() => {
      this.#reporting = undefined;
      const [acceptor] = this.#acceptors;
      if (acceptor === undefined) return;
      acceptor.report.refused(this.#refused);
      this.#refused = 0;
    }, REPORT_MS);
  }
}

/** Answers 503 and closes, whatever the process sends. */
function turnAway(socket: Socket, linger: Linger): void {
  const late = setTimeout(() => socket.resetAndDestroy(), UNATTENDED_MS);
  socket.once('close', () => clearTimeout(late));
  linger.flushOnClose(socket);
  socket.end(UNATTENDED);
  socket.resume();
}
