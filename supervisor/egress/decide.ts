import {
  type EgressReason,
  HOST_MACHINE,
  type HostPattern,
  isLoopback,
  type RuleOrigin,
  formatHostPattern,
  DEFAULT_PORTS,
} from '../../protocol/egress.ts';

/** A rule in force. What narrows it further – methods, paths – becomes a field here. */
export interface Rule {
  readonly pattern: HostPattern;
  readonly effect: 'allow' | 'deny';
  readonly from: RuleOrigin;
  /** Of its row, for a rule that is used up; null for those of the file. */
  readonly id: number | null;
  /** A denial that nobody is told of. */
  readonly quiet?: boolean;
}

export type Verdict =
  | { readonly allowed: true; readonly rule: Rule }
  | {
      readonly allowed: false;
      readonly reason: Extract<EgressReason, 'no_rule' | 'other_port' | 'denied'>;
      readonly rule: Rule | null;
      /** The pattern that would allow it. */
      readonly allow: string;
    };

/** The nearest decides: what a person said for once or for the session goes before what the profile says. */
const NEAREST: readonly RuleOrigin[] = ['once', 'session', 'profile', 'file'];

/**
 * Whether a connection to `host` (canonical) and `port` may be made. Without a rule it may not; of equally near rules a denial
 * wins. A rule for once is left alone where another one allows it too.
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
    if (origin !== 'once') return { allowed: true, rule };
    once = rule;
  }
  if (once !== null) return { allowed: true, rule: once };
  const otherPort = named.some(({ effect }) => effect === 'allow');
  return { allowed: false, reason: otherPort ? 'other_port' : 'no_rule', rule: null, allow };
}

/** What the rules say of an address that a name stands for. A rule for once is for what was asked for, and so for names only. */
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

/** What a rule would have to say, and no more. A loopback address is the sandbox's own everywhere but in the proxy: it gets its name. */
function narrowestPattern(host: string, port: number): string {
  if (isLoopback(host) || host === HOST_MACHINE.name)
    return formatHostPattern({ host: HOST_MACHINE.name, wildcard: false, port });
  return formatHostPattern({ host, wildcard: false, port: DEFAULT_PORTS.includes(port) ? null : port });
}

function namesHost({ host, wildcard }: HostPattern, wanted: string): boolean {
  // A person's own machine is named in full, never as one of many.
  if (wanted === HOST_MACHINE.name) return !wildcard && host === wanted;
  return wildcard ? wanted.endsWith(`.${host}`) : wanted === host;
}

function matchesPort({ port }: HostPattern, wanted: number): boolean {
  return port === null ? DEFAULT_PORTS.includes(wanted) : port === wanted;
}
