import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Certificates } from './certificates.ts';

/** Answers a request, or returns false for an unknown one. */
export type Site = (request: IncomingMessage, url: URL, response: ServerResponse) => boolean;

export interface ReceivedRequest {
  readonly method: string;
  readonly url: string;
  readonly host: string;
  readonly tls: boolean;
}

const PIECE = Buffer.alloc(64 * 1024, 'holdfast ');

/**
 * A web server on an address of this machine, over HTTP and HTTPS. In addition to the given sites it serves `/hello`,
 * `/bytes/N`, `/endless`, `/redirect?to=URL`.
 */
export class Origin {
  /** All requests in order of arrival. */
  readonly requests: ReceivedRequest[] = [];
  /** Number of connections, with or without a request. */
  acceptedConnections = 0;
  readonly #servers: readonly Server[];
  readonly #sites: readonly Site[];
  readonly #sockets = new Set<Socket>();

  private constructor(servers: (origin: Origin) => readonly Server[], sites: readonly Site[]) {
    this.#sites = sites;
    this.#servers = servers(this);
    for (const server of this.#servers) {
      server.on('connection', (socket: Socket) => {
        this.acceptedConnections += 1;
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.once('close', () => this.#sockets.delete(socket));
      });
    }
  }

  static async start(
    options: {
      readonly certificates?: Certificates;
      readonly sites?: readonly Site[];
      readonly host?: string;
      /** Port of plain HTTP; default: any free one. */
      readonly port?: number;
    } = {},
  ): Promise<Origin> {
    const { certificates, sites = [], host = '127.0.0.1', port = 0 } = options;
    const origin = new Origin((self) => {
      const answer = (request: IncomingMessage, response: ServerResponse): void =>
        self.#answer(request, response);
      const plain = createServer(answer);
      if (certificates === undefined) return [plain];
      return [plain, createTlsServer({ cert: certificates.certificate, key: certificates.key }, answer)];
    }, sites);
    const [plain, tls] = origin.#servers;
    plain?.listen(port, host);
    tls?.listen(0, host);
    await Promise.all(origin.#servers.map((server) => once(server, 'listening')));
    return origin;
  }

  get port(): number {
    return portOf(this.#servers[0]);
  }

  get tlsPort(): number {
    return portOf(this.#servers[1]);
  }

  /** Open connections. */
  get openConnections(): number {
    return this.#sockets.size;
  }

  async dispose(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    response.on('error', () => undefined);
    request.on('error', () => undefined);
    const { method = '', headers } = request;
    const tls = 'encrypted' in request.socket;
    const url = new URL(request.url ?? '/', `${tls ? 'https' : 'http'}://${headers.host ?? 'nobody'}`);
    this.requests.push({ method, url: `${url.pathname}${url.search}`, host: headers.host ?? '', tls });
    if (this.#sites.some((site) => site(request, url, response))) return;
    const bytes = /^\/bytes\/(\d+)$/.exec(url.pathname)?.[1];
    if (bytes !== undefined) {
      response.writeHead(200, { 'Content-Length': bytes });
      void pour(response, Number(bytes));
    } else if (url.pathname === '/endless') {
      response.writeHead(200);
      void pour(response, Number.POSITIVE_INFINITY);
    } else if (url.pathname === '/redirect') {
      response.writeHead(302, { Location: url.searchParams.get('to') ?? '/' }).end();
    } else if (url.pathname === '/hello') response.end('hello\n');
    else response.writeHead(404).end('there is nothing here\n');
  }
}

/** Writes at the reader's pace. */
async function pour(response: ServerResponse, bytes: number): Promise<void> {
  // A client that leaves early has what it wanted.
  await pipeline(Readable.from(pieces(bytes), { objectMode: false }), response).catch(() => undefined);
}

function* pieces(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= PIECE.length)
    yield left >= PIECE.length ? PIECE : PIECE.subarray(0, left);
}

function portOf(server: Server | undefined): number {
  if (server === undefined) throw new Error('there is no such server');
  return (server.address() as AddressInfo).port;
}
