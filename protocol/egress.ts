import { z } from 'zod';
import { SessionRefSchema, TimeSchema } from './entities.ts';
import { canonicalizeHost, formatHost, splitAuthority } from './host-name.ts';
import { eventType } from './event-type.ts';
import { readNewerAs } from './newer-values.ts';

/** Where programs in a sandbox reach the proxy: a listener on the sandbox's loopback interface. */
export const EGRESS_PROXY = { host: '127.0.0.1', port: 3128 } as const;

/**
 * The name of the supervisor's machine in every sandbox. The address belongs to the sandbox: the sidecar listens there on
 * each port that a rule names, and the supervisor connects to the same port of its own loopback interface.
 */
export const HOST_MACHINE = { name: 'host.holdfast.internal', address: '127.0.0.2' } as const;

/** `host` is canonical. Loopback in a sandbox is the sandbox itself. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host);
}

/**
 * Whether the canonical host is the supervisor's machine. A rule for it names one service by its port, and carries
 * whatever that speaks.
 */
export function isOwnMachine(host: string): boolean {
  return host === HOST_MACHINE.name || isLoopback(host);
}

/** The ports of a rule without a port. */
export const DEFAULT_PORTS: readonly number[] = [443, 80];

/** The hosts that a rule matches, in canonical form. */
export interface HostPattern {
  /** A name, or an address. */
  readonly host: string;
  /** `*.`: matches all subdomains of `host`, but not `host` itself. */
  readonly wildcard: boolean;
  /** Null: the default ports. */
  readonly port: number | null;
}

/** Parses `api.example.com`, `*.example.org:8443`, `127.0.0.1:8080`, `[::1]:80`, or says why it is not a pattern. */
export function parseHostPattern(text: string): HostPattern | { readonly refused: string } {
  const parts = splitAuthority(text);
  if (parts === null) return { refused: 'it is not HOST or HOST:PORT' };
  const wildcard = parts.host.startsWith('*.');
  const canonical = canonicalizeHost(wildcard ? parts.host.slice(2) : parts.host);
  if ('refused' in canonical) return canonical;
  if (wildcard && canonical.kind !== 'name') return { refused: 'an address has no wildcard' };
  if (canonical.host === HOST_MACHINE.name && !wildcard && parts.port === null)
    return { refused: `it is your own machine: name a port, such as ${HOST_MACHINE.name}:8080` };
  return { host: canonical.host, wildcard, port: parts.port };
}

export function formatHostPattern({ host, wildcard, port }: HostPattern): string {
  return `${wildcard ? '*.' : ''}${formatHost(host, port)}`;
}

/** The text of a pattern. Parses to its canonical form. */
export const HostPatternSchema = z
  .string()
  .min(1)
  .max(253 + 8)
  .transform((text, context) => {
    const pattern = parseHostPattern(text);
    if (!('refused' in pattern)) return formatHostPattern(pattern);
    context.addIssue({
      code: 'custom',
      message: `a host such as api.example.com, *.example.org:8443 or 127.0.0.1:8080; ${pattern.refused}`,
    });
    return z.NEVER;
  });

/**
 * A host that the sandboxes of a profile may reach. `methods` and `path` restrict the rule; this version does not support
 * them. With `quiet` the host stays denied, and its denials are not reported. In a tunnel a rule allows HTTP, and TLS
 * whose ClientHello names the host; `ech` also TLS that may encrypt the name, `tcp` anything.
 */
export const EgressRuleSchema = z.strictObject({
  host: HostPatternSchema,
  quiet: z.literal(true).optional(),
  tcp: z.literal(true).optional(),
  ech: z.literal('allow').optional(),
  methods: z
    .array(z.string().regex(/^[A-Z]{1,20}$/))
    .min(1)
    .optional(),
  path: z.string().startsWith('/').optional(),
});
export type EgressRule = z.infer<typeof EgressRuleSchema>;

/** The scope of a rule that a user adds: the next connection, the session, or every session of the profile. */
export const RULE_SCOPES = ['once', 'session', 'profile'] as const;
export const RuleScopeSchema = z.enum(RULE_SCOPES);
export type RuleScope = z.infer<typeof RuleScopeSchema>;

/** `file`: the rule comes from `holdfast.yaml`. A deploy replaces only those. */
export const RuleOriginSchema = z.enum(['file', ...RULE_SCOPES]);
export type RuleOrigin = z.infer<typeof RuleOriginSchema>;

export const PolicyRuleSchema = z.object({
  host: z.string(),
  effect: z.enum(['allow', 'deny']),
  from: RuleOriginSchema,
  /** Denials by this rule are not reported. */
  quiet: z.boolean(),
  /** It carries any protocol, unread. */
  tcp: z.boolean(),
  /** It carries TLS with Encrypted ClientHello. */
  ech: z.boolean(),
  /** When it was added; null for rules of the file. */
  addedAt: TimeSchema.nullable(),
});
export type PolicyRule = z.infer<typeof PolicyRuleSchema>;

export const PolicySchema = z.object({
  sessionId: z.string(),
  profile: z.string(),
  /** In order of precedence: once, session, profile, file. */
  rules: z.array(PolicyRuleSchema),
  /** False: no host is allowed, so no proxy listens in the sandbox. */
  open: z.boolean(),
});
export type Policy = z.infer<typeof PolicySchema>;

/** Why a connection was refused or failed. */
export const EGRESS_REASONS = [
  /** No rule matches the host. */
  'no_rule',
  /** A rule matches the host with another port. */
  'other_port',
  /** A rule with higher precedence denies the host. */
  'denied',
  /** The request has no valid host, or the proxy does not forward this kind of request. */
  'bad_request',
  /** The name resolves to a private network, this machine or a cloud metadata address, and no rule names that address. */
  'private_address',
  'not_resolved',
  'not_reached',
  /** Neither HTTP nor TLS, and the rule has no `tcp: true`. */
  'not_tls',
  /** TLS whose ClientHello names no server. */
  'no_sni',
  /** TLS whose ClientHello names another server than CONNECT did. */
  'sni_mismatch',
  /** TLS whose ClientHello may have an encrypted name, and the rule has no `ech: allow`. */
  'ech',
  /** The session has too many connections. */
  'too_many',
  /** The process that reads requests is not there. */
  'no_proxy',
  /** A placeholder was sent to a host that it is not for. */
  'placeholder',
  /** There is no secret for the credential, or its value cannot be sent. */
  'no_secret',
  /** A limit of the credential. */
  'limit',
  /** The answer repeated the credential, and was cut. */
  'echo',
  /** The answer was of a kind in which the credential could not be searched for. */
  'unsafe_answer',
  /** A process in the sandbox has the port of the credential. */
  'port_taken',
] as const;
export const EgressReasonSchema = readNewerAs(z.enum(EGRESS_REASONS), () => 'bad_request');
export type EgressReason = z.infer<typeof EgressReasonSchema>;

const bytes = z.number().int().nonnegative();

/**
 * One decision about a connection, or several equal ones: a program that is denied ten thousand times must not fill the
 * history. `denied` and `failed` have a reason and may have no rule. `allowed` is written before the connection is
 * opened, `ended` afterwards. `carried` has the bytes so far of a long answer, which the next one and `ended` do not have
 * again.
 */
export const EgressEventSchema = z.object({
  decision: z.enum(['allowed', 'denied', 'failed', 'carried', 'ended']),
  /** Canonical; empty if the request has none. `*` means many hosts with the same decision. */
  host: z.string(),
  port: z.number().int(),
  /** `CONNECT`, or the method of a plain HTTP request. */
  method: z.string(),
  rule: z.string().nullable(),
  from: RuleOriginSchema.nullable(),
  reason: EgressReasonSchema.nullable(),
  /** The address that was connected to. */
  address: z.string().nullable(),
  /** How many connections this event covers, and the times of the first and the last. */
  count: z.number().int().positive(),
  firstAt: TimeSchema,
  lastAt: TimeSchema,
  /** What the sandbox sent and received. */
  bytesOut: bytes,
  bytesIn: bytes,
  /** The host pattern that would allow the connection, for `policy allow`. */
  allow: z.string().nullable(),
  /** The canonical name in the ClientHello, if it is not `host`. */
  serverName: z.string().optional(),
  /** Name of the credential that the request was for; absent: it went through the proxy. */
  credential: z.string().optional(),
});
export type EgressEvent = z.infer<typeof EgressEventSchema>;

export const EGRESS_EVENTS = {
  egress: eventType(EgressEventSchema, {
    isInManifests: true,
    line: ({ decision, method, host, port, reason, count }) => {
      const why = reason === null ? '' : ` (${reason})`;
      const times = count === 1 ? '' : ` × ${count}`;
      return `${decision} ${method} ${host}:${port}${why}${times}`;
    },
    transcript: ({ decision, host, port }) =>
      decision === 'denied' ? `Denied access to ${host}:${port}` : null,
  }),
  'policy.changed': eventType(
    z.object({
      action: z.enum(['allow', 'deny']),
      host: z.string(),
      scope: RuleScopeSchema,
      /** As in `EgressRuleSchema`. */
      tcp: z.literal(true).optional(),
      ech: z.literal('allow').optional(),
    }),
  ),
} as const;

const change = z.object({
  session: SessionRefSchema,
  host: HostPatternSchema,
  /** Default `session`. */
  scope: RuleScopeSchema.optional(),
});

export const POLICY_METHODS = {
  'policy/show': {
    params: z.object({ session: SessionRefSchema }),
    result: z.object({ policy: PolicySchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** Also removes a denial of the same host in that scope. */
  'policy/allow': {
    params: change.extend({
      /** As in `EgressRuleSchema`. */
      tcp: z.literal(true).optional(),
      ech: z.literal('allow').optional(),
    }),
    result: z.object({ policy: PolicySchema }),
    repeat: 'never',
    whenDamaged: 'refused',
  },
  /** Also removes an allowance in that scope, and closes connections that are no longer allowed. Not for `once`. */
  'policy/deny': {
    params: change,
    result: z.object({ policy: PolicySchema }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
