import { z } from 'zod';
import {
  CREDENTIAL_PRESET_NAMES,
  CREDENTIAL_PRESETS,
  type CredentialPresetName,
  type CredentialUse,
  PLACEHOLDER_MARK,
} from './credential-presets.ts';
import { canonicalizeHost, formatHost, splitAuthority } from './host-name.ts';
import { SecretNameSchema } from './secret-name.ts';
import { SizeSchema } from './units.ts';

/** Ports of the sandbox's loopback on which credentials are served. Presets have fixed ones at the beginning. */
export const CREDENTIAL_PORTS = { first: 3130, firstNamed: 3160, last: 3193 } as const;
export const MAX_CREDENTIALS = 32;
const HTTPS_PORT = 443;

/** What one session may do with one credential. */
export interface CredentialLimits {
  /** Requests a minute. */
  readonly requests: number;
  /** Bytes an hour, in both directions together. */
  readonly bytes: number;
  /** Requests at a time. */
  readonly concurrent: number;
}
export const CREDENTIAL_LIMITS: CredentialLimits = { requests: 600, bytes: 20 * 2 ** 30, concurrent: 64 };

const PresetNameSchema = z.enum(CREDENTIAL_PRESET_NAMES, {
  error: `one of ${CREDENTIAL_PRESET_NAMES.join(', ')}, or { host, secret, as }`,
});

/** A host with a certificate of its own: a name or an address, and a port if it is not 443. */
const CredentialHostSchema = z
  .string()
  .max(253 + 8)
  .refine((text) => parseHost(text) !== null, 'a host such as api.example.com or api.example.com:8443');

const HeaderNameSchema = z
  .string()
  .regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/, 'the name of a header')
  .refine((name) => !RESERVED_HEADERS.has(name.toLowerCase()), 'a header that does not carry the request');
/** Headers that say how a message is to be read. */
const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  ...['host', 'connection', 'content-length', 'transfer-encoding', 'te', 'trailer', 'upgrade', 'expect'],
  ...['content-encoding', 'accept-encoding', 'range', 'keep-alive'],
]);

const UseSchema = z.union([
  z.enum(['bearer', 'basic', 'query']),
  z.strictObject({ header: HeaderNameSchema }),
  z.strictObject({ basic: z.string().regex(/^[\x21-\x39\x3b-\x7e]{1,128}$/, 'a user name without a colon') }),
  z.strictObject({ query: z.string().regex(/^[A-Za-z0-9._~-]{1,64}$/, 'the name of a parameter') }),
]);

const VariableSchema = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'the name of a variable');

/** `bytes`: how sizes are written. */
function entrySchema(bytes: z.ZodType<number>) {
  const limits = z
    .strictObject({
      requests: z.number().int().min(1).max(1_000_000).optional(),
      bytes: bytes.optional(),
      concurrent: z.number().int().min(1).max(1024).optional(),
    })
    .optional();
  return z.union([
    PresetNameSchema,
    z.strictObject({ preset: PresetNameSchema, secret: SecretNameSchema.optional(), limits }),
    z.strictObject({
      host: CredentialHostSchema,
      secret: SecretNameSchema,
      as: UseSchema,
      /** Variable of the sandbox that gets the base URL. */
      url: VariableSchema.optional(),
      /** Variable of the sandbox that gets the placeholder. */
      key: VariableSchema.optional(),
      limits,
    }),
  ]);
}

/** An entry of `credentials` in `holdfast.yaml`. */
export const CredentialSchema = entrySchema(SizeSchema);
export type CredentialEntry = z.infer<typeof CredentialSchema>;
/** The same as it is stored, with sizes in bytes. */
export const StoredCredentialSchema = entrySchema(z.number().nonnegative());

/** A credential of a profile, complete. */
export interface Credential {
  /** The preset's name, or `host` and the secret's name: unique in its profile. */
  readonly name: string;
  /** Canonical. */
  readonly host: string;
  readonly port: number;
  readonly secret: string;
  readonly as: CredentialUse;
  /** The port of the sandbox's loopback. */
  readonly listenPort: number;
  readonly placeholder: string;
  readonly limits: CredentialLimits;
  /** Variables of the sandbox: base URLs and placeholders. */
  readonly environment: Readonly<Record<string, string>>;
  /** Git asks for `https://HOST/` through it. */
  readonly git: boolean;
}

/**
 * The credentials of a profile. Each has the same port wherever it stands in the list; if two names would share one,
 * the later in the alphabet takes the next.
 */
export function credentialsOf({
  credentials = [],
}: {
  readonly credentials?: readonly CredentialEntry[] | undefined;
}): readonly Credential[] {
  const named = new Map(credentials.map((entry) => [nameOf(entry), entry]));
  const taken = new Set<number>();
  return [...named]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([name, entry]) => {
      if (typeof entry === 'string') return [ofPreset(entry, {})];
      if ('preset' in entry) return [ofPreset(entry.preset, entry)];
      const target = parseHost(entry.host);
      if (target === null) return [];
      const listenPort = freePort(name, taken);
      taken.add(listenPort);
      const placeholder = `${PLACEHOLDER_MARK}-${listenPort}`;
      const environment = {
        ...(entry.url === undefined ? {} : { [entry.url]: baseUrl(listenPort) }),
        ...(entry.key === undefined ? {} : { [entry.key]: placeholder }),
      };
      const { secret, limits } = entry;
      return [
        {
          ...{ name, ...target, secret, as: useOf(entry.as), listenPort, placeholder, environment },
          limits: limitsOf(limits),
          git: entry.as === 'basic' || (typeof entry.as === 'object' && 'basic' in entry.as),
        },
      ];
    });
}

/** Names that stand more than once: one of them would be lost. */
export function repeatedCredentials(entries: readonly CredentialEntry[]): string[] {
  const names = entries.map(nameOf);
  return [...new Set(names.filter((name, at) => names.indexOf(name) !== at))];
}

/** Variables that a sandbox of these credentials gets. `gitSettings`: how many settings git has by variables already. */
export function credentialEnvironment(
  credentials: readonly Credential[],
  gitSettings: number,
): Record<string, string> {
  const git = credentials.filter((one) => one.git);
  const settings: (readonly [string, string])[] = git.flatMap(({ host, port, listenPort }, index) => {
    const at = gitSettings + index;
    const site = `https://${formatHost(host, port === HTTPS_PORT ? null : port)}/`;
    return [
      [`GIT_CONFIG_KEY_${at}`, `url.${baseUrl(listenPort)}/.insteadOf`],
      [`GIT_CONFIG_VALUE_${at}`, site],
    ];
  });
  return {
    ...Object.fromEntries(credentials.flatMap(({ environment }) => Object.entries(environment))),
    ...Object.fromEntries(credentials.map(({ name, listenPort }) => [variableOf(name), baseUrl(listenPort)])),
    ...(git.length === 0 ? {} : { GIT_CONFIG_COUNT: String(gitSettings + git.length) }),
    ...Object.fromEntries(settings),
  };
}

function ofPreset(
  name: CredentialPresetName,
  own: { readonly secret?: string | undefined; readonly limits?: OwnLimits | undefined },
): Credential {
  const { host, secret, as, port: listenPort, urls, keys, placeholder, ...rest } = CREDENTIAL_PRESETS[name];
  return {
    ...{ name, host, port: HTTPS_PORT, secret: own.secret ?? secret, as, listenPort, placeholder },
    limits: limitsOf(own.limits),
    environment: {
      ...Object.fromEntries(
        Object.entries(urls).map(([variable, path]) => [variable, baseUrl(listenPort) + path]),
      ),
      ...Object.fromEntries(keys.map((variable) => [variable, placeholder])),
    },
    git: 'git' in rest,
  };
}

function nameOf(entry: CredentialEntry): string {
  if (typeof entry === 'string') return entry;
  return 'preset' in entry ? entry.preset : `${entry.host} ${entry.secret}`;
}

function useOf(as: z.infer<typeof UseSchema>): CredentialUse {
  if (as === 'bearer') return { kind: 'bearer' };
  if (as === 'basic') return { kind: 'basic', user: null };
  if (as === 'query') return { kind: 'query', parameter: 'key' };
  if ('header' in as) return { kind: 'header', header: as.header };
  return 'basic' in as ? { kind: 'basic', user: as.basic } : { kind: 'query', parameter: as.query };
}

type OwnLimits = { readonly [K in keyof CredentialLimits]?: number | undefined };

function limitsOf(own: OwnLimits = {}): CredentialLimits {
  return {
    requests: own.requests ?? CREDENTIAL_LIMITS.requests,
    bytes: own.bytes ?? CREDENTIAL_LIMITS.bytes,
    concurrent: own.concurrent ?? CREDENTIAL_LIMITS.concurrent,
  };
}

function parseHost(text: string): { readonly host: string; readonly port: number } | null {
  const parts = splitAuthority(text);
  if (parts === null) return null;
  const canonical = canonicalizeHost(parts.host);
  return 'refused' in canonical ? null : { host: canonical.host, port: parts.port ?? HTTPS_PORT };
}

function freePort(name: string, taken: ReadonlySet<number>): number {
  const { firstNamed, last } = CREDENTIAL_PORTS;
  const count = last - firstNamed + 1;
  let hash = 0;
  for (const character of name) hash = (Math.imul(hash, 31) + (character.codePointAt(0) ?? 0)) >>> 0;
  let port = firstNamed + (hash % count);
  while (taken.has(port)) port = port === last ? firstNamed : port + 1;
  return port;
}

function baseUrl(port: number): string {
  return `http://127.0.0.1:${port}`;
}

/** `git.example.com GIT_TOKEN` → `CREDENTIAL_URL_GIT_EXAMPLE_COM_GIT_TOKEN`. */
function variableOf(name: string): string {
  return `CREDENTIAL_URL_${name.toUpperCase().replaceAll(/[^A-Z0-9]+/g, '_')}`;
}
