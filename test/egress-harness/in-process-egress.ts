import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Credential } from '../../protocol/credentials.ts';
import type { EgressEvent, RuleScope } from '../../protocol/egress.ts';
import { Peer } from '../../protocol/wire/peer.ts';
import { EMPTY_MAP, type HandlerContext } from '../../protocol/wire/shapes.ts';
import { type AcceptingPeer, acceptConnection } from '../../sidecar/egress/accept.ts';
import type { EgressListener } from '../../sidecar/egress/listener.ts';
import { EgressListeners } from '../../sidecar/egress/listeners.ts';
import { SIDECAR_METHODS, SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';
import type { Log } from '../../supervisor/base/log.ts';
import { EventLog } from '../../supervisor/history/event-log.ts';
import { type Database, openDatabase } from '../../supervisor/store/database.ts';
import { EgressRules } from '../../supervisor/store/egress-rules.ts';
import { Home } from '../../supervisor/store/home.ts';
import { Profiles } from '../../supervisor/store/profiles.ts';
import { Sessions } from '../../supervisor/store/sessions.ts';
import { Egress, type EgressOptions } from '../../supervisor/egress/egress.ts';
import { Policies, type RuleProtocols } from '../../supervisor/egress/policies.ts';
import { LocalProxy } from './local-proxy.ts';
import type { ResolveName } from '../../supervisor/egress/resolver.ts';
import type { SecretValue } from '../../supervisor/secrets/secret-store.ts';
import { sessionId, sessionRow } from '../fixtures/store/temporary-home.ts';
import { freePort } from './ports.ts';

const SERVED = {
  hello: SIDECAR_METHODS.hello,
  'egress/accept': SIDECAR_METHODS['egress/accept'],
  'tools/accept': SIDECAR_METHODS['tools/accept'],
} as const;
/** Keeps nothing. */
export const silent: Log = {
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  child: () => silent,
};

export interface InProcessEgressOptions {
  /** Addresses by name; other names do not exist. */
  readonly resolve?: ResolveName;
  /** Served to the session, each on a free port of this machine instead of its own. */
  readonly credentials?: readonly Credential[];
  readonly secret?: () => SecretValue | null;
  /** Certificates that the servers of credentials may have. */
  readonly authorities?: readonly string[];
  readonly carriedMs?: number;
  /** Default: its code in this process. */
  readonly proxy?: EgressOptions['proxy'];
}

/**
 * Both halves of egress in one process, without containers: the sidecar's listener on its own port, the supervisor's
 * pool, proxy, rules and history on a real database. Only the sandbox is missing.
 */
export class InProcessEgress {
  readonly session = sessionId(1);
  readonly port: number;
  /** Where the tools of agents are, instead of their own port. */
  readonly toolsPort: number;
  /** Opens a connection to the sidecar. */
  readonly dial: () => Promise<Socket>;
  readonly policies: Policies;
  readonly egress: Egress;
  readonly events: EventLog;
  readonly listeners: EgressListeners;
  readonly #folder: string;
  readonly #database: Database;
  readonly #sidecar: Server;
  readonly #carriers = new Set<Socket>();
  readonly #clients = new Set<Socket>();
  /** The ports of this machine that stand for those of credentials. */
  readonly #credentialPorts = new Map<number, number>();
  /** Changes are served from the next `applyRules` on. */
  credentials: readonly Credential[];

  private constructor(
    folder: string,
    [port, toolsPort]: readonly [number, number],
    options: InProcessEgressOptions,
  ) {
    this.#folder = folder;
    this.port = port;
    this.toolsPort = toolsPort;
    this.credentials = options.credentials ?? [];
    this.#database = openDatabase(Home.open(join(folder, 'home')));
    const sessions = new Sessions(this.#database);
    const profiles = new Profiles(this.#database);
    sessions.insert(sessionRow(1));
    this.events = new EventLog(this.#database);
    const now = (): number => Date.now();
    const rules = new EgressRules(this.#database);
    const { events } = this;
    this.policies = new Policies({ database: this.#database, rules, profiles, sessions, events, now });
    this.listeners = new EgressListeners(port, toolsPort);
    this.#sidecar = createServer((socket) => this.#serve(socket));
    const socketPath = join(folder, 'sidecar.sock');
    this.#sidecar.listen(socketPath);
    this.dial = () => dialled(socketPath);
    const nowhere: ResolveName = () => Promise.reject(Object.assign(new Error('no'), { code: 'ENOTFOUND' }));
    this.egress = new Egress({
      policies: this.policies,
      sessions,
      events,
      dial: this.dial,
      resolve: options.resolve ?? nowhere,
      proxy: options.proxy ?? new LocalProxy(),
      authorities: options.authorities,
      carriedMs: options.carriedMs,
      credentials: {
        of: () => this.credentials,
        environment: () => ({}),
        secret: () => options.secret?.() ?? null,
      },
      log: silent,
      now,
    });
  }

  /** Creates the chain with these hosts allowed for the session. */
  static async open(
    allowed: readonly string[],
    options: InProcessEgressOptions = {},
  ): Promise<InProcessEgress> {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-chain-'));
    const chain = new InProcessEgress(folder, [await freePort(), await freePort()], options);
    for (const { listenPort } of chain.credentials) chain.#credentialPorts.set(listenPort, await freePort());
    for (const host of allowed) chain.addRule('allow', host);
    await chain.egress.waitUntilReady(chain.session);
    return chain;
  }

  addRule(
    effect: 'allow' | 'deny',
    host: string,
    scope: RuleScope = 'session',
    carries: RuleProtocols = {},
  ): void {
    this.policies.setRule(this.session, effect, host, scope, carries);
    this.egress.applyRules();
  }

  /** The port on which a credential is served here. */
  portOf({ listenPort }: Credential): number {
    return this.#credentialPorts.get(listenPort) ?? listenPort;
  }

  /** Connects as a process of the sandbox. */
  async connect(port = this.port): Promise<Socket> {
    const socket = await dialled({ host: '127.0.0.1', port });
    this.#clients.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => this.#clients.delete(socket));
    return socket;
  }

  /** Sends this and reads to the end; `reset` if the connection breaks. Null after `ms` without an end. */
  async sendRaw(
    bytes: string | Buffer,
    ms = 5000,
    port = this.port,
  ): Promise<{ text: string; reset: boolean } | null> {
    const socket = await this.connect(port);
    const { promise, resolve } = Promise.withResolvers<{ text: string; reset: boolean } | null>();
    const parts: Buffer[] = [];
    const text = (): string => Buffer.concat(parts).toString('latin1');
    const late = setTimeout(() => resolve(null), ms);
    socket.on('data', (chunk) => parts.push(chunk));
    socket.once('end', () => resolve({ text: text(), reset: false }));
    socket.once('error', () => resolve({ text: text(), reset: true }));
    socket.write(bytes);
    const said = await promise;
    clearTimeout(late);
    socket.destroy();
    return said;
  }

  /** The recorded decisions. */
  decisions(): EgressEvent[] {
    return this.events
      .read(this.session, { limit: 1000 })
      .flatMap((event) => (event.type === 'egress' ? [event.data as EgressEvent] : []));
  }

  /** Breaks the supervisor's connections, as kill -9 does. */
  breakConnections(): void {
    for (const carrier of this.#carriers) carrier.destroy();
  }

  get connectionCount(): number {
    return this.#carriers.size;
  }

  async dispose(): Promise<void> {
    this.egress.close();
    for (const client of this.#clients) client.destroy();
    for (const carrier of this.#carriers) carrier.destroy();
    this.listeners.close();
    await new Promise((resolve) => this.#sidecar.close(resolve));
    // Pending events of the aggregator arrive with the next turn of the event loop.
    await new Promise((resolve) => setTimeout(resolve, 20));
    this.#database.close();
    await rm(this.#folder, { recursive: true, force: true });
  }

  #serve(socket: Socket): void {
    this.#carriers.add(socket);
    const closed = new Promise<void>((resolve) => {
      socket.once('close', () => {
        this.#carriers.delete(socket);
        resolve();
      });
    });
    const accepts = new Set<EgressListener>();
    const acceptFrom = (
      listener: EgressListener,
      { peer, signal, progress }: Pick<HandlerContext<AcceptingPeer>, 'peer' | 'signal' | 'progress'>,
    ) => {
      if (!accepts.has(listener)) listener.lease(closed);
      accepts.add(listener);
      return acceptConnection(listener, peer, signal, {
        listening: () => progress('listening'),
        refused: (count) => progress('refused', count, undefined, 'connections'),
      });
    };
    new Peer({
      stream: socket,
      name: 'the supervisor',
      serves: SERVED,
      calls: EMPTY_MAP,
      sends: EMPTY_MAP,
      receives: EMPTY_MAP,
      handlers: {
        hello: ({ session }) => ({
          protocol: SIDECAR_PROTOCOL,
          session,
          build: randomBytes(8).toString('hex'),
          watch: 'inotify' as const,
        }),
        'egress/accept': (target, { peer, signal, progress }) => {
          const { credentialPort } = target;
          const listener = this.listeners.forTarget({
            ...target,
            ...(credentialPort === undefined
              ? {}
              : { credentialPort: this.#credentialPorts.get(credentialPort) ?? credentialPort }),
          });
          return acceptFrom(listener, { peer, signal, progress });
        },
        'tools/accept': (_params, context) => acceptFrom(this.listeners.tools, context),
      },
    });
  }
}

function dialled(to: string | { host: string; port: number }): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const socket = typeof to === 'string' ? connect(to) : connect(to);
  socket.once('connect', () => {
    socket.off('error', reject);
    resolve(socket);
  });
  socket.once('error', reject);
  return promise;
}
