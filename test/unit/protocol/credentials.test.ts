import { describe, expect, test } from 'vitest';
import { CREDENTIAL_PRESETS, PLACEHOLDER_MARK } from '../../../protocol/credential-presets.ts';
import {
  type CredentialEntry,
  credentialEnvironment,
  credentialsOf,
  CREDENTIAL_PORTS,
} from '../../../protocol/credentials.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';

const SERVICE = { host: 'API.Example.com.', secret: 'KEY', as: 'bearer' } as const;
const parsed = (credentials: unknown): boolean =>
  ProfileSchema.safeParse({ name: 'p', agent: { protocol: 'command', command: ['a'] }, credentials }).success;

describe('the presets', () => {
  const presets = Object.entries(CREDENTIAL_PRESETS);

  test('have ports of their own, below those of other credentials', () => {
    const ports = presets.map(([, { port }]) => port);
    expect(new Set(ports).size).toBe(ports.length);
    for (const port of ports) {
      expect(port).toBeGreaterThanOrEqual(CREDENTIAL_PORTS.first);
      expect(port).toBeLessThan(CREDENTIAL_PORTS.firstNamed);
    }
  });

  test.each(presets)(
    '%s: its placeholder is known for one, and its host is a public name',
    (_name, preset) => {
      expect(preset.placeholder).toContain(PLACEHOLDER_MARK);
      expect(preset.host).toMatch(/^[a-z0-9.-]+\.[a-z]+$/);
    },
  );
});

describe('the credentials of a profile', () => {
  test('have the same ports in any order', () => {
    const entries: CredentialEntry[] = [
      'openai',
      SERVICE,
      { ...SERVICE, secret: 'OTHER' },
      { ...SERVICE, host: 'b.example.com' },
    ];
    const ports = (list: CredentialEntry[]): [string, number][] =>
      credentialsOf({ credentials: list }).map(({ name, listenPort }) => [name, listenPort]);
    expect(ports(entries.toReversed())).toEqual(ports(entries));
    expect(new Set(ports(entries).map(([, port]) => port)).size).toBe(entries.length);
  });

  test('fill all ports before any is taken twice', () => {
    const entries = Array.from({ length: 32 }, (_, at) => ({ ...SERVICE, secret: `KEY_${at}` }));
    const ports = credentialsOf({ credentials: entries }).map(({ listenPort }) => listenPort);
    expect(new Set(ports).size).toBe(32);
    expect(Math.max(...ports)).toBeLessThanOrEqual(CREDENTIAL_PORTS.last);
  });

  test('have canonical hosts and usual limits', () => {
    const [credential] = credentialsOf({ credentials: [{ ...SERVICE, limits: { requests: 5 } }] });
    expect(credential).toMatchObject({
      host: 'api.example.com',
      port: 443,
      limits: { requests: 5, concurrent: 64 },
    });
  });

  test('give the sandbox base URLs, placeholders and settings of git, in variables that a process may have', () => {
    const credentials = credentialsOf({
      credentials: ['anthropic', 'github-git', { ...SERVICE, url: 'U', key: 'K' }],
    });
    const variables = credentialEnvironment(credentials, 1);
    const custom = credentials.find(({ secret }) => secret === 'KEY');
    expect(variables).toMatchObject({
      ANTHROPIC_BASE_URL: 'http://127.0.0.1:3130',
      ANTHROPIC_API_KEY: 'sk-ant-holdfast-placeholder',
      U: `http://127.0.0.1:${custom?.listenPort ?? 0}`,
      K: custom?.placeholder,
      CREDENTIAL_URL_ANTHROPIC: 'http://127.0.0.1:3130',
      GIT_CONFIG_COUNT: '2',
      GIT_CONFIG_KEY_1: 'url.http://127.0.0.1:3135/.insteadOf',
      GIT_CONFIG_VALUE_1: 'https://github.com/',
    });
    // Variables with this prefix are those of the sandbox itself: no turn starts with another one.
    for (const name of Object.keys(variables)) expect(name).toMatch(/^(?!HOLDFAST_)[A-Za-z_][A-Za-z0-9_]*$/);
  });

  test.each([
    [['nobody']],
    [[{ preset: 'anthropic', host: 'evil.test' }]],
    [[{ ...SERVICE, host: 'https://api.example.com' }]],
    [[{ ...SERVICE, host: 'user@api.example.com' }]],
    [[{ ...SERVICE, secret: 'sk-ant-0123' }]],
    [[{ ...SERVICE, as: { header: 'Host' } }]],
    [[{ ...SERVICE, as: { header: 'X: y' } }]],
    [[{ ...SERVICE, as: { query: 'a&b' } }]],
    [[{ ...SERVICE, as: 'cookie' }]],
  ])('%j is refused', (credentials) => {
    expect(parsed(credentials)).toBe(false);
    expect(parsed(['anthropic', { preset: 'openai', secret: 'K' }, SERVICE])).toBe(true);
  });
});
