import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import {
  type EgressReason,
  HOST_MACHINE,
  isLoopback,
  type RuleOrigin,
  formatHostPattern,
} from '../../protocol/egress.ts';
import { PLACEHOLDER_MARK } from '../../protocol/credential-presets.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import { decide, type Rule } from './decide.ts';
import { resolveAllowedAddresses, dialFirst, DialError } from './dial.ts';
import { ReadBuffer } from './read-buffer.ts';
import type { EgressEventAggregator } from './event-aggregator.ts';
import type { Policies } from './policies.ts';
import {
  type Refusal,
  refusalHeaders,
  refusalText,
  unreadableRefusal,
  connectRefusal,
  refusalStatus,
} from './refusal.ts';
import {
  type BadRequest,
  connectTarget,
  forwardedHeaders,
  plainTarget,
  returnedHeaders,
  type Target,
} from './request.ts';
import type { ResolveName } from './resolver.ts';
import type { Tunnel } from './tunnel.ts';

/** Maximum connections of one session; further ones are reset. */
const MOST_TUNNELS = 1024;
const HEAD_BYTES = 16 * 1024;
/** From the connection to the end of the request's headers. */
const HEAD_MS = 10_000;
/** How long a client may take to read the final response before it is cut off. */
const FINAL_RESPONSE_MS = 2000;
/** An idle connection is closed after this time; sooner when one side has ended it. */
const SILENT_MS = 3600_000;
const HALF_CLOSED_MS = 300_000;

/** A person means their own machine, but a program in the sandbox addresses the sandbox. */
const LOOPBACK_HINT = `; in a sandbox this address is the sandbox itself, and your machine is ${HOST_MACHINE.name}`;

const WHY: Record<'no_rule' | 'other_port' | 'denied', string> = {
  no_rule: 'no rule names it',
  other_port: 'the rule for this host is for another port',
  denied: 'a rule denies it',
};

/** A placeholder stands for a key, and whoever sends one elsewhere would have sent the key. */
const PLACEHOLDER: BadRequest = {
  bad: 'it has the placeholder of a credential, which is served on a port of its own',
};

export interface SessionProxyOptions {
  readonly sessionId: string;
  readonly policies: Policies;
  readonly resolve: ResolveName;
  readonly aggregator: EgressEventAggregator;
  readonly log: Log;
}

/** State of one connection of the sandbox. */
interface ProxyConnection {
  readonly tunnel: Tunnel;
  readonly ending: AbortController;
  headTimer: NodeJS.Timeout | undefined;
  /** It has sent its only request. */
  used: boolean;
  /** Set once it is allowed. */
  going: (Target & { readonly method: string; readonly rule: Rule; readonly address: string }) | null;
}

/**
 * The HTTP proxy of one session. Node's parser reads what the sandbox sends; this class decides whether and where it
 * is forwarded. One request per connection, so that no two programs can disagree about where the next one begins.
 */
export class SessionProxy {
  readonly #options: SessionProxyOptions;
  readonly #server: Server;
  readonly #connections = new Map<Duplex, ProxyConnection>();

  constructor(options: SessionProxyOptions) {
    this.#options = options;
    this.#server = createServer({
      maxHeaderSize: HEAD_BYTES,
      insecureHTTPParser: false,
      // We refuse it ourselves, so that it is reported like other refusals.
      requireHostHeader: false,
      joinDuplicateHeaders: false,
      keepAlive: false,
    });
    this.#server.maxRequestsPerSocket = 1;
    // Otherwise Node cuts off the response to a client that half-closes its connection.
    Reflect.set(this.#server, 'httpAllowHalfOpen', true);
    this.#server.on('connect', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
      const connection = this.#connections.get(stream);
      if (connection === undefined) stream.destroy();
      else this.#guard(connection, this.#connect(connection, request, head));
    });
    const plain = (request: IncomingMessage, response: ServerResponse): void => {
      const connection = this.#connections.get(request.socket);
      if (connection === undefined) request.socket.destroy();
      else this.#guard(connection, this.#plain(connection, request, response));
    };
    this.#server.on('request', plain);
    // Node would send 100 Continue before the decision.
    this.#server.on('checkContinue', plain);
    this.#server.on('checkExpectation', plain);
    this.#server.on('clientError', (error: Error & { code?: string }, stream: Duplex) => {
      const connection = this.#connections.get(stream);
      if (connection?.going !== null) stream.destroy();
      else if (!connection.used) this.#unreadable(connection, error.code);
    });
  }

  /** Adopts a connection of the sandbox. */
  serve(tunnel: Tunnel): void {
    if (this.#adopt(tunnel) !== null) this.#server.emit('connection', tunnel);
  }

  /** Adopts a connection of the sandbox to a port of this machine and forwards it unparsed. */
  forward(tunnel: Tunnel, port: number): void {
    const connection = this.#adopt(tunnel);
    if (connection === null) return;
    this.#first(connection);
    this.#guard(connection, this.#forward(connection, { host: HOST_MACHINE.name, port }));
  }

  async #forward(connection: ProxyConnection, target: Target): Promise<void> {
    const { tunnel } = connection;
    const intake = new ReadBuffer();
    const upstream = await this.#dial(connection, target, 'TCP', () => tunnel.destroy(), intake);
    if (upstream === null) return;
    join(tunnel, upstream);
    tunnel.pipe(upstream);
    intake.pipeInto(tunnel, upstream);
  }

  /** Null if the session has too many connections. */
  #adopt(tunnel: Tunnel): ProxyConnection | null {
    tunnel.on('error', () => tunnel.destroy());
    if (this.#connections.size >= MOST_TUNNELS) {
      this.#report('denied', null, '', 'too_many', null);
      tunnel.destroy();
      return null;
    }
    const connection: ProxyConnection = {
      tunnel,
      ending: new AbortController(),
      headTimer: setTimeout(() => this.#unreadable(connection, 'ERR_HTTP_REQUEST_TIMEOUT'), HEAD_MS),
      used: false,
      going: null,
    };
    this.#connections.set(tunnel, connection);
    tunnel.once('close', () => {
      clearTimeout(connection.headTimer);
      connection.ending.abort();
      this.#connections.delete(tunnel);
      this.#ended(connection);
    });
    return connection;
  }

  /** Records that the sidecar reset `count` connections because there were too many. */
  recordRefused(count: number): void {
    this.#report('denied', null, '', 'too_many', null, null, { count });
  }

  /** Applies changed rules: closes connections that they no longer allow. */
  applyRules(): void {
    const rules = this.#options.policies.rulesOf(this.#options.sessionId);
    for (const { tunnel, going } of this.#connections.values()) {
      if (going === null) continue;
      const verdict = decide(rules, going.host, going.port);
      if (verdict.allowed || (going.rule.from === 'once' && verdict.reason !== 'denied')) continue;
      tunnel.destroy();
    }
  }

  close(): void {
    for (const { tunnel } of this.#connections.values()) tunnel.destroy();
  }

  get size(): number {
    return this.#connections.size;
  }

  async #connect(connection: ProxyConnection, request: IncomingMessage, head: Buffer): Promise<void> {
    const { tunnel } = connection;
    const refuse = (refusal: Refusal): void => this.#sendFinal(connection, connectRefusal(refusal));
    if (!this.#first(connection)) return;
    const intake = new ReadBuffer();
    const upstream = await this.#dial(connection, connectTarget(request), 'CONNECT', refuse, intake);
    if (upstream === null) return;
    join(tunnel, upstream);
    if (head.length > 0) upstream.write(head);
    tunnel.write('HTTP/1.1 200 Connection established\r\n\r\n');
    tunnel.pipe(upstream);
    intake.pipeInto(tunnel, upstream);
  }

  async #plain(
    connection: ProxyConnection,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const { tunnel } = connection;
    response.shouldKeepAlive = false;
    const refuse = (refusal: Refusal): void => {
      const body = refusalText(refusal);
      response.writeHead(refusalStatus(refusal), {
        'Content-Type': 'text/plain; charset=utf-8',
        'Content-Length': Buffer.byteLength(body),
        Connection: 'close',
        ...refusalHeaders(refusal),
      });
      response.end(body);
      // The rest of the request is discarded; otherwise the client would never read the response.
      request.resume();
      this.#cutSoon(tunnel);
    };
    if (!this.#first(connection)) return;
    const target = carriesPlaceholder(request) ? PLACEHOLDER : plainTarget(request);
    const method = request.method ?? 'GET';
    const upstream = await this.#dial(connection, target, method, refuse);
    if (upstream === null || 'bad' in target) return;
    if (request.headers.expect !== undefined) response.writeContinue();
    upstream.setTimeout(SILENT_MS, () => upstream.destroy());
    const onward = httpRequest({
      createConnection: () => upstream,
      method,
      path: target.path,
      headers: forwardedHeaders(request, target),
      setHost: false,
      maxHeaderSize: HEAD_BYTES,
      insecureHTTPParser: false,
    });
    tunnel.once('close', () => {
      onward.destroy();
      upstream.destroy();
    });
    onward.on('error', (error) => {
      if (response.headersSent) tunnel.destroy();
      else
        refuse(
          this.#refusal(
            target,
            'not_reached',
            `the server sent an invalid response (${codeOf(error)})`,
            null,
          ),
        );
    });
    // Upgrade is not forwarded, so an upgrade response was not requested.
    onward.on('upgrade', (_answer, socket: Socket) => socket.destroy());
    onward.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.statusMessage ?? '', returnedHeaders(answer));
      answer.on('error', () => tunnel.destroy());
      answer.on('close', () => {
        if (!answer.complete) tunnel.destroy();
      });
      answer.pipe(response);
    });
    response.on('finish', () => this.#cutSoon(tunnel));
    request.on('error', () => tunnel.destroy());
    request.pipe(onward);
  }

  /** Decides and connects if allowed. Null if it was refused or the client has gone. */
  async #dial(
    connection: ProxyConnection,
    target: Target | BadRequest,
    method: string,
    refuse: (refusal: Refusal) => void,
    intake?: ReadBuffer,
  ): Promise<Socket | null> {
    const { policies, sessionId, resolve } = this.#options;
    const deny = (refusal: Refusal, rule: Rule | null, address: string | null = null): null => {
      const failed = refusal.reason === 'not_resolved' || refusal.reason === 'not_reached';
      this.#report(failed ? 'failed' : 'denied', refusal, method, refusal.reason, rule, address);
      if (!connection.tunnel.destroyed) refuse(refusal);
      return null;
    };
    if ('bad' in target) {
      const reason = target === PLACEHOLDER ? 'placeholder' : 'bad_request';
      return deny(this.#refusal({ host: '', port: 0 }, reason, target.bad, null), null);
    }
    const { host, port } = target;
    const verdict = policies.decide(sessionId, host, port);
    if (!verdict.allowed) {
      const { reason, allow, rule } = verdict;
      const why = isLoopback(host) ? WHY[reason] + LOOPBACK_HINT : WHY[reason];
      return deny(this.#refusal(target, reason, why, allow), rule);
    }
    const { rule } = verdict;
    try {
      const addresses = await resolveAllowedAddresses(host, port, policies.rulesOf(sessionId), resolve);
      const [address] = addresses;
      if (address === undefined || connection.ending.signal.aborted) return null;
      connection.going = { host, port, method, rule, address };
      this.#report('allowed', target, method, null, rule, address);
      const dialled = await dialFirst(addresses, port, connection.ending.signal, intake?.onread);
      if (!connection.tunnel.destroyed) return dialled.socket;
      dialled.socket.destroy();
      return null;
    } catch (error) {
      if (!(error instanceof DialError)) {
        if (connection.ending.signal.aborted) return null;
        throw error;
      }
      // A connection that was never made has no end event.
      connection.going = null;
      const { reason, address, message } = error;
      const named = reason === 'private_address' && address !== null;
      const allow = named ? formatHostPattern({ host: address, wildcard: false, port }) : null;
      return deny(this.#refusal(target, reason, message, allow), rule, address);
    }
  }

  /** False for a second request on a connection. */
  #first(connection: ProxyConnection): boolean {
    clearTimeout(connection.headTimer);
    if (connection.used) {
      connection.tunnel.destroy();
      return false;
    }
    connection.used = true;
    return true;
  }

  #refusal(target: Target, reason: EgressReason, why: string, allow: string | null): Refusal {
    const { host, port } = target;
    return { reason, why, host, port, allow, sessionId: this.#options.sessionId };
  }

  #unreadable(connection: ProxyConnection, code: string | undefined): void {
    clearTimeout(connection.headTimer);
    if (connection.used || connection.tunnel.destroyed) return;
    connection.used = true;
    // A client that sends nothing, such as a spare connection of a browser, requires no decision.
    if (connection.tunnel.bytesOut > 0) this.#report('denied', null, '', 'bad_request', null);
    if (code === 'HPE_HEADER_OVERFLOW') this.#sendFinal(connection, unreadableRefusal(431));
    else this.#sendFinal(connection, unreadableRefusal(code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400));
  }

  #sendFinal({ tunnel }: ProxyConnection, words: string): void {
    tunnel.end(words);
    tunnel.resume();
    this.#cutSoon(tunnel);
  }

  /** Cuts off a client that neither reads its response nor leaves. */
  #cutSoon(tunnel: Tunnel): void {
    const timer = setTimeout(() => tunnel.destroy(), FINAL_RESPONSE_MS);
    tunnel.once('close', () => clearTimeout(timer));
  }

  #ended({ going, tunnel }: ProxyConnection): void {
    if (going === null) return;
    const { bytesIn, bytesOut } = tunnel;
    this.#report('ended', going, going.method, null, going.rule, going.address, { bytesIn, bytesOut });
  }

  #report(
    decision: 'allowed' | 'denied' | 'failed' | 'ended',
    target: (Target & { readonly allow?: string | null }) | null,
    method: string,
    reason: EgressReason | null,
    rule: Rule | null,
    address: string | null = null,
    { count = 1, ...bytes }: { count?: number; bytesIn?: number; bytesOut?: number } = {},
  ): void {
    if (decision === 'denied' && rule?.quiet === true) return;
    const from: RuleOrigin | null = rule?.from ?? null;
    const seen = {
      decision,
      host: target?.host ?? '',
      port: target?.port ?? 0,
      method,
      rule: rule === null ? null : formatHostPattern(rule.pattern),
      from,
      reason,
      address,
      allow: target?.allow ?? null,
      bytesIn: 0,
      bytesOut: 0,
      ...bytes,
    };
    this.#options.aggregator.add(seen, count);
  }

  /** An internal failure ends its connection and is logged. */
  #guard({ tunnel }: ProxyConnection, work: Promise<void>): void {
    work.catch((error: unknown) => {
      this.#options.log.error('cannot forward a connection', {
        session: this.#options.sessionId,
        why: HoldfastError.from(error).sentence,
      });
      tunnel.destroy();
    });
  }
}

/**
 * Couples tunnel and upstream: the end of one is the end of that direction of the other, and a reset on one side
 * resets the other.
 */
function join(tunnel: Tunnel, upstream: Socket): void {
  upstream.setTimeout(SILENT_MS, () => upstream.destroy());
  const half = (): void => void upstream.setTimeout(HALF_CLOSED_MS);
  upstream.on('end', half);
  tunnel.on('end', half);
  upstream.on('error', () => tunnel.destroy());
  upstream.on('close', () => {
    if (!upstream.readableEnded || !tunnel.writableFinished) tunnel.destroy();
  });
  tunnel.on('close', () => {
    if (!upstream.destroyed && !(upstream.readableEnded && upstream.writableFinished))
      upstream.resetAndDestroy();
  });
}

function carriesPlaceholder({ url = '', rawHeaders }: IncomingMessage): boolean {
  return [url, ...rawHeaders].some((text) => text.includes(PLACEHOLDER_MARK));
}

function codeOf(error: Error): string {
  return 'code' in error ? String(error.code) : error.name;
}
