import { setTimeout as sleep } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import type { Log } from '../base/log.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Sessions } from '../store/sessions.ts';
import { NODE_ENVIRONMENT } from './environment.ts';
import { EgressEventAggregator } from './event-aggregator.ts';
import type { Policies } from './policies.ts';
import { EgressPool } from './pool.ts';
import { SessionProxy } from './proxy.ts';
import type { ResolveName } from './resolver.ts';

/** How long a turn waits for its way out before it begins without one. */
const READY_MS = 3000;

export interface EgressOptions {
  readonly policies: Policies;
  readonly sessions: Sessions;
  readonly events: EventLog;
  /** A new connection to the sidecar of a session. */
  readonly dial: (sessionId: string) => Promise<Duplex>;
  readonly resolve: ResolveName;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

interface WayOut {
  readonly pool: EgressPool;
  /** By port of this machine. */
  readonly forwards: Map<number, EgressPool>;
  readonly proxy: SessionProxy;
  readonly ledger: EgressEventAggregator;
}

/** The ways out of all sandboxes: one for each that lives and whose rules allow anything at all. */
export class Egress {
  readonly #options: EgressOptions;
  readonly #open = new Map<string, WayOut>();
  /** Sessions whose sandbox is up, with a way out or without. */
  readonly #live = new Set<string>();
  #closed = false;

  constructor(options: EgressOptions) {
    this.#options = options;
  }

  /** What is so now: called whenever somebody has looked, as often as they like. */
  setLive(sessionId: string, live: boolean): void {
    if (live) this.#live.add(sessionId);
    else this.#live.delete(sessionId);
    this.#settle(sessionId);
  }

  /** The sandbox is up: resolves when its way out is there, where it has one. Never rejects. */
  async waitUntilReady(sessionId: string): Promise<void> {
    this.setLive(sessionId, true);
    const way = this.#open.get(sessionId);
    if (way === undefined) return;
    way.ledger.beginTurn();
    const late = new AbortController();
    const waited = sleep(READY_MS, 'late', { signal: late.signal }).catch(() => 'in time');
    const listening = [way.pool, ...way.forwards.values()].map((pool) => pool.listening);
    if ((await Promise.race([Promise.all(listening), waited])) === 'late')
      this.#options.log.warn('a sandbox begins without its way out', { session: sessionId });
    late.abort();
  }

  /** What a process that begins now needs beside its container's environment, which was made when nothing may have been allowed. */
  environment(sessionId: string): Readonly<Record<string, string>> {
    return this.#options.policies.allowsAnything(sessionId) ? NODE_ENVIRONMENT : {};
  }

  /** Rules have changed, of one session or of many. */
  applyRules(): void {
    for (const sessionId of this.#live) {
      this.#open.get(sessionId)?.proxy.applyRules();
      this.#settle(sessionId);
    }
  }

  close(): void {
    this.#closed = true;
    this.#live.clear();
    for (const sessionId of [...this.#open.keys()]) this.#settle(sessionId);
  }

  #settle(sessionId: string): void {
    const wanted =
      !this.#closed && this.#live.has(sessionId) && this.#options.policies.allowsAnything(sessionId);
    const way = this.#open.get(sessionId);
    if (wanted) {
      const open = way ?? this.#make(sessionId);
      this.#open.set(sessionId, open);
      this.#forward(sessionId, open);
    } else if (way !== undefined) {
      this.#open.delete(sessionId);
      for (const pool of [way.pool, ...way.forwards.values()]) pool.close();
      way.proxy.close();
      // After the ends of what it carried, which come with the next turn of the loop.
      setImmediate(() => way.ledger.close());
    }
  }

  /** One pool for each port of this machine that the rules allow, and no other. */
  #forward(sessionId: string, { forwards, proxy }: WayOut): void {
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
          serve: (tunnel) => proxy.forward(tunnel, port),
          onRefused: (count) => proxy.recordRefused(count),
          log: this.#options.log,
        }),
      );
    }
  }

  #make(sessionId: string): WayOut {
    const { policies, resolve, log, now, dial, events, sessions } = this.#options;
    const ledger = new EgressEventAggregator({
      now,
      record: (entries) => {
        const row = sessions.get(sessionId);
        if (row === null || row.status === 'deleted') return;
        try {
          events.append(sessionId, entries);
        } catch (error) {
          // The connection that it is about is not to blame for a full disk.
          log.warn('a decision is not in the history', { session: sessionId, error });
        }
      },
    });
    const proxy = new SessionProxy({ sessionId, policies, resolve, aggregator: ledger, log });
    const pool = new EgressPool({
      sessionId,
      dial: () => dial(sessionId),
      serve: (tunnel) => proxy.serve(tunnel),
      onRefused: (count) => proxy.recordRefused(count),
      log,
    });
    return { pool, forwards: new Map(), proxy, ledger };
  }
}
