import type { Socket } from 'node:net';
import {
  type EgressReason,
  HOST_MACHINE,
  isLoopback,
  type RuleOrigin,
  formatHostPattern,
} from '../../protocol/egress.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { canonicalizeHost } from '../../protocol/host-name.ts';
import type { MessageChannel } from '../../protocol/wire/message-channel.ts';
import {
  type Answer,
  FINAL_RESPONSE_MS,
  HEAD_MS,
  OPENING_MS,
  type ProxyRequest,
  RequestSchema,
} from '../../egress-proxy/wire.ts';
import type { Log } from '../base/log.ts';
import { ClientLink } from './client-link.ts';
import { couple, join } from './couple.ts';
import { decide, type Rule } from './decide.ts';
import { resolveAllowedAddresses, dialFirst, DialError } from './dial.ts';
import type { EgressEventAggregator } from './event-aggregator.ts';
import type { Policies } from './policies.ts';
import { ReadBuffer } from './read-buffer.ts';
import type { ResolveName } from './resolver.ts';
import type { Tunnel } from './tunnel.ts';

/** Maximum connections of one session; further ones are reset. */
const MOST_TUNNELS = 1024;
/**
 * What the process gets beyond the time that it gives its client: it may have a thousand clients on a busy machine. One that
 * is frozen is noticed sooner, by its pulse.
 */
const GRACE_MS = 60_000;

/** A person means their own machine, but a program in the sandbox addresses the sandbox. */
const LOOPBACK_HINT = `; in a sandbox this address is the sandbox itself, and your machine is ${HOST_MACHINE.name}`;

const WHY: Record<'no_rule' | 'other_port' | 'denied', string> = {
  no_rule: 'no rule names it',
  other_port: 'the rule for this host is for another port',
  denied: 'a rule denies it',
};

const ESTABLISHED = 'HTTP/1.1 200 Connection established\r\n\r\n';

/** Nothing of the request has been read: it may even be none. */
const NO_PROXY_TEXT = 'Holdfast: no connection: the egress proxy is starting; try again.\n';
const NO_PROXY = [
  'HTTP/1.1 503 Service Unavailable',
  'Content-Type: text/plain; charset=utf-8',
  `Content-Length: ${String(NO_PROXY_TEXT.length)}`,
  'X-Holdfast-Egress: no_proxy',
  'Connection: close',
  '',
  NO_PROXY_TEXT,
].join('\r\n');

/** Connections to the process that reads what sandboxes send. */
export interface ProxyConnections {
  /** For a new client. Rejects if there is no process within a few seconds. */
  openClient(sessionId: string): Promise<{ readonly id: number; readonly channel: MessageChannel }>;
  /** For the bytes of the server that the client with this id has asked for. */
  openServer(id: number): Promise<MessageChannel>;
}

export interface SessionGateOptions {
  readonly sessionId: string;
  readonly policies: Policies;
  readonly resolve: ResolveName;
  readonly proxy: ProxyConnections;
  readonly aggregator: EgressEventAggregator;
  readonly log: Log;
}

/** The destination of a connection, in canonical form. */
interface Target {
  readonly host: string;
  readonly port: number;
}

/** State of one connection of the sandbox. */
interface GateConnection {
  readonly tunnel: Tunnel;
  readonly ending: AbortController;
  /** Runs while the process is expected to say something. */
  limit: NodeJS.Timeout | undefined;
  /** Set once it is allowed. */
  going: AllowedConnection | null;
  /** `head`: nothing is known yet. `tunnel`: the client has its 200, and its first words are read. */
  stage: 'head' | 'deciding' | 'tunnel' | 'plain' | 'over';
  /** Of a tunnel whose first words are read. */
  server: { readonly upstream: Socket; readonly intake: ReadBuffer; readonly lost: () => void } | null;
}

interface AllowedConnection extends Target {
  readonly method: string;
  readonly rule: Rule;
  readonly address: string;
  /** What its rules carry besides HTTP and TLS that names the host. */
  readonly tcp: boolean;
  readonly ech: boolean;
}

type Refused = Extract<Answer, { answer: 'refused' }>;

/**
 * The way out of one session. A process of its own reads what the sandbox sends and says what is asked for; this class
 * decides whether and where it is forwarded, dials, and reports. What the process says is checked like what the sandbox
 * says: it can ask for nothing that the sandbox could not ask for.
 */
export class SessionGate {
  readonly #options: SessionGateOptions;
  readonly #connections = new Set<GateConnection>();

  constructor(options: SessionGateOptions) {
    this.#options = options;
  }

  /** Adopts a connection of the sandbox. */
  serve(tunnel: Tunnel): void {
    const connection = this.#adopt(tunnel);
    if (connection !== null) this.#guard(connection, this.#link(connection));
  }

  /** Adopts a connection of the sandbox to a port of this machine and forwards it unparsed. */
  forward(tunnel: Tunnel, port: number): void {
    const connection = this.#adopt(tunnel);
    if (connection !== null) this.#guard(connection, this.#forward(connection, port));
  }

  async #forward(connection: GateConnection, port: number): Promise<void> {
    const { tunnel } = connection;
    const intake = new ReadBuffer();
    const dialled = await this.#dial(connection, { host: HOST_MACHINE.name, port }, 'TCP', intake);
    if (dialled === null) return;
    if ('answer' in dialled) {
      tunnel.destroy();
      return;
    }
    join(tunnel, dialled);
    tunnel.pipe(dialled);
    intake.pipeIntoTunnel(tunnel, dialled);
  }

  /** Null if the session has too many connections. */
  #adopt(tunnel: Tunnel): GateConnection | null {
    tunnel.on('error', () => tunnel.destroy());
    if (this.#connections.size >= MOST_TUNNELS) {
      this.#report('denied', null, '', 'too_many', null);
      tunnel.destroy();
      return null;
    }
    const connection: GateConnection = {
      tunnel,
      ending: new AbortController(),
      limit: undefined,
      going: null,
      stage: 'head',
      server: null,
    };
    this.#connections.add(connection);
    tunnel.once('close', () => {
      clearTimeout(connection.limit);
      connection.ending.abort();
      this.#connections.delete(connection);
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
    for (const { tunnel, going } of this.#connections) {
      if (going === null) continue;
      const verdict = decide(rules, going.host, going.port);
      if (verdict.allowed || (going.rule.from === 'once' && verdict.reason !== 'denied')) continue;
      tunnel.destroy();
    }
  }

  close(): void {
    for (const { tunnel } of this.#connections) tunnel.destroy();
  }

  get size(): number {
    return this.#connections.size;
  }

  /** Has the process read the client. */
  async #link(connection: GateConnection): Promise<void> {
    const { tunnel } = connection;
    const { proxy, sessionId, log } = this.#options;
    let opened: Awaited<ReturnType<ProxyConnections['openClient']>>;
    try {
      opened = await proxy.openClient(sessionId);
    } catch (error) {
      log.warn('a connection is refused: there is no egress proxy', {
        session: sessionId,
        why: HoldfastError.from(error).sentence,
      });
      this.#withoutProxy(connection);
      return;
    }
    const { id, channel } = opened;
    if (tunnel.destroyed || channel.destroyed) {
      channel.destroy();
      this.#withoutProxy(connection);
      return;
    }
    this.#expect(connection, HEAD_MS);
    const link: ClientLink = new ClientLink({
      tunnel,
      channel,
      onMessage: (message) => {
        const request = RequestSchema.safeParse(message);
        if (!request.success) this.#distrust(connection);
        else this.#guard(connection, this.#obey(connection, request.data, { id, channel, link }));
      },
      onLost: () => this.#withoutProxy(connection),
    });
  }

  async #obey(
    connection: GateConnection,
    request: ProxyRequest,
    { id, channel, link }: { id: number; channel: MessageChannel; link: ClientLink },
  ): Promise<void> {
    const { tunnel, stage, going } = connection;
    const answer = (said: Answer): void => channel.send(said);
    if (request.say === 'reset') tunnel.destroy();
    else if (request.say === 'dial' && stage === 'head') {
      connection.stage = 'deciding';
      clearTimeout(connection.limit);
      const { method, host, port } = request;
      const canonical = canonicalizeHost(host);
      if ('refused' in canonical || canonical.host !== host) this.#distrust(connection);
      else if (method === 'CONNECT') await this.#openTunnel(connection, { host, port }, answer);
      else {
        link.release();
        const intake = new ReadBuffer();
        const dialled = await this.#dial(connection, { host, port }, method, intake);
        await this.#passPlain(connection, dialled, intake, id, answer);
      }
    } else if (request.say === 'request' && stage === 'tunnel' && going !== null && !going.tcp) {
      const { server } = connection;
      connection.server = null;
      connection.stage = 'plain';
      link.release();
      if (server === null) return;
      server.upstream.off('close', server.lost);
      server.upstream.off('error', server.lost);
      await this.#passPlain(connection, server.upstream, server.intake, id, answer);
    } else if (request.say === 'carry' && stage === 'tunnel') {
      const bytes = link.detach(request.from);
      if (bytes === null) this.#distrust(connection);
      else this.#carry(connection, bytes);
    } else if (request.say === 'denied' && (stage === 'head' || stage === 'tunnel')) {
      this.#dropServer(connection);
      link.release();
      this.#over(connection);
      this.#report('denied', null, request.method, request.reason, null);
    } else if (request.say === 'misused' && stage === 'tunnel' && going !== null) {
      this.#dropServer(connection);
      connection.going = null;
      this.#over(connection);
      const { reason, serverName } = request;
      const named = serverName === undefined ? undefined : canonicalizeHost(serverName);
      const asked = named === undefined || 'refused' in named ? {} : { serverName: named.host };
      this.#report('denied', going, 'CONNECT', reason, going.rule, going.address, asked);
    } else this.#distrust(connection);
  }

  async #openTunnel(
    connection: GateConnection,
    target: Target,
    answer: (said: Answer) => void,
  ): Promise<void> {
    const { tunnel } = connection;
    const intake = new ReadBuffer();
    const upstream = await this.#dial(connection, target, 'CONNECT', intake);
    const { going } = connection;
    if (upstream === null) return;
    if ('answer' in upstream) {
      this.#over(connection);
      answer(upstream);
      return;
    }
    if (going === null) return;
    const lost = (): void => void tunnel.destroy();
    upstream.on('error', lost);
    upstream.once('close', lost);
    connection.server = { upstream, intake, lost };
    tunnel.once('close', () => this.#dropServer(connection));
    connection.stage = 'tunnel';
    this.#expect(connection, OPENING_MS);
    tunnel.write(ESTABLISHED);
    answer({ answer: 'dialled', tcp: going.tcp, ech: going.ech });
  }

  /** The first words of a tunnel are good: from here on nobody reads what it carries. */
  #carry(connection: GateConnection, bytes: Buffer): void {
    const { tunnel, server } = connection;
    clearTimeout(connection.limit);
    if (server === null || tunnel.destroyed) {
      tunnel.destroy();
      return;
    }
    const { upstream, intake, lost } = server;
    connection.server = null;
    connection.stage = 'over';
    upstream.off('close', lost);
    join(tunnel, upstream);
    if (bytes.length > 0) upstream.write(bytes);
    if (tunnel.readableEnded) upstream.end();
    else tunnel.pipe(upstream);
    intake.pipeIntoTunnel(tunnel, upstream);
  }

  /** Gives the process the connection to the server of a plain request. */
  async #passPlain(
    connection: GateConnection,
    dialled: Socket | Refused | null,
    intake: ReadBuffer,
    id: number,
    answer: (said: Answer) => void,
  ): Promise<void> {
    const { tunnel } = connection;
    this.#over(connection);
    if (dialled === null) return;
    if ('answer' in dialled) {
      answer(dialled);
      return;
    }
    // It may break, or the client may leave, before the process has been reached.
    const leave = (): void => void dialled.destroy();
    dialled.on('error', leave);
    tunnel.once('close', leave);
    let server: MessageChannel;
    try {
      server = await this.#options.proxy.openServer(id);
    } catch (error) {
      dialled.destroy();
      throw error;
    }
    if (dialled.destroyed) {
      server.destroy();
      const { going } = connection;
      if (going !== null) answer(refused(going, 'not_reached', 'the server has broken the connection', null));
      return;
    }
    couple(dialled, intake, server);
    tunnel.once('close', () => {
      dialled.destroy();
      server.destroy();
    });
    if (tunnel.destroyed) {
      dialled.destroy();
      server.destroy();
    }
    answer({ answer: 'dialled', tcp: false, ech: false });
  }

  /** Decides and connects if allowed. Null if the client has gone. */
  async #dial(
    connection: GateConnection,
    target: Target,
    method: string,
    intake: ReadBuffer,
  ): Promise<Socket | Refused | null> {
    const { policies, sessionId, resolve } = this.#options;
    const deny = (refusal: Refused, rule: Rule | null, address: string | null = null): Refused | null => {
      const failed = refusal.reason === 'not_resolved' || refusal.reason === 'not_reached';
      this.#report(failed ? 'failed' : 'denied', refusal, method, refusal.reason, rule, address);
      return connection.tunnel.destroyed ? null : refusal;
    };
    const { host, port } = target;
    const verdict = policies.decide(sessionId, host, port);
    if (!verdict.allowed) {
      const { reason, allow, rule } = verdict;
      const why = isLoopback(host) ? WHY[reason] + LOOPBACK_HINT : WHY[reason];
      return deny(refused(target, reason, why, allow), rule);
    }
    const { rule, tcp, ech } = verdict;
    try {
      const addresses = await resolveAllowedAddresses(host, port, policies.rulesOf(sessionId), resolve);
      const [address] = addresses;
      if (address === undefined || connection.ending.signal.aborted) return null;
      const going = { host, port, method, rule, address, tcp, ech };
      connection.going = going;
      this.#report('allowed', target, method, null, rule, address);
      const dialled = await dialFirst(addresses, port, connection.ending.signal, intake.onread);
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
      return deny(refused(target, reason, message, allow), rule, address);
    }
  }

  /** Gives the process so long to say something. */
  #expect(connection: GateConnection, ms: number): void {
    clearTimeout(connection.limit);
    connection.limit = setTimeout(() => connection.tunnel.destroy(), ms + GRACE_MS);
  }

  /** The process has nothing more to say. */
  #over(connection: GateConnection): void {
    clearTimeout(connection.limit);
    connection.stage = 'over';
  }

  #dropServer(connection: GateConnection): void {
    const { server } = connection;
    connection.server = null;
    if (server === null) return;
    server.upstream.off('close', server.lost);
    server.upstream.resetAndDestroy();
  }

  /** Nobody reads the client. It is told so, if it has heard nothing else yet and no server may have heard of it. */
  #withoutProxy(connection: GateConnection): void {
    const { tunnel } = connection;
    this.#over(connection);
    if (tunnel.destroyed) return;
    if (tunnel.bytesIn > 0 || connection.going !== null) {
      tunnel.destroy();
      return;
    }
    this.#report('failed', null, '', 'no_proxy', null);
    tunnel.end(NO_PROXY);
    tunnel.resume();
    const timer = setTimeout(() => tunnel.destroy(), FINAL_RESPONSE_MS);
    tunnel.once('close', () => clearTimeout(timer));
  }

  /** The process says what it never says. */
  #distrust(connection: GateConnection): void {
    this.#options.log.warn('the egress proxy does not keep to the protocol', {
      session: this.#options.sessionId,
    });
    connection.tunnel.destroy();
  }

  #ended({ going, tunnel }: GateConnection): void {
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
  #guard({ tunnel }: GateConnection, work: Promise<void>): void {
    work.catch((error: unknown) => {
      this.#options.log.error('cannot forward a connection', {
        session: this.#options.sessionId,
        why: HoldfastError.from(error).sentence,
      });
      tunnel.destroy();
    });
  }
}

function refused(target: Target, reason: EgressReason, why: string, allow: string | null): Refused {
  const { host, port } = target;
  return { answer: 'refused', reason, why, host, port, allow };
}
