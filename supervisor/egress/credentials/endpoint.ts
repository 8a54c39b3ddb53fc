import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Credential } from '../../../protocol/credentials.ts';
import type { EgressReason } from '../../../protocol/egress.ts';
import type { Log } from '../../base/log.ts';
import type { SecretValue } from '../../secrets/secret-store.ts';
import { decide, type Rule } from '../decide.ts';
import type { EgressEventAggregator } from '../event-aggregator.ts';
import type { ResolveName } from '../resolver.ts';
import type { Tunnel } from '../tunnel.ts';
import type { EchoGuards } from './echo-guard.ts';
import { type EndpointRefusal, rawRefusal, refusalBody, refusalHead } from './endpoint-refusal.ts';
import { Exchange } from './exchange.ts';
import { CredentialLimiter } from './limiter.ts';
import { refusedHead } from './request-head.ts';
import { Upstream } from './upstream.ts';

/** Connections of one session to one credential; further ones are reset. */
const MOST_CONNECTIONS = 256;
const HEAD_BYTES = 64 * 1024;
/** A connection without a request, or with one whose head does not end, is closed after this time. */
const IDLE_MS = 75_000;
const FINAL_RESPONSE_MS = 2000;
/** Bytes of answers that go on are reported at least this often. */
const CARRIED_MS = 30_000;

export interface EndpointOptions {
  readonly sessionId: string;
  readonly credential: Credential;
  readonly rules: () => readonly Rule[];
  readonly resolve: ResolveName;
  readonly authorities?: readonly string[] | undefined;
  /** The secret as it is now; null without one. */
  readonly secret: () => SecretValue | null;
  readonly guards: EchoGuards;
  readonly aggregator: EgressEventAggregator;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
  readonly carriedMs?: number | undefined;
}

interface Connection {
  readonly tunnel: Tunnel;
  idle: NodeJS.Timeout | undefined;
  running: number;
}

/** What an endpoint tells of a request. */
export interface EndpointReport {
  readonly method: string;
  readonly reason?: EgressReason;
  readonly bytesIn?: number;
  readonly bytesOut?: number;
}

/**
 * The server of one credential of one session: an HTTP/1.1 server for the sandbox, and a client with the credential for
 * the one host that it is for. Nothing that either side sends ends the process: whatever goes wrong ends its request.
 */
export class CredentialEndpoint {
  readonly #options: EndpointOptions;
  readonly #server: Server;
  readonly #upstream: Upstream;
  readonly #limiter: CredentialLimiter;
  readonly #connections = new Map<Duplex, Connection>();
  readonly #exchanges = new Set<Exchange>();
  #carried: NodeJS.Timeout | undefined;

  constructor(options: EndpointOptions) {
    this.#options = options;
    const { credential, resolve, rules, authorities, now } = options;
    this.#limiter = new CredentialLimiter(credential.limits, now);
    this.#upstream = new Upstream({
      host: credential.host,
      port: credential.port,
      ...{ resolve, rules, authorities },
    });
    this.#server = createServer({
      maxHeaderSize: HEAD_BYTES,
      insecureHTTPParser: false,
      // The client's Host is ignored.
      requireHostHeader: false,
      joinDuplicateHeaders: false,
      keepAlive: true,
      // An upload may take hours.
      requestTimeout: 0,
    });
    // A bound of Node's would drop the headers after it in silence; the size of the head bounds them.
    this.#server.maxHeadersCount = 0;
    // Otherwise Node cuts off the response to a client that half-closes its connection.
    Reflect.set(this.#server, 'httpAllowHalfOpen', true);
    const serve = (request: IncomingMessage, response: ServerResponse): void =>
      this.#guard(request.socket, () => this.#serve(request, response));
    this.#server.on('request', serve);
    this.#server.on('checkContinue', serve);
    this.#server.on('checkExpectation', serve);
    this.#server.on('connect', (_request, stream: Duplex) => this.#sendFinal(stream, rawRefusal(405)));
    this.#server.on('clientError', (error: Error & { code?: string }, stream: Duplex) => {
      const connection = this.#connections.get(stream);
      // An answer that has begun cannot be followed by another in its middle.
      if (connection === undefined || connection.running > 0) stream.destroy();
      else {
        this.report('denied', { method: '', reason: 'bad_request' });
        this.#sendFinal(stream, rawRefusal(error.code === 'HPE_HEADER_OVERFLOW' ? 431 : 400));
      }
    });
  }

  get credential(): Credential {
    return this.#options.credential;
  }

  /** Adopts a connection of the sandbox. */
  serve(tunnel: Tunnel): void {
    tunnel.on('error', () => tunnel.destroy());
    if (this.#connections.size >= MOST_CONNECTIONS) {
      this.report('denied', { method: '', reason: 'too_many' });
      tunnel.destroy();
      return;
    }
    const connection: Connection = { tunnel, idle: undefined, running: 0 };
    this.#connections.set(tunnel, connection);
    tunnel.once('close', () => {
      clearTimeout(connection.idle);
      this.#connections.delete(tunnel);
    });
    this.#rest(connection);
    this.#server.emit('connection', tunnel);
  }

  /** A rule that a person added denies the host: what runs ends. */
  applyRules(): void {
    if (!this.#isDenied()) return;
    for (const { tunnel } of this.#connections.values()) tunnel.destroy();
  }

  close(): void {
    for (const { tunnel } of this.#connections.values()) tunnel.destroy();
    clearInterval(this.#carried);
    this.#upstream.close();
  }

  /** Records that the sidecar reset `count` connections because there were too many. */
  reportRefused(count: number): void {
    this.report('denied', { method: '', reason: 'too_many' }, count);
  }

  /** Tells of a process in the sandbox that has the endpoint's port. */
  reportPortTaken(): void {
    this.report('failed', { method: '', reason: 'port_taken' });
  }

  report(
    decision: 'allowed' | 'denied' | 'failed' | 'carried' | 'ended',
    { method, reason, bytesIn = 0, bytesOut = 0 }: EndpointReport,
    count = 1,
  ): void {
    const { aggregator, credential } = this.#options;
    const seen = {
      ...{ decision, method, bytesIn, bytesOut },
      host: credential.host,
      port: credential.port,
      rule: null,
      from: null,
      reason: reason ?? null,
      address: decision === 'allowed' ? null : this.#upstream.address,
      allow: null,
      credential: credential.name,
    };
    aggregator.add(seen, count);
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const connection = this.#connections.get(request.socket);
    if (connection === undefined) {
      request.socket.destroy();
      return;
    }
    clearTimeout(connection.idle);
    connection.running += 1;
    response.once('close', () => {
      connection.running -= 1;
      this.#rest(connection);
    });
    const method = request.method ?? '';
    const refuse = (refusal: EndpointRefusal): void => {
      this.report(refusal.status >= 500 ? 'failed' : 'denied', { method, reason: refusal.reason });
      this.#refuse(request, response, refusal);
    };
    const refused = refusedHead(request, this.#options.credential);
    if (refused !== null) {
      refuse(refused);
      return;
    }
    if (this.#isDenied()) {
      refuse({ status: 403, reason: 'denied', why: 'a rule denies the host of this credential' });
      return;
    }
    const limit = this.#limiter.begin();
    if (limit !== null) {
      refuse({ status: 429, reason: 'limit', why: `the limit of this credential for ${limit} is reached` });
      return;
    }
    response.once('close', () => this.#limiter.end());
    this.#exchange(request, response, refuse);
  }

  #exchange(
    request: IncomingMessage,
    response: ServerResponse,
    refuse: (refusal: EndpointRefusal) => void,
  ): void {
    const { credential, secret, guards } = this.#options;
    const value = secret();
    if (value === null) {
      const next = `set it with: holdfast secret set ${credential.secret}`;
      refuse({ status: 401, reason: 'no_secret', why: `there is no secret for this credential; ${next}` });
      return;
    }
    const exchange = new Exchange({
      ...{ request, response, credential, refuse },
      value: value.value,
      search: guards.searchFor(value),
      agent: this.#upstream,
      pass: (bytes) => this.#limiter.pass(bytes),
      report: (decision, said) => this.report(decision, said),
      cut: () => request.socket.destroy(),
      guard: (act) => this.#guard(request.socket, act),
    });
    this.#exchanges.add(exchange);
    response.once('close', () => this.#exchanges.delete(exchange));
    this.#reportCarried();
    exchange.start();
  }

  /** A quiet rule of the file is about telemetry without the credential. */
  #isDenied(): boolean {
    const { rules, credential } = this.#options;
    const verdict = decide(rules(), credential.host, credential.port);
    return !verdict.allowed && verdict.reason === 'denied' && verdict.rule?.quiet !== true;
  }

  #refuse(request: IncomingMessage, response: ServerResponse, refusal: EndpointRefusal): void {
    if (response.headersSent || response.destroyed) {
      request.socket.destroy();
      return;
    }
    const body = refusalBody(refusal);
    response.writeHead(refusal.status, refusalHead(refusal, body));
    response.end(request.method === 'HEAD' ? undefined : body);
    // The rest of the request is discarded; otherwise the client would never read the response.
    request.resume();
    response.once('finish', () => this.#cutSoon(request.socket));
  }

  #rest(connection: Connection): void {
    clearTimeout(connection.idle);
    if (connection.running > 0 || connection.tunnel.destroyed) return;
    connection.idle = setTimeout(() => connection.tunnel.destroy(), IDLE_MS);
    connection.idle.unref();
  }

  #reportCarried(): void {
    this.#carried ??= setInterval(() => {
      if (this.#exchanges.size === 0) {
        clearInterval(this.#carried);
        this.#carried = undefined;
      }
      for (const exchange of this.#exchanges) exchange.reportCarried();
    }, this.#options.carriedMs ?? CARRIED_MS).unref();
  }

  #sendFinal(stream: Duplex, words: string): void {
    stream.end(words);
    stream.resume();
    this.#cutSoon(stream);
  }

  #cutSoon(stream: Duplex): void {
    const timer = setTimeout(() => stream.destroy(), FINAL_RESPONSE_MS);
    stream.once('close', () => clearTimeout(timer));
  }

  /** A failure of ours ends the connection and is logged, without what was sent on it. */
  #guard(stream: Duplex, act: () => void): void {
    try {
      act();
    } catch (error) {
      const { sessionId, credential, log } = this.#options;
      const why = error instanceof Error && 'code' in error ? String(error.code) : 'unexpected';
      log.error('cannot serve a request with a credential', {
        session: sessionId,
        name: credential.name,
        why,
      });
      stream.destroy();
    }
  }
}
