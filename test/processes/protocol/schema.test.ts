import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { METHODS } from '../../../protocol/methods.ts';
import { ProfileSchema } from '../../../protocol/profile.ts';

const root = join(import.meta.dirname, '../../..');

function published(name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(root, 'docs', name), 'utf8')) as Record<string, unknown>;
}

function referencesIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === '$ref' && typeof inner === 'string' ? [inner] : referencesIn(inner),
  );
}

test('the published schemas are up to date', () => {
  execFileSync(process.execPath, [join(root, 'protocol/schema/publish.ts'), '--check'], { stdio: 'pipe' });
});

test('every reference resolves, and every method is included', () => {
  const document = published('protocol.schema.json');
  const parts = document['$defs'] as Record<string, unknown>;
  const references = new Set(referencesIn(document));
  for (const reference of references) {
    expect(Object.keys(parts)).toContain(reference.replace('#/$defs/', '').replaceAll('~1', '/'));
  }
  for (const method of Object.keys(METHODS)) {
    expect(Object.keys(parts)).toEqual(expect.arrayContaining([`${method}.params`, `${method}.result`]));
    expect(references).toContain(`#/$defs/${method.replaceAll('/', '~1')}.params`);
  }
});

const MINIMAL = { name: 'counter', agent: { protocol: 'handler', entry: 'agent.py' } };
const COMMAND = { protocol: 'command', command: ['cat'] };

test.each([
  ['minimal', MINIMAL],
  [
    'a command with everything',
    {
      name: 'a',
      image: 'debian:12',
      agent: { ...COMMAND, prompt: 'argument', timeout: '5m' },
      persistence: 'persistent',
      workspace: { backing: 'volume', limit: '1.5GiB' },
      env: { A_1: 'x' },
      limits: { memory: '512MiB', cpus: 0.5, pids: 16 },
      idle: { pause: '250ms', stop: '1h', expire: '30d' },
    },
  ],
  ['no agent', { name: 'a' }],
  ['an unknown key', { ...MINIMAL, imgae: 'x' }],
  ['an unknown key inside', { ...MINIMAL, limits: { ram: '1GiB' } }],
  ['a key of another kind of agent', { ...MINIMAL, agent: { ...COMMAND, entry: 'agent.py' } }],
  ['an upper-case name', { ...MINIMAL, name: 'Counter' }],
  ['a handler in another language', { ...MINIMAL, agent: { protocol: 'handler', entry: 'agent.rb' } }],
  ['an empty command', { ...MINIMAL, agent: { protocol: 'command', command: [] } }],
  ['a duration without a unit', { ...MINIMAL, idle: { pause: '5' } }],
  ['a duration that is a number', { ...MINIMAL, idle: { pause: 5 } }],
  ['a bad variable', { ...MINIMAL, env: { '1A': 'x' } }],
  ['an image with a space', { ...MINIMAL, image: 'a b' }],
])('the schema of holdfast.yaml judges as the program does: %s', (_what, profile) => {
  const schema = z.fromJSONSchema(published('holdfast.schema.json'));
  expect(schema.safeParse(profile).success).toBe(ProfileSchema.safeParse(profile).success);
});

test('every field of holdfast.yaml is described', () => {
  const properties = published('holdfast.schema.json')['properties'] as Record<
    string,
    { description?: string }
  >;
  for (const [name, { description }] of Object.entries(properties)) expect(description, name).toMatch(/\.$/);
});
