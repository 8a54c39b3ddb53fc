import { z } from 'zod';
import { SessionRefSchema, TimeSchema } from './entities.ts';
import { canonicalizeHost, formatHost, splitAuthority } from './host-name.ts';

/** Where the proxy is for the programs in a sandbox: a listener on its own loopback. */
export const EGRESS_PROXY = { host: '127.0.0.1', port: 3128 } as const;

/**
 * The supervisor's machine under a name that every sandbox knows. The address is the sandbox's own: the sidecar listens there on each
 * port that a rule names, and the supervisor dials the same port of its own loopback.
 */
export const HOST_MACHINE = { name: 'host.holdfast.internal', address: '127.0.0.2' } as const;

/** `host` is canonical. In a sandbox it is the sandbox itself. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host);
}

/** Ports of a rule that names none. */
export const DEFAULT_PORTS: readonly number[] = [443, 80];

/** What a rule is about, in canonical form. */
export interface HostPattern {
  /** A name, or an address. */
  readonly host: string;
  /** `*.`: the host is the end of the names that are meant, which have at least one label more. */
  readonly wildcard: boolean;
  /** Null: the usual ports. */
  readonly port: number | null;
}

/** `api.example.com`, `*.example.org:8443`, `127.0.0.1:8080`, `[::1]:80` → its pattern, or why it is none. */
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

/** Text of a pattern; parses to its canonical form. */
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
 * One host that a profile's sandboxes may reach. `methods` and `path` narrow it; not every version enforces them. With `quiet` the host
 * stays denied, and denials of it are not reported.
 */
export const EgressRuleSchema = z.strictObject({
  host: HostPatternSchema,
  quiet: z.literal(true).optional(),
  methods: z
    .array(z.string().regex(/^[A-Z]{1,20}$/))
    .min(1)
    .optional(),
  path: z.string().startsWith('/').optional(),
});
export type EgressRule = z.infer<typeof EgressRuleSchema>;

/** How long a rule that a person adds holds: for the next connection, for the session, or for every session of the profile. */
export const RULE_SCOPES = ['once', 'session', 'profile'] as const;
export const RuleScopeSchema = z.enum(RULE_SCOPES);
export type RuleScope = z.infer<typeof RuleScopeSchema>;

/** `file`: it stands in `holdfast.yaml`; a redeploy changes those only. */
export const RuleOriginSchema = z.enum(['file', ...RULE_SCOPES]);
export type RuleOrigin = z.infer<typeof RuleOriginSchema>;

export const PolicyRuleSchema = z.object({
  host: z.string(),
  effect: z.enum(['allow', 'deny']),
  from: RuleOriginSchema,
  /** A denial that is not reported. */
  quiet: z.boolean(),
  /** When it was added; null for those of the file. */
  addedAt: TimeSchema.nullable(),
});
export type PolicyRule = z.infer<typeof PolicyRuleSchema>;

export const PolicySchema = z.object({
  sessionId: z.string(),
  profile: z.string(),
  /** The nearest first, as they are asked: once, session, profile, file. */
  rules: z.array(PolicyRuleSchema),
  /** False: nothing is allowed, so nothing listens in the sandbox. */
  open: z.boolean(),
});
export type Policy = z.infer<typeof PolicySchema>;

/** Why a connection was not made. */
export const EGRESS_REASONS = [
  /** No rule names the host. */
  'no_rule',
  /** A rule names the host, with another port. */
  'other_port',
  /** A rule that denies it is nearer than one that allows it. */
  'denied',
  /** What was asked for is not a host that can be decided on, or not a request that is passed on. */
  'bad_request',
  /** The name stands for an address of a private network, this machine, or a cloud's metadata, and no rule names that address. */
  'private_address',
  'not_resolved',
  'not_reached',
  /** The session has as many connections as it may have. */
  'too_many',
] as const;
export const EgressReasonSchema = z.enum(EGRESS_REASONS);
export type EgressReason = z.infer<typeof EgressReasonSchema>;

const bytes = z.number().int().nonnegative();

/**
 * One event for what happened, or for several times the same: a program that is denied ten thousand times fills no history.
 * `denied` and `failed` have a reason and no rule has to be; `allowed` is written before anything is dialled, `ended` afterwards.
 */
export const EgressEventSchema = z.object({
  decision: z.enum(['allowed', 'denied', 'failed', 'ended']),
  /** Canonical; empty where what was asked for has none. `*` stands for many hosts of one kind of decision. */
  host: z.string(),
  port: z.number().int(),
  /** `CONNECT` or the method of a plain request. */
  method: z.string(),
  rule: z.string().nullable(),
  from: RuleOriginSchema.nullable(),
  reason: EgressReasonSchema.nullable(),
  /** What the name stood for when it was dialled. */
  address: z.string().nullable(),
  /** How many connections it tells of, and from when to when. */
  count: z.number().int().positive(),
  firstAt: TimeSchema,
  lastAt: TimeSchema,
  /** What the sandbox sent and got. */
  bytesOut: bytes,
  bytesIn: bytes,
  /** The rule that would allow it, as `policy allow` takes it. */
  allow: z.string().nullable(),
});
export type EgressEvent = z.infer<typeof EgressEventSchema>;

export const EGRESS_EVENTS = {
  egress: EgressEventSchema,
  'policy.changed': z.object({
    action: z.enum(['allow', 'deny']),
    host: z.string(),
    scope: RuleScopeSchema,
  }),
} as const;

const change = z.object({
  session: SessionRefSchema,
  host: HostPatternSchema,
  /** `session` when left out. */
  scope: RuleScopeSchema.optional(),
});

export const POLICY_METHODS = {
  'policy/show': {
    params: z.object({ session: SessionRefSchema }),
    result: z.object({ policy: PolicySchema }),
  },
  /** Takes back a denial of the same host in that scope. */
  'policy/allow': { params: change, result: z.object({ policy: PolicySchema }) },
  /** Takes back what was allowed in that scope, and ends connections that are not allowed any more. Not for `once`. */
  'policy/deny': { params: change, result: z.object({ policy: PolicySchema }) },
} as const;
