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

/** Connections of one session; one more is reset. */
const MOST_TUNNELS = 1024;
const HEAD_BYTES = 16 * 1024;
/** From the connection to the end of the request's head. */
const HEAD_MS = 10_000;
/** How long a client may take to read our last words before it is cut off. */
const LAST_WORDS_MS = 2000;
/** A connection on which nothing moves for so long is given up; sooner when one side has ended it. */
const SILENT_MS = 3600_000;
const HALF_CLOSED_MS = 300_000;

/** A person means their own machine, and a program in the sandbox asks for itself. */
const LOOPBACK_HINT = `; in a sandbox this address is the sandbox itself, and your machine is ${HOST_MACHINE.name}`;

const WHY: Record<'no_rule' | 'other_port' | 'denied', string> = {
  no_rule: 'no rule names it',
  other_port: 'the rule for this host is for another port',
  denied: 'a rule denies it',
};

export interface SessionProxyOptions {
  readonly sessionId: string;
  readonly policies: Policies;
  readonly resolve: ResolveName;
  readonly aggregator: EgressEventAggregator;
  readonly log: Log;
}

/** What is known of one connection of the sandbox. */
interface Carried {
  readonly tunnel: Tunnel;
  readonly ending: AbortController;
  headTimer: NodeJS.Timeout | undefined;
  /** It has had its one request. */
  used: boolean;
  /** Once it is allowed. */
  going: (Target & { readonly method: string; readonly rule: Rule; readonly address: string }) | null;
}

/**
 * The proxy of one session. Node's parser reads what comes out of the sandbox; here it is decided whether it goes on, and where.
 * One request a connection, so that no two programs can disagree about where the next one begins.
 */
export class SessionProxy {
  readonly #options: SessionProxyOptions;
  readonly #server: Server;
  readonly #carried = new Map<Duplex, Carried>();

  constructor(options: SessionProxyOptions) {
    this.#options = options;
    this.#server = createServer({
      maxHeaderSize: HEAD_BYTES,
      insecureHTTPParser: false,
      // Refused by us, so that it is told like everything that is refused.
      requireHostHeader: false,
      joinDuplicateHeaders: false,
      keepAlive: false,
    });
    this.#server.maxRequestsPerSocket = 1;
    // What Node does otherwise with a client that has said all it has to say is to end the answer in the middle.
    Reflect.set(this.#server, 'httpAllowHalfOpen', true);
    this.#server.on('connect', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
      const carried = this.#carried.get(stream);
      if (carried === undefined) stream.destroy();
      else this.#guard(carried, this.#connect(carried, request, head));
    });
    const plain = (request: IncomingMessage, response: ServerResponse): void => {
      const carried = this.#carried.get(request.socket);
      if (carried === undefined) request.socket.destroy();
      else this.#guard(carried, this.#plain(carried, request, response));
    };
    this.#server.on('request', plain);
    // Node would say to go on before anything is decided.
    this.#server.on('checkContinue', plain);
    this.#server.on('checkExpectation', plain);
    this.#server.on('clientError', (error: Error & { code?: string }, stream: Duplex) => {
      const carried = this.#carried.get(stream);
      if (carried?.going !== null) stream.destroy();
      else if (!carried.used) this.#unreadable(carried, error.code);
    });
  }

  /** Takes over a connection of the sandbox. */
  serve(tunnel: Tunnel): void {
    if (this.#carry(tunnel) !== null) this.#server.emit('connection', tunnel);
  }

  /** Takes over a connection of the sandbox to a port of this machine: whatever is spoken there, it is carried as it is. */
  forward(tunnel: Tunnel, port: number): void {
    const carried = this.#carry(tunnel);
    if (carried === null) return;
    this.#first(carried);
    this.#guard(carried, this.#forward(carried, { host: HOST_MACHINE.name, port }));
  }

  async #forward(carried: Carried, target: Target): Promise<void> {
    const { tunnel } = carried;
    const intake = new ReadBuffer();
    const upstream = await this.#dial(carried, target, 'TCP', () => tunnel.destroy(), intake);
    if (upstream === null) return;
    join(tunnel, upstream);
    tunnel.pipe(upstream);
    intake.pipeInto(tunnel, upstream);
  }

  /** Null where the session has as many connections as it may have. */
  #carry(tunnel: Tunnel): Carried | null {
    tunnel.on('error', () => tunnel.destroy());
    if (this.#carried.size >= MOST_TUNNELS) {
      this.#tell('denied', null, '', 'too_many', null);
      tunnel.destroy();
      return null;
    }
    const carried: Carried = {
      tunnel,
      ending: new AbortController(),
      headTimer: setTimeout(() => this.#unreadable(carried, 'ERR_HTTP_REQUEST_TIMEOUT'), HEAD_MS),
      used: false,
      going: null,
    };
    this.#carried.set(tunnel, carried);
    tunnel.once('close', () => {
      clearTimeout(carried.headTimer);
      carried.ending.abort();
      this.#carried.delete(tunnel);
      this.#ended(carried);
    });
    return carried;
  }

  /** Its sidecar has reset connections already: there were too many. */
  recordRefused(count: number): void {
    this.#tell('denied', null, '', 'too_many', null, null, { count });
  }

  /** The rules have changed: what they no longer allow is cut. */
  applyRules(): void {
    const rules = this.#options.policies.rulesOf(this.#options.sessionId);
    for (const { tunnel, going } of this.#carried.values()) {
      if (going === null) continue;
      const verdict = decide(rules, going.host, going.port);
      if (verdict.allowed || (going.rule.from === 'once' && verdict.reason !== 'denied')) continue;
      tunnel.destroy();
    }
  }

  close(): void {
    for (const { tunnel } of this.#carried.values()) tunnel.destroy();
  }

  get size(): number {
    return this.#carried.size;
  }

  async #connect(carried: Carried, request: IncomingMessage, head: Buffer): Promise<void> {
    const { tunnel } = carried;
    const refuse = (refusal: Refusal): void => this.#lastWords(carried, connectRefusal(refusal));
    if (!this.#first(carried)) return;
    const intake = new ReadBuffer();
    const upstream = await this.#dial(carried, connectTarget(request), 'CONNECT', refuse, intake);
    if (upstream === null) return;
    join(tunnel, upstream);
    if (head.length > 0) upstream.write(head);
    tunnel.write('HTTP/1.1 200 Connection established\r\n\r\n');
    tunnel.pipe(upstream);
    intake.pipeInto(tunnel, upstream);
  }

  async #plain(carried: Carried, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { tunnel } = carried;
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
      // What it still sends is read and dropped, or it would never come to read the answer.
      request.resume();
      this.#cutSoon(tunnel);
    };
    if (!this.#first(carried)) return;
    const target = plainTarget(request);
    const method = request.method ?? 'GET';
    const upstream = await this.#dial(carried, target, method, refuse);
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
          this.#refusal(target, 'not_reached', `the server's answer cannot be used (${codeOf(error)})`, null),
        );
    });
    // An answer that says to go on speaking something else was not asked for: Upgrade is not passed on.
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

  /** Decides, and connects where it may. Null when it was refused, or nobody waits any more. */
  async #dial(
    carried: Carried,
    target: Target | BadRequest,
    method: string,
    refuse: (refusal: Refusal) => void,
    intake?: ReadBuffer,
  ): Promise<Socket | null> {
    const { policies, sessionId, resolve } = this.#options;
    const deny = (refusal: Refusal, rule: Rule | null, address: string | null = null): null => {
      const failed = refusal.reason === 'not_resolved' || refusal.reason === 'not_reached';
      this.#tell(failed ? 'failed' : 'denied', refusal, method, refusal.reason, rule, address);
      if (!carried.tunnel.destroyed) refuse(refusal);
      return null;
    };
    if ('bad' in target)
      return deny(this.#refusal({ host: '', port: 0 }, 'bad_request', target.bad, null), null);
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
      if (address === undefined || carried.ending.signal.aborted) return null;
      carried.going = { host, port, method, rule, address };
      this.#tell('allowed', target, method, null, rule, address);
      const dialled = await dialFirst(addresses, port, carried.ending.signal, intake?.onread);
      if (!carried.tunnel.destroyed) return dialled.socket;
      dialled.socket.destroy();
      return null;
    } catch (error) {
      if (!(error instanceof DialError)) {
        if (carried.ending.signal.aborted) return null;
        throw error;
      }
      // What never came to be does not end either.
      carried.going = null;
      const { reason, address, message } = error;
      const named = reason === 'private_address' && address !== null;
      const allow = named ? formatHostPattern({ host: address, wildcard: false, port }) : null;
      return deny(this.#refusal(target, reason, message, allow), rule, address);
    }
  }

  /** False for a second request on a connection that has had its one. */
  #first(carried: Carried): boolean {
    clearTimeout(carried.headTimer);
    if (carried.used) {
      carried.tunnel.destroy();
      return false;
    }
    carried.used = true;
    return true;
  }

  #refusal(target: Target, reason: EgressReason, why: string, allow: string | null): Refusal {
    const { host, port } = target;
    return { reason, why, host, port, allow, sessionId: this.#options.sessionId };
  }

  #unreadable(carried: Carried, code: string | undefined): void {
    clearTimeout(carried.headTimer);
    if (carried.used || carried.tunnel.destroyed) return;
    carried.used = true;
    // A client that says nothing at all – a spare connection of a browser – made no decision that one could tell of.
    if (carried.tunnel.bytesOut > 0) this.#tell('denied', null, '', 'bad_request', null);
    if (code === 'HPE_HEADER_OVERFLOW') this.#lastWords(carried, unreadableRefusal(431));
    else this.#lastWords(carried, unreadableRefusal(code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400));
  }

  #lastWords({ tunnel }: Carried, words: string): void {
    tunnel.end(words);
    tunnel.resume();
    this.#cutSoon(tunnel);
  }

  /** Whoever has its answer and neither reads it nor leaves is cut off. */
  #cutSoon(tunnel: Tunnel): void {
    const timer = setTimeout(() => tunnel.destroy(), LAST_WORDS_MS);
    tunnel.once('close', () => clearTimeout(timer));
  }

  #ended({ going, tunnel }: Carried): void {
    if (going === null) return;
    const { bytesIn, bytesOut } = tunnel;
    this.#tell('ended', going, going.method, null, going.rule, going.address, { bytesIn, bytesOut });
  }

  #tell(
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

  /** A failure of ours ends the connection that it was about, and is told to whoever reads the log. */
  #guard({ tunnel }: Carried, work: Promise<void>): void {
    work.catch((error: unknown) => {
      this.#options.log.error('a connection was not carried', {
        session: this.#options.sessionId,
        why: HoldfastError.from(error).sentence,
      });
      tunnel.destroy();
    });
  }
}

/** The end of either is the end of the other's direction; what breaks off on one side breaks off on the other. */
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

function codeOf(error: Error): string {
  return 'code' in error ? String(error.code) : error.name;
}
