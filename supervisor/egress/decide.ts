import {
  type EgressReason,
  HOST_MACHINE,
  isOwnMachine,
  type HostPattern,
  isLoopback,
  type RuleOrigin,
  formatHostPattern,
  DEFAULT_PORTS,
} from '../../protocol/egress.ts';

/** A rule in force. Further restrictions (methods, paths) would become fields here. */
export interface Rule {
  readonly pattern: HostPattern;
  readonly effect: 'allow' | 'deny';
  readonly from: RuleOrigin;
  /** The row's id, for a one-time rule; null for rules of the file. */
  readonly id: number | null;
  /** A denial that is not reported. */
  readonly quiet?: boolean;
  /** Carries any protocol, unread. */
  readonly tcp?: boolean;
  /** Carries TLS that may have an encrypted name. */
  readonly ech?: boolean;
  /** Its name may stand for an address of a private network: the person who runs the supervisor named it. */
  readonly mayBePrivate?: boolean;
}

export type Verdict =
  | {
      readonly allowed: true;
      readonly rule: Rule;
      /** Whether any protocol is carried, and TLS with an encrypted name, by this or an equally near rule. */
      readonly tcp: boolean;
      readonly ech: boolean;
    }
  | {
      readonly allowed: false;
      readonly reason: Extract<EgressReason, 'no_rule' | 'other_port' | 'denied'>;
      readonly rule: Rule | null;
      /** The pattern that would allow the connection. */
      readonly allow: string;
    };

/** The most specific origin decides: a rule for one connection or for the session precedes those of the profile. */
const NEAREST: readonly RuleOrigin[] = ['once', 'session', 'profile', 'file'];

/**
 * Decides whether a connection to `host` (canonical) and `port` is allowed. Without a rule it is not; of rules with
 * the same origin a denial wins. A one-time rule is kept if another rule allows the connection too.
 */
export function decide(rules: readonly Rule[], host: string, port: number): Verdict {
  const allow = narrowestPattern(host, port);
  const named = rules.filter(({ pattern }) => namesHost(pattern, host));
  const matching = named.filter(({ pattern }) => matchesPort(pattern, port));
  let once: Rule | null = null;
  for (const origin of NEAREST) {
    const near = matching.filter(({ from }) => from === origin);
    const denial = near.find(({ effect }) => effect === 'deny');
    if (denial !== undefined) {
      if (once !== null) break;
      return { allowed: false, reason: 'denied', rule: denial, allow };
    }
    const [rule] = near;
    if (rule === undefined) continue;
    if (origin !== 'once') return allowedBy(rule, near);
    once = rule;
  }
  // Only this one is used up: another one for once lends it nothing.
  if (once !== null) return allowedBy(once, [once]);
  const otherPort = named.some(({ effect }) => effect === 'allow');
  return { allowed: false, reason: otherPort ? 'other_port' : 'no_rule', rule: null, allow };
}

function allowedBy(rule: Rule, near: readonly Rule[]): Verdict {
  const { host, wildcard } = rule.pattern;
  const tcp = (isOwnMachine(host) && !wildcard) || near.some((one) => one.tcp === true);
  return { allowed: true, rule, tcp, ech: near.some((one) => one.ech === true) };
}

/** The verdict on an address that a name resolves to. One-time rules apply to the requested name only. */
export function addressVerdict(
  rules: readonly Rule[],
  address: string,
  port: number,
): 'named' | 'denied' | 'unnamed' {
  const verdict = decide(
    rules.filter(({ from }) => from !== 'once'),
    address,
    port,
  );
  if (verdict.allowed) return 'named';
  return verdict.reason === 'denied' ? 'denied' : 'unnamed';
}

/**
 * The narrowest pattern that would allow the connection. A loopback address is the sandbox's own everywhere but in
 * the proxy, so it becomes the name of the host machine.
 */
function narrowestPattern(host: string, port: number): string {
  if (isLoopback(host) || host === HOST_MACHINE.name)
    return formatHostPattern({ host: HOST_MACHINE.name, wildcard: false, port });
  return formatHostPattern({ host, wildcard: false, port: DEFAULT_PORTS.includes(port) ? null : port });
}

function namesHost({ host, wildcard }: HostPattern, wanted: string): boolean {
  // The host machine is named in full, never by a wildcard.
  if (wanted === HOST_MACHINE.name) return !wildcard && host === wanted;
  return wildcard ? wanted.endsWith(`.${host}`) : wanted === host;
}

function matchesPort({ port }: HostPattern, wanted: number): boolean {
  return port === null ? DEFAULT_PORTS.includes(wanted) : port === wanted;
}
