import { setTimeout as sleep } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import type { Credential } from '../../protocol/credentials.ts';
import type { EventEntry } from '../../protocol/events.ts';
import { Emitter } from '../base/emitter.ts';
import type { Log } from '../base/log.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Sessions } from '../store/sessions.ts';
import { EchoGuards } from './credentials/echo-guard.ts';
import { CredentialEndpoint } from './credentials/endpoint.ts';
import type { SessionCredentials } from './credentials/session-credentials.ts';
import { NODE_ENVIRONMENT } from './environment.ts';
import { EgressEventAggregator } from './event-aggregator.ts';
import type { Policies } from './policies.ts';
import { EgressPool } from './pool.ts';
import type { ProxyProcess } from './proxy-process.ts';
import type { ResolveName } from './resolver.ts';
import { SessionGate } from './session-gate.ts';

/**
 * How long a turn waits for egress before it starts without: where each connection to the sidecar is a process of the
 * engine's, and the machine is busy, the first one takes seconds. A connection waits as long for the proxy.
 */
const READY_MS = 20_000;

export interface EgressOptions {
  readonly policies: Policies;
  readonly sessions: Sessions;
  readonly events: EventLog;
  /** Opens a new connection to a session's sidecar. */
  readonly dial: (sessionId: string) => Promise<Duplex>;
  readonly resolve: ResolveName;
  /** The process that reads what sandboxes send. */
  readonly proxy: Pick<
    ProxyProcess,
    'acquireLease' | 'openClient' | 'openServer' | 'openCredential' | 'openExchange'
  >;
  readonly credentials: Pick<SessionCredentials, 'of' | 'environment' | 'secret'>;
  /** Certificates of authorities that servers of credentials may have, in PEM; default: those that Node trusts. */
  readonly authorities?: readonly string[] | undefined;
  /** How often long answers of credentials report their bytes, ms. */
  readonly carriedMs?: number | undefined;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

interface EgressChannel {
  /** Null while the rules allow nothing. */
  pool: EgressPool | null;
  /** Pools by port of this machine. */
  readonly forwards: Map<number, EgressPool>;
  /** By the credential as the profile has it. */
  readonly endpoints: Map<string, { readonly endpoint: CredentialEndpoint; readonly pool: EgressPool }>;
  readonly gate: SessionGate;
  /** The proxy process is no longer needed for it. */
  readonly releaseProxy: () => void;
  readonly aggregator: EgressEventAggregator;
}

/** Egress of all sandboxes: one channel for each running sandbox whose rules or credentials allow anything. */
export class Egress {
  /** Emitted when it is known whether a session's sandbox runs, perhaps again. */
  readonly liveness = new Emitter<{ readonly sessionId: string; readonly isLive: boolean }>();
  /** Decisions about what has no history: a setup. */
  readonly decidedElsewhere = new Emitter<{ readonly id: string; readonly entries: readonly EventEntry[] }>();
  readonly #options: EgressOptions;
  readonly #guards = new EchoGuards();
  readonly #open = new Map<string, EgressChannel>();
  /** Sessions whose sandbox is running, with or without egress. */
  readonly #live = new Set<string>();
  #closed = false;

  constructor(options: EgressOptions) {
    this.#options = options;
  }

  /** Sets whether the session's sandbox is running; idempotent. */
  setLive(sessionId: string, live: boolean): void {
    if (live) this.#live.add(sessionId);
    else this.#live.delete(sessionId);
    this.#settle(sessionId);
    this.liveness.emit({ sessionId, isLive: live });
  }

  /** The sandbox has started: resolves when its egress is available, if it has any. Rejects only when `signal` is aborted. */
  async waitUntilReady(sessionId: string, signal?: AbortSignal): Promise<void> {
    this.setLive(sessionId, true);
    const channel = this.#open.get(sessionId);
    if (channel === undefined) return;
    channel.aggregator.beginTurn();
    const late = new AbortController();
    const ending = signal === undefined ? late.signal : AbortSignal.any([late.signal, signal]);
    const waited = sleep(READY_MS, 'late', { signal: ending }).catch(() => 'over');
    const listening = poolsOf(channel).map((pool) => pool.listening);
    if ((await Promise.race([Promise.all(listening), waited])) === 'late')
      this.#options.log.warn('a sandbox starts without egress: its proxy is not ready', {
        session: sessionId,
      });
    late.abort();
    signal?.throwIfAborted();
  }

  /**
   * Variables for a process that starts now, in addition to its container's environment: rules may have changed since
   * the container was created.
   */
  environment(sessionId: string): Readonly<Record<string, string>> {
    const { policies, credentials } = this.#options;
    return {
      ...(policies.allowsAnything(sessionId) ? NODE_ENVIRONMENT : {}),
      ...credentials.environment(sessionId),
    };
  }

  /** Applies changed rules to all running sandboxes. */
  applyRules(): void {
    for (const sessionId of this.#live) {
      const channel = this.#open.get(sessionId);
      channel?.gate.applyRules();
      for (const { endpoint } of channel?.endpoints.values() ?? []) endpoint.applyRules();
      this.#settle(sessionId);
    }
  }

  close(): void {
    this.#closed = true;
    this.#live.clear();
    for (const sessionId of [...this.#open.keys()]) this.#settle(sessionId);
  }

  #settle(sessionId: string): void {
    const isUp = !this.#closed && this.#live.has(sessionId);
    const open = isUp && this.#options.policies.allowsAnything(sessionId);
    const credentials = isUp ? this.#options.credentials.of(sessionId) : [];
    const current = this.#open.get(sessionId);
    if (open || credentials.length > 0) {
      const channel = current ?? this.#make(sessionId);
      this.#open.set(sessionId, channel);
      if (!open) {
        channel.pool?.close();
        channel.pool = null;
      }
      if (open) channel.pool ??= this.#proxyPool(sessionId, channel);
      this.#forward(sessionId, channel);
      this.#serveCredentials(sessionId, channel, credentials);
    } else if (current !== undefined) {
      this.#open.delete(sessionId);
      for (const pool of poolsOf(current)) pool.close();
      for (const { endpoint } of current.endpoints.values()) endpoint.close();
      current.gate.close();
      current.releaseProxy();
      // After the end events of its connections, which arrive with the next turn of the event loop.
      setImmediate(() => current.aggregator.close());
    }
  }

  /** Keeps one endpoint for each credential. One that changed is another one. */
  #serveCredentials(
    sessionId: string,
    { endpoints, aggregator }: EgressChannel,
    credentials: readonly Credential[],
  ): void {
    const {
      policies,
      credentials: known,
      resolve,
      authorities,
      carriedMs,
      log,
      now,
      dial,
      proxy,
    } = this.#options;
    const wanted = new Map(credentials.map((credential) => [JSON.stringify(credential), credential]));
    for (const [key, { endpoint, pool }] of endpoints) {
      if (wanted.has(key)) continue;
      pool.close();
      endpoint.close();
      endpoints.delete(key);
    }
    for (const [key, credential] of wanted) {
      if (endpoints.has(key)) continue;
      const endpoint = new CredentialEndpoint({
        ...{ sessionId, credential, proxy, resolve, authorities, carriedMs, log, now },
        rules: () => policies.rulesOf(sessionId),
        secret: () => known.secret(sessionId, credential),
        guards: this.#guards,
        aggregator,
      });
      const pool = new EgressPool({
        sessionId,
        credentialPort: credential.listenPort,
        dial: () => dial(sessionId),
        serve: (tunnel) => endpoint.serve(tunnel),
        onRefused: (count) => endpoint.reportRefused(count),
        onPortTaken: () => endpoint.reportPortTaken(),
        log,
      });
      endpoints.set(key, { endpoint, pool });
    }
  }

  /** Keeps one pool for each port of this machine that the rules allow. */
  #forward(sessionId: string, { forwards, gate }: EgressChannel): void {
    const ports = this.#options.policies.allowedHostPorts(sessionId);
    for (const [port, pool] of forwards) {
      if (ports.has(port)) continue;
      pool.close();
      forwards.delete(port);
    }
    for (const port of ports) {
      if (forwards.has(port)) continue;
      forwards.set(
        port,
        new EgressPool({
          sessionId,
          hostPort: port,
          dial: () => this.#options.dial(sessionId),
          serve: (tunnel) => gate.forward(tunnel, port),
          onRefused: (count) => gate.recordRefused(count),
          log: this.#options.log,
        }),
      );
    }
  }

  #make(sessionId: string): EgressChannel {
    const { policies, resolve, proxy, log, now, events, sessions } = this.#options;
    const aggregator = new EgressEventAggregator({
      now,
      record: (entries) => {
        const row = sessions.get(sessionId);
        if (row === null || row.status === 'deleted') {
          this.decidedElsewhere.emit({ id: sessionId, entries });
          return;
        }
        try {
          events.append(sessionId, entries);
        } catch (error) {
          // A full disk must not end the connection.
          log.warn('cannot record an egress decision', { session: sessionId, error });
        }
      },
    });
    const gate = new SessionGate({ sessionId, policies, resolve, proxy, aggregator, log });
    return {
      pool: null,
      forwards: new Map(),
      endpoints: new Map(),
      gate,
      releaseProxy: proxy.acquireLease(),
      aggregator,
    };
  }

  #proxyPool(sessionId: string, { gate }: EgressChannel): EgressPool {
    return new EgressPool({
      sessionId,
      dial: () => this.#options.dial(sessionId),
      serve: (tunnel) => gate.serve(tunnel),
      onRefused: (count) => gate.recordRefused(count),
      log: this.#options.log,
    });
  }
}

function poolsOf({ pool, forwards, endpoints }: EgressChannel): EgressPool[] {
  const served = [...endpoints.values()].map((one) => one.pool);
  return [...(pool === null ? [] : [pool]), ...forwards.values(), ...served];
}
