import type { Socket } from 'node:net';
import { HOST_MACHINE } from '../../protocol/egress.ts';
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
import { decide } from './decide.ts';
import {
  type DialledConnection,
  GateDialer,
  type GateDialerOptions,
  refused,
  type Refused,
  type Target,
} from './gate-dialer.ts';
import { ReadBuffer } from './read-buffer.ts';
import type { Tunnel } from './tunnel.ts';

/** Maximum connections of one session; further ones are reset. */
const MOST_TUNNELS = 1024;
/**
 * What the process gets beyond the time that it gives its client: it may have a thousand clients on a busy machine. One that
 * is frozen is noticed sooner, by its pulse.
 */
const GRACE_MS = 60_000;

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

export interface SessionGateOptions extends GateDialerOptions {
  readonly proxy: ProxyConnections;
  readonly log: Log;
}

/** State of one connection of the sandbox. */
interface GateConnection extends DialledConnection {
  /** Runs while the process is expected to say something. */
  limit: NodeJS.Timeout | undefined;
  /** `head`: nothing is known yet. `tunnel`: the client has its 200, and its first words are read. */
  stage: 'head' | 'deciding' | 'tunnel' | 'plain' | 'over';
  /** Of a tunnel whose first words are read. */
  server: { readonly upstream: Socket; readonly readBuffer: ReadBuffer; readonly lost: () => void } | null;
}

/**
 * The egress of one session. A process of its own reads what the sandbox sends and says what is asked for. `GateDialer` decides
 * whether and where it is forwarded, and dials; this class obeys the process and joins the two connections. What the process says is
 * checked like what the sandbox says: it can ask for nothing that the sandbox could not ask for.
 */
export class SessionGate {
  readonly #options: SessionGateOptions;
  readonly #dialer: GateDialer;
  readonly #connections = new Set<GateConnection>();

  constructor(options: SessionGateOptions) {
    this.#options = options;
    this.#dialer = new GateDialer(options);
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
    const readBuffer = new ReadBuffer();
    const dialled = await this.#dialer.dial(connection, { host: HOST_MACHINE.name, port }, 'TCP', readBuffer);
    if (dialled === null) return;
    if ('answer' in dialled) {
      tunnel.destroy();
      return;
    }
    join(tunnel, dialled);
    tunnel.pipe(dialled);
    readBuffer.pipeIntoTunnel(tunnel, dialled);
  }

  /** Null if the session has too many connections. */
  #adopt(tunnel: Tunnel): GateConnection | null {
    tunnel.on('error', () => tunnel.destroy());
    if (this.#connections.size >= MOST_TUNNELS) {
      this.#dialer.report('denied', null, '', 'too_many', null);
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
    this.#dialer.report('denied', null, '', 'too_many', null, null, { count });
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
        const readBuffer = new ReadBuffer();
        const dialled = await this.#dialer.dial(connection, { host, port }, method, readBuffer);
        await this.#passPlain(connection, dialled, readBuffer, id, answer);
      }
    } else if (request.say === 'request' && stage === 'tunnel' && going !== null && !going.tcp) {
      const { server } = connection;
      connection.server = null;
      connection.stage = 'plain';
      link.release();
      if (server === null) return;
      server.upstream.off('close', server.lost);
      server.upstream.off('error', server.lost);
      await this.#passPlain(connection, server.upstream, server.readBuffer, id, answer);
    } else if (request.say === 'carry' && stage === 'tunnel') {
      const bytes = link.detach(request.from);
      if (bytes === null) this.#distrust(connection);
      else this.#carry(connection, bytes);
    } else if (request.say === 'denied' && (stage === 'head' || stage === 'tunnel')) {
      this.#dropServer(connection);
      link.release();
      this.#over(connection);
      this.#dialer.report('denied', null, request.method, request.reason, null);
    } else if (request.say === 'misused' && stage === 'tunnel' && going !== null) {
      this.#dropServer(connection);
      connection.going = null;
      this.#over(connection);
      const { reason, serverName } = request;
      const named = serverName === undefined ? undefined : canonicalizeHost(serverName);
      const asked = named === undefined || 'refused' in named ? {} : { serverName: named.host };
      this.#dialer.report('denied', going, 'CONNECT', reason, going.rule, going.address, asked);
    } else this.#distrust(connection);
  }

  async #openTunnel(
    connection: GateConnection,
    target: Target,
    answer: (said: Answer) => void,
  ): Promise<void> {
    const { tunnel } = connection;
    const readBuffer = new ReadBuffer();
    const upstream = await this.#dialer.dial(connection, target, 'CONNECT', readBuffer);
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
    connection.server = { upstream, readBuffer, lost };
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
    const { upstream, readBuffer, lost } = server;
    connection.server = null;
    connection.stage = 'over';
    upstream.off('close', lost);
    join(tunnel, upstream);
    if (bytes.length > 0) upstream.write(bytes);
    if (tunnel.readableEnded) upstream.end();
    else tunnel.pipe(upstream);
    readBuffer.pipeIntoTunnel(tunnel, upstream);
  }

  /** Gives the process the connection to the server of a plain request. */
  async #passPlain(
    connection: GateConnection,
    dialled: Socket | Refused | null,
    readBuffer: ReadBuffer,
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
    couple(dialled, readBuffer, server);
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
    this.#dialer.report('failed', null, '', 'no_proxy', null);
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
    this.#dialer.report('ended', going, going.method, null, going.rule, going.address, { bytesIn, bytesOut });
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
