import type { Socket } from 'node:net';
import {
  type EgressReason,
  HOST_MACHINE,
  isLoopback,
  type RuleOrigin,
  formatHostPattern,
} from '../../protocol/egress.ts';
import type { Answer } from '../../egress-proxy/wire.ts';
import type { Rule } from './decide.ts';
import { resolveAllowedAddresses, dialFirst, DialError } from './dial.ts';
import type { EgressEventAggregator } from './event-aggregator.ts';
import type { Policies } from './policies.ts';
import type { ReadBuffer } from './read-buffer.ts';
import type { ResolveName } from './resolver.ts';
import type { Tunnel } from './tunnel.ts';

/** A person means their own machine, but a program in the sandbox addresses the sandbox. */
const LOOPBACK_HINT = `; in a sandbox this address is the sandbox itself, and your machine is ${HOST_MACHINE.name}`;

const WHY: Record<'no_rule' | 'other_port' | 'denied', string> = {
  no_rule: 'no rule names it',
  other_port: 'the rule for this host is for another port',
  denied: 'a rule denies it',
};

/** The destination of a connection, in canonical form. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

export interface AllowedConnection extends Target {
  readonly method: string;
  readonly rule: Rule;
  readonly address: string;
  /** What its rules carry besides HTTP and TLS that names the host. */
  readonly tcp: boolean;
  readonly ech: boolean;
}

export type Refused = Extract<Answer, { answer: 'refused' }>;

/** What dialling needs of a connection of the sandbox, and says of it. */
export interface DialledConnection {
  readonly tunnel: Tunnel;
  readonly ending: AbortController;
  /** Set once it is allowed. */
  going: AllowedConnection | null;
}

export interface GateDialerOptions {
  readonly sessionId: string;
  readonly policies: Policies;
  readonly resolve: ResolveName;
  readonly aggregator: EgressEventAggregator;
}

/** Decides whether a connection may go where it wants to, connects it, and records both. */
export class GateDialer {
  readonly #options: GateDialerOptions;

  constructor(options: GateDialerOptions) {
    this.#options = options;
  }

  /** Decides and connects if allowed. Null if the client has gone. */
  async dial(
    connection: DialledConnection,
    target: Target,
    method: string,
    readBuffer: ReadBuffer,
  ): Promise<Socket | Refused | null> {
    const { policies, sessionId, resolve } = this.#options;
    const deny = (refusal: Refused, rule: Rule | null, address: string | null = null): Refused | null => {
      const failed = refusal.reason === 'not_resolved' || refusal.reason === 'not_reached';
      this.report(failed ? 'failed' : 'denied', refusal, method, refusal.reason, rule, address);
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
      this.report('allowed', target, method, null, rule, address);
      const dialled = await dialFirst(addresses, port, connection.ending.signal, readBuffer.onread);
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

  report(
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
}

/** `allow`: the host to allow, for a person who wants that. */
export function refused(target: Target, reason: EgressReason, why: string, allow: string | null): Refused {
  const { host, port } = target;
  return { answer: 'refused', reason, why, host, port, allow };
}
