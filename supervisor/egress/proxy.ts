import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
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
import type { EgressEventAggregator } from './event-aggregator.ts';
import { forwardPlain } from './forward-plain.ts';
import { ACCESS_DENIED, openingProblem, readOpening } from './opening.ts';
import type { Policies } from './policies.ts';
import { ReadBuffer } from './read-buffer.ts';
import {
  type Refusal,
  refusalHeaders,
  refusalText,
  unreadableRefusal,
  connectRefusal,
  refusalStatus,
} from './refusal.ts';
import { type BadRequest, connectTarget, plainTarget, type Target, tunnelledTarget } from './request.ts';
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

const NESTED: BadRequest = { bad: 'it is a tunnel in a tunnel' };

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
  going: AllowedConnection | null;
  /** A client that speaks plain HTTP in its tunnel is served by the parser a second time. */
  isTunnel: boolean;
}

interface AllowedConnection extends Target {
  readonly method: string;
  readonly rule: Rule;
  readonly address: string;
  /** What its rules carry besides HTTP and TLS that names the host. */
  readonly tcp: boolean;
  readonly ech: boolean;
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
      if (connection === undefined) stream.destroy();
      else if (!connection.used) this.#unreadable(connection, error.code);
      else if (connection.going !== null) stream.destroy();
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
      isTunnel: false,
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
    const target = connection.isTunnel ? NESTED : connectTarget(request);
    const upstream = await this.#dial(connection, target, 'CONNECT', refuse, intake);
    const { going } = connection;
    if (upstream === null || going === null) return;
    tunnel.write('HTTP/1.1 200 Connection established\r\n\r\n');
    const opening = going.tcp ? head : await this.#checkOpening(connection, going, upstream, head);
    if (opening === null) return;
    join(tunnel, upstream);
    if (opening.length > 0) upstream.write(opening);
    tunnel.pipe(upstream);
    intake.pipeInto(tunnel, upstream);
  }

  /**
   * The client's first words, if they may be passed on; nothing passes in either direction before. Null if somebody
   * has gone, if they are refused, or if they are plain HTTP, which goes on as a request of its own.
   */
  async #checkOpening(
    connection: ProxyConnection,
    going: AllowedConnection,
    upstream: Socket,
    head: Buffer,
  ): Promise<Buffer | null> {
    const { tunnel } = connection;
    const lost = (): void => void tunnel.destroy();
    upstream.on('error', lost);
    upstream.once('close', lost);
    const opening = await readOpening(tunnel, head);
    upstream.off('close', lost);
    const problem =
      opening === null || opening.kind === 'http' ? null : openingProblem(opening, going.host, going);
    if (opening?.kind === 'tls' && problem === null && !tunnel.destroyed) return opening.bytes;
    upstream.resetAndDestroy();
    if (opening === null || tunnel.destroyed) tunnel.destroy();
    else if (opening.kind === 'http') this.#serveTunnel(connection, opening.bytes);
    else if (problem !== null) {
      connection.going = null;
      const { reason, serverName } = problem;
      const asked = serverName === undefined ? {} : { serverName };
      this.#report('denied', going, 'CONNECT', reason, going.rule, going.address, asked);
      this.#sendFinal(connection, ACCESS_DENIED);
    }
    return null;
  }

  /** Serves the one request of a client that speaks plain HTTP in its tunnel, as Node's fetch does. */
  #serveTunnel(connection: ProxyConnection, bytes: Buffer): void {
    const { tunnel } = connection;
    connection.isTunnel = true;
    connection.used = false;
    connection.headTimer = setTimeout(
      () => this.#unreadable(connection, 'ERR_HTTP_REQUEST_TIMEOUT'),
      HEAD_MS,
    );
    tunnel.unshift(bytes);
    this.#server.emit('connection', tunnel);
    tunnel.resume();
  }

  /** Dials the address of a tunnel once more, for its request; the first connection was for TLS. */
  async #dialTunnel(
    connection: ProxyConnection,
    { address, ...target }: AllowedConnection,
    refuse: (refusal: Refusal) => void,
  ): Promise<Socket | null> {
    const { signal } = connection.ending;
    try {
      const { socket } = await dialFirst([address], target.port, signal);
      if (!connection.tunnel.destroyed) return socket;
      socket.destroy();
    } catch (error) {
      if (!(error instanceof DialError) && !signal.aborted) throw error;
      if (error instanceof DialError) refuse(this.#refusal(target, 'not_reached', error.message, null));
    }
    return null;
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
    const { going } = connection;
    const asked = going === null ? plainTarget(request) : tunnelledTarget(request, going);
    const target = carriesPlaceholder(request) ? PLACEHOLDER : asked;
    const upstream =
      going === null || 'bad' in target
        ? await this.#dial(connection, target, request.method ?? 'GET', refuse)
        : await this.#dialTunnel(connection, going, refuse);
    if (upstream === null || 'bad' in target) return;
    upstream.setTimeout(SILENT_MS, () => upstream.destroy());
    response.on('finish', () => this.#cutSoon(tunnel));
    forwardPlain({
      ...{ tunnel, request, response, target, upstream },
      headBytes: HEAD_BYTES,
      onFailed: (why) => refuse(this.#refusal(target, 'not_reached', why, null)),
    });
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
    const { rule, tcp, ech } = verdict;
    try {
      const addresses = await resolveAllowedAddresses(host, port, policies.rulesOf(sessionId), resolve);
      const [address] = addresses;
      if (address === undefined || connection.ending.signal.aborted) return null;
      const going = { host, port, method, rule, address, tcp, ech };
      connection.going = going;
      this.#report('allowed', target, method, null, rule, address);
      const dialled = await dialFirst(addresses, port, connection.ending.signal, intake?.onread);
      connection.going = { ...going, address: dialled.address };
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

  #sendFinal({ tunnel }: ProxyConnection, words: string | Buffer): void {
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
    { count = 1, ...more }: { count?: number; bytesIn?: number; bytesOut?: number; serverName?: string } = {},
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
      ...more,
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
