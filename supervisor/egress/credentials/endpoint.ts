import type { EgressReason } from '../../../protocol/egress.ts';
import type { Credential } from '../../../protocol/credentials.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import {
  type CredentialRefusal,
  type CredentialSay,
  CredentialSaySchema,
  FINAL_RESPONSE_MS,
} from '../../../egress-proxy/wire.ts';
import type { Log } from '../../base/log.ts';
import type { SecretValue } from '../../secrets/secret-store.ts';
import { decide, type Rule } from '../decide.ts';
import type { EgressEventAggregator } from '../event-aggregator.ts';
import type { ResolveName } from '../resolver.ts';
import type { Tunnel } from '../tunnel.ts';
import type { EchoGuards } from './echo-guard.ts';
import { Exchange } from './exchange.ts';
import { CredentialLimiter } from './limiter.ts';
import { isWellFormed, refusedHead, type RequestHead } from './request-head.ts';
import { Upstream } from './upstream.ts';

/** Connections of one session to one credential; further ones are reset. */
const MOST_CONNECTIONS = 256;
/** Bytes of answers that go on are reported at least this often. */
const CARRIED_MS = 30_000;
/** A connection that its client has ended and on which nothing happens is closed after one to two of these. */
const ENDED_MS = 30_000;

/** Nothing of a request has been passed on: it may even be none. */
const NO_PROXY_BODY = `${JSON.stringify({
  type: 'error',
  error: { type: 'holdfast_no_proxy', message: 'Holdfast: the egress proxy is starting; try again.' },
})}\n`;
const NO_PROXY = [
  'HTTP/1.1 503 Service Unavailable',
  'Content-Type: application/json',
  `Content-Length: ${String(NO_PROXY_BODY.length)}`,
  'X-Holdfast-Egress: no_proxy',
  'Retry-After: 2',
  'Connection: close',
  '',
  NO_PROXY_BODY,
].join('\r\n');

/** Connections to the process that reads what sandboxes send. */
export interface CredentialConnections {
  /** For a new connection of a sandbox. Rejects if there is no process within a few seconds. */
  openCredential(): Promise<{ readonly id: number; readonly channel: MessageChannel }>;
  /** For one request of it: its body and its answer. */
  openExchange(id: number, exchange: number): Promise<MessageChannel>;
}

export interface EndpointOptions {
  readonly sessionId: string;
  readonly credential: Credential;
  readonly proxy: CredentialConnections;
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
  /** The number of the latest request. */
  last: number;
  /** Of requests that run. */
  readonly exchanges: Set<MessageChannel>;
}

/** What an endpoint reports about a request. */
export interface EndpointReport {
  readonly method: string;
  readonly reason?: EgressReason;
  readonly bytesIn?: number;
  readonly bytesOut?: number;
}

/** What the sandbox gets instead of an answer. Nothing in it comes from this machine or from the request. */
export type EndpointRefusal = Pick<CredentialRefusal, 'status' | 'reason' | 'why'>;

/**
 * The trusted half of the server of one credential of one session. The process that reads the sandbox says what a request
 * asks for; this class decides, and is a client with the credential for the one host that it is for. Nothing that either
 * side sends ends the supervisor: whatever goes wrong ends its request.
 */
export class CredentialEndpoint {
  readonly #options: EndpointOptions;
  readonly #upstream: Upstream;
  readonly #limiter: CredentialLimiter;
  readonly #connections = new Set<Connection>();
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
  }

  get credential(): Credential {
    return this.#options.credential;
  }

  /** Requests that run. */
  get size(): number {
    return this.#exchanges.size;
  }

  /** Adopts a connection of the sandbox. */
  serve(tunnel: Tunnel): void {
    tunnel.on('error', () => tunnel.destroy());
    if (this.#connections.size >= MOST_CONNECTIONS) {
      this.report('denied', { method: '', reason: 'too_many' });
      tunnel.destroy();
      return;
    }
    const connection: Connection = { tunnel, last: 0, exchanges: new Set() };
    this.#connections.add(connection);
    tunnel.once('close', () => {
      this.#connections.delete(connection);
      for (const channel of connection.exchanges) channel.destroy();
    });
    tunnel.once('end', () => this.#closeWhenIdle(connection));
    this.#link(connection).catch((error: unknown) => this.#failed(connection, error));
  }

  /** A rule that a person added denies the host: what runs ends. */
  applyRules(): void {
    if (!this.#isDenied()) return;
    for (const { tunnel } of this.#connections) tunnel.destroy();
  }

  close(): void {
    for (const { tunnel } of this.#connections) tunnel.destroy();
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

  /** Has the process read the client. */
  async #link(connection: Connection): Promise<void> {
    const { tunnel } = connection;
    const { proxy, sessionId, log } = this.#options;
    let opened: Awaited<ReturnType<CredentialConnections['openCredential']>>;
    try {
      opened = await proxy.openCredential();
    } catch (error) {
      const why = HoldfastError.from(error).sentence;
      log.warn('a request is refused: there is no egress proxy', { session: sessionId, why });
      this.#withoutProxy(connection);
      return;
    }
    const { id, channel } = opened;
    if (tunnel.destroyed || channel.destroyed) {
      channel.destroy();
      this.#withoutProxy(connection);
      return;
    }
    channel.on('message', (message: unknown) => {
      const said = CredentialSaySchema.safeParse(message);
      if (!said.success) this.#distrust(connection);
      else
        this.#obey(connection, said.data, { id, channel }).catch((error: unknown) =>
          this.#failed(connection, error),
        );
    });
    tunnel.once('close', () => channel.destroy());
    channel.once('close', () => {
      if (!channel.readableEnded) {
        this.#withoutProxy(connection);
        return;
      }
      tunnel.resume();
      this.#cutSoon(tunnel);
    });
    tunnel.pipe(channel);
    channel.pipe(tunnel);
  }

  async #obey(
    connection: Connection,
    said: CredentialSay,
    { id, channel }: { id: number; channel: MessageChannel },
  ): Promise<void> {
    if (said.say === 'reset') {
      connection.tunnel.destroy();
      return;
    }
    if (said.say === 'denied') {
      this.report('denied', { method: '', reason: 'bad_request' });
      return;
    }
    const { exchange, method, path, headers } = said;
    const head: RequestHead = { method, path, rawHeaders: headers };
    // One that the process itself has refused has a number, too.
    if (exchange <= connection.last || !isWellFormed(head)) {
      this.#distrust(connection);
      return;
    }
    connection.last = exchange;
    const allowed = this.#begin(head);
    if ('reason' in allowed) {
      this.#reportRefusal(method, allowed);
      channel.send({ answer: 'refused', exchange, ...allowed } satisfies CredentialRefusal);
      return;
    }
    let body: MessageChannel;
    try {
      body = await this.#options.proxy.openExchange(id, exchange);
    } catch (error) {
      this.#limiter.end();
      throw error;
    }
    if (connection.tunnel.destroyed || body.destroyed) {
      this.#limiter.end();
      body.destroy();
      return;
    }
    body.once('close', () => {
      this.#limiter.end();
      connection.exchanges.delete(body);
    });
    connection.exchanges.add(body);
    this.#exchange(connection, head, body, allowed);
  }

  /** The secret for a request that may go on; then the limiter has begun one. */
  #begin(head: RequestHead): SecretValue | EndpointRefusal {
    const { credential, secret } = this.#options;
    const refused = refusedHead(head, credential);
    if (refused !== null) return refused;
    if (this.#isDenied())
      return { status: 403, reason: 'denied', why: 'a rule denies the host of this credential' };
    const limit = this.#limiter.begin();
    if (limit !== null)
      return { status: 429, reason: 'limit', why: `the limit of this credential for ${limit} is reached` };
    const value = secret();
    if (value !== null) return value;
    this.#limiter.end();
    const next = `set it with: holdfast secret set ${credential.secret}`;
    return { status: 401, reason: 'no_secret', why: `there is no secret for this credential; ${next}` };
  }

  #exchange(connection: Connection, head: RequestHead, channel: MessageChannel, value: SecretValue): void {
    const { credential, guards } = this.#options;
    const exchange = new Exchange({
      ...{ head, channel, credential },
      value: value.value,
      search: guards.searchFor(value),
      agent: this.#upstream,
      pass: (bytes) => this.#limiter.pass(bytes),
      report: (decision, said) => this.report(decision, said),
      onRefused: (refusal) => this.#reportRefusal(head.method, refusal),
      cut: () => connection.tunnel.destroy(),
      distrust: () => this.#distrust(connection),
      guard: (act) => this.#guard(connection, act),
    });
    this.#exchanges.add(exchange);
    channel.once('close', () => this.#exchanges.delete(exchange));
    this.#reportCarried();
    this.#guard(connection, () => exchange.start());
  }

  /** A quiet rule of the file is about telemetry without the credential. */
  #isDenied(): boolean {
    const { rules, credential } = this.#options;
    const verdict = decide(rules(), credential.host, credential.port);
    return !verdict.allowed && verdict.reason === 'denied' && verdict.rule?.quiet !== true;
  }

  #reportRefusal(method: string, { status, reason }: EndpointRefusal): void {
    this.report(status >= 500 ? 'failed' : 'denied', { method, reason });
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

  /** Nobody reads the client. It is told so, if no server may have heard of it. */
  #withoutProxy({ tunnel, last }: Connection): void {
    if (tunnel.destroyed) return;
    if (tunnel.bytesIn > 0 || last > 0) {
      tunnel.destroy();
      return;
    }
    this.report('failed', { method: '', reason: 'no_proxy' });
    tunnel.end(NO_PROXY);
    tunnel.resume();
    this.#cutSoon(tunnel);
  }

  /** The client has ended: the process must not keep the connection for requests of its own. */
  #closeWhenIdle({ tunnel, exchanges }: Connection): void {
    const written = (): number | null =>
      exchanges.size === 0 && tunnel.writableLength === 0 ? tunnel.bytesIn : null;
    let before = written();
    const timer = setInterval(() => {
      const now = written();
      if (now !== null && now === before) tunnel.destroy();
      before = now;
    }, ENDED_MS).unref();
    tunnel.once('close', () => clearInterval(timer));
  }

  #cutSoon(tunnel: Tunnel): void {
    const timer = setTimeout(() => tunnel.destroy(), FINAL_RESPONSE_MS);
    tunnel.once('close', () => clearTimeout(timer));
  }

  /** The process says what it never says. */
  #distrust({ tunnel }: Connection): void {
    this.#options.log.warn('the egress proxy does not keep to the protocol', {
      session: this.#options.sessionId,
    });
    tunnel.destroy();
  }

  #guard(connection: Connection, act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#failed(connection, error);
    }
  }

  /** A failure of ours ends the connection and is logged, without what was sent on it. */
  #failed({ tunnel }: Connection, error: unknown): void {
    const { sessionId, credential, log } = this.#options;
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unexpected';
    log.error('cannot serve a request with a credential', {
      session: sessionId,
      name: credential.name,
      why,
    });
    tunnel.destroy();
  }
}
