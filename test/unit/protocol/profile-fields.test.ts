import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';
import { profileJsonSchema } from '../../../protocol/schema/json-schemas.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';

const NodeSchema = z.object({
  description: z.string().optional(),
  properties: z.record(z.string(), z.json()).optional(),
  oneOf: z.array(z.json()).optional(),
  anyOf: z.array(z.json()).optional(),
  items: z.json().optional(),
});

/** Every field of the published schema by its path, with what is said of it. A path is there once for each form that has it. */
function fieldsOf(schema: unknown, path = ''): [path: string, description: string][] {
  const { properties = {}, oneOf = [], anyOf = [], items } = NodeSchema.parse(schema);
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`);
  return [
    ...Object.entries(properties).flatMap(([name, inner]): [string, string][] => [
      [at(name), NodeSchema.parse(inner).description ?? ''],
      ...fieldsOf(inner, at(name)),
    ]),
    ...[...oneOf, ...anyOf].flatMap((form) => fieldsOf(form, at('*'))),
    ...(items === undefined ? [] : fieldsOf(items, at('*'))),
  ];
}

const HANDLER = { protocol: 'handler', entry: 'agent.py' };
const COMMAND = { protocol: 'command', command: ['cat'] };
const RULE = { host: 'example.org' };
const SERVICE = { host: 'api.example.org', secret: 'KEY', as: 'bearer' };
const PERMISSION_RULE = { answer: 'allow', kind: 'execute', path: 'src/*', command: 'npm *' };

/** A profile that uses the field, and as little else as it needs. */
const USES: Readonly<Record<string, object>> = {
  name: {},
  image: { image: 'debian:12' },
  dockerfile: { dockerfile: './Dockerfile' },
  devcontainer: { devcontainer: true },
  'devcontainer.*.path': { devcontainer: { path: '.devcontainer.json' } },
  'devcontainer.*.from': { devcontainer: { from: ['my-base:1'] } },
  'dockerfile.*.path': { dockerfile: { path: 'Dockerfile' } },
  'dockerfile.*.from': { dockerfile: { path: 'Dockerfile', from: ['my-agent:1'] } },
  'dockerfile.*.args': { dockerfile: { path: 'Dockerfile', args: { VERSION: '1' } } },
  agent: {},
  'agent.*.protocol': {},
  'agent.*.entry': { agent: HANDLER },
  'agent.*.command': { agent: COMMAND },
  'agent.*.prompt': { agent: { ...COMMAND, prompt: 'argument' } },
  'agent.*.timeout': { agent: { ...HANDLER, timeout: '1h' } },
  'agent.*.preset': { agent: { preset: 'claude' } },
  'agent.*.state': { agent: { ...COMMAND, state: ['.claude', '.local/share/opencode'] } },
  'agent.*.config': { agent: { ...COMMAND, config: 'agent-home' } },
  'agent.*.caches': { agent: { ...COMMAND, caches: ['.npm'] } },
  persistence: { persistence: 'persistent' },
  workspace: { workspace: {} },
  'workspace.scope': { workspace: { scope: 'session' } },
  'workspace.backing': { workspace: { backing: 'volume' } },
  'workspace.limit': { workspace: { limit: '1GiB' } },
  'workspace.seed': { workspace: { seed: 'start' } },
  'workspace.seed.*.path': { workspace: { seed: { path: 'start' } } },
  'workspace.seed.*.git': { workspace: { seed: { git: true } } },
  'workspace.ignore': { workspace: { ignore: ['*.o'] } },
  'workspace.repository': { workspace: { repository: { url: 'https://example.org/x' } } },
  'workspace.repository.url': { workspace: { repository: { url: 'https://example.org/x' } } },
  'workspace.repository.ref': { workspace: { repository: { url: 'https://example.org/x', ref: 'main' } } },
  'workspace.repository.depth': { workspace: { repository: { url: 'https://example.org/x', depth: 1 } } },
  'workspace.repository.secret': { workspace: { repository: { url: 'https://example.org/x', secret: 'A' } } },
  'workspace.repository.user': { workspace: { repository: { url: 'https://example.org/x', user: 'me' } } },
  snapshots: { snapshots: 'required' },
  setup: { setup: {} },
  credentials: { credentials: ['anthropic'] },
  'credentials.*.*.preset': { credentials: [{ preset: 'openai' }] },
  'credentials.*.*.secret': { credentials: [{ preset: 'openai', secret: 'KEY' }] },
  'credentials.*.*.host': { credentials: [SERVICE] },
  'credentials.*.*.as': { credentials: [SERVICE] },
  'credentials.*.*.as.*.header': { credentials: [{ ...SERVICE, as: { header: 'X-Key' } }] },
  'credentials.*.*.as.*.basic': { credentials: [{ ...SERVICE, as: { basic: 'git' } }] },
  'credentials.*.*.as.*.query': { credentials: [{ ...SERVICE, as: { query: 'key' } }] },
  'credentials.*.*.url': { credentials: [{ ...SERVICE, url: 'BASE_URL' }] },
  'credentials.*.*.key': { credentials: [{ ...SERVICE, key: 'API_KEY' }] },
  'credentials.*.*.limits': { credentials: [{ ...SERVICE, limits: {} }] },
  'credentials.*.*.limits.requests': { credentials: [{ ...SERVICE, limits: { requests: 1 } }] },
  'credentials.*.*.limits.bytes': { credentials: [{ ...SERVICE, limits: { bytes: '1GiB' } }] },
  'credentials.*.*.limits.concurrent': { credentials: [{ ...SERVICE, limits: { concurrent: 1 } }] },
  'setup.packages': { setup: { packages: 'auto' } },
  'setup.packages.*.apt': { setup: { packages: { apt: ['git=1:2.47.3-0+deb13u1'] } } },
  'setup.packages.*.npm': { setup: { packages: { npm: ['@types/node@^24'] } } },
  'setup.packages.*.pip': { setup: { packages: { pip: ['uvicorn[standard]>=0.30'] } } },
  'setup.run': { setup: { run: 'make' } },
  'setup.resume': { setup: { resume: 'make' } },
  'setup.secrets': { setup: { secrets: ['A'] } },
  'setup.egress': { setup: { egress: ['npm'] } },
  'setup.egress.*.*.host': { setup: { egress: [RULE] } },
  'setup.egress.*.*.quiet': { setup: { egress: [{ ...RULE, quiet: true }] } },
  'setup.egress.*.*.tcp': { setup: { egress: [{ ...RULE, tcp: true }] } },
  'setup.egress.*.*.ech': { setup: { egress: [{ ...RULE, ech: 'allow' }] } },
  'setup.egress.*.*.methods': { setup: { egress: [{ ...RULE, methods: ['GET'] }] } },
  'setup.egress.*.*.path': { setup: { egress: [{ ...RULE, path: '/' }] } },
  'setup.timeout': { setup: { timeout: '1m' } },
  egress: { egress: [] },
  'egress.*.host': { egress: [RULE] },
  'egress.*.quiet': { egress: [{ ...RULE, quiet: true }] },
  'egress.*.tcp': { egress: [{ ...RULE, tcp: true }] },
  'egress.*.ech': { egress: [{ ...RULE, ech: 'allow' }] },
  'egress.*.methods': { egress: [{ ...RULE, methods: ['GET'] }] },
  'egress.*.path': { egress: [{ ...RULE, path: '/' }] },
  env: { env: { A: 'x' } },
  limits: { limits: {} },
  'limits.memory': { limits: { memory: '1GiB' } },
  'limits.cpus': { limits: { cpus: 1 } },
  'limits.pids': { limits: { pids: 100 } },
  'limits.output': { limits: { output: '1GiB' } },
  'limits.tokens': { agent: { protocol: 'acp', command: ['a'] }, limits: { tokens: 200_000 } },
  'limits.cost': { agent: { protocol: 'acp', command: ['a'] }, limits: { cost: 2.5 } },
  'limits.home': { limits: { home: '1GiB' } },
  permissions: { permissions: 'ask' },
  'permissions.*.rules': { permissions: { rules: [PERMISSION_RULE] } },
  'permissions.*.rules.*.answer': { permissions: { rules: [PERMISSION_RULE] } },
  'permissions.*.rules.*.kind': { permissions: { rules: [PERMISSION_RULE] } },
  'permissions.*.rules.*.path': { permissions: { rules: [PERMISSION_RULE] } },
  'permissions.*.rules.*.command': { permissions: { rules: [PERMISSION_RULE] } },
  runtime: { runtime: 'runsc' },
  idle: { idle: {} },
  'idle.pause': { idle: { pause: '1m' } },
  'idle.stop': { idle: { stop: '1m' } },
  'idle.expire': { idle: { expire: '1m' } },
  retention: { retention: {} },
  'retention.snapshots': { retention: { snapshots: '1d' } },
  'retention.events': { retention: { events: '1d' } },
  'retention.artifacts': { retention: { artifacts: '1d' } },
  'retention.memory': { retention: { memory: '1d' } },
  checks: { checks: { test: 'make' } },
};
/** Values that are told apart from their field in the text. */
const REFUSED_VALUES: Readonly<Record<string, readonly [value: string, uses: object]>> = {
  'workspace.scope': ['profile', { workspace: { scope: 'profile' } }],
};

const SAYS_REFUSED = 'Not supported by this version: deploy refuses it.';
const fields = new Map(fieldsOf(profileJsonSchema()));

/** Null where deploy takes it. */
function refusal(uses: object): string | null {
  try {
    checkProfile(JSON.stringify({ name: 'counter', agent: HANDLER, ...uses }));
    return null;
  } catch (error) {
    if (error instanceof HoldfastError) return error.code;
    throw error;
  }
}

describe('the published schema and deploy agree on unsupported fields', () => {
  test('for every field that there is', () => {
    expect(Object.keys(USES).sort()).toEqual([...fields.keys()].sort());
  });

  test.each(Object.entries(USES))('%s', (path, uses) => {
    const description = fields.get(path) ?? '';
    expect(refusal(uses)).toBe(description.includes(SAYS_REFUSED) ? 'not_supported' : null);
  });

  test.each(Object.entries(REFUSED_VALUES))('a value of %s', (path, [value, uses]) => {
    expect(refusal(uses)).toBe('not_supported');
    expect(fields.get(path)).toContain(`${value} is not supported by this version: deploy refuses it.`);
  });

  test('accepted values have no message', () => {
    const mentioning = [...fields].filter(([, text]) => text.includes(' is not supported by this version'));
    expect(mentioning.map(([path]) => path).sort()).toEqual(Object.keys(REFUSED_VALUES).sort());
  });
});
