import { expect, test } from 'vitest';
import { manifestFacts } from '../../../extension/page/manifest-facts.ts';
import type { Manifest } from '../../../protocol/manifest.ts';

const TURN = {
  id: 'turn-aaaaaaaaaaaaaaaa',
  kind: 'acp',
  at: '2026-01-01T00:00:00Z',
  prompt: null,
  model: null,
} as const;
const HASH = 'a'.repeat(64);
const SMALL = {
  session: { profile: 'claude', model: null },
  memory: 0,
  snapshot: null,
  base: null,
  image: null,
  turns: { total: 0, listed: [] },
  egress: { hosts: 0, allowed: 0, denied: 0, failed: 0 },
  handoffs: { total: 0 },
  history: { seq: 7, hash: HASH },
} as unknown as Manifest;

const words = (more: object): Record<string, string> =>
  Object.fromEntries(manifestFacts({ ...SMALL, ...more }).map(({ label, value }) => [label, value]));

test('a manifest of a session that did nothing says so', () => {
  expect(words({})).toEqual({
    ...{ Profile: 'claude', Turns: '0', Connections: 'none', Handoffs: 'none' },
    History: `7 events · ${'a'.repeat(16)}`,
  });
});

test('turns are counted by how they ended, and those that are not listed too', () => {
  const listed = [
    { ...TURN, status: 'succeeded' },
    { ...TURN, status: 'succeeded' },
    { ...TURN, status: null },
  ];
  expect(words({ turns: { total: 5, listed } })['Turns']).toBe('5 (2 succeeded, 1 running, 2 not listed)');
});

test('image, base, snapshot, memory and model are named with what identifies them', () => {
  const found = words({
    session: { profile: 'claude', model: 'opus' },
    image: { name: 'agent:1', identity: `sha256:${HASH}` },
    base: { folder: 'parser', branch: 'main', commit: 'b'.repeat(40), root: HASH },
    egress: { hosts: 1, allowed: 2, denied: 3, failed: 0 },
    memory: 3,
  });
  expect(found).toMatchObject({
    Model: 'opus',
    Image: `agent:1 · ${'a'.repeat(16)}`,
    'Began with': `parser · main · ${'b'.repeat(16)}`,
    Connections: '2 allowed, 3 denied, 0 failed; 1 host',
    Memory: 'version 3',
  });
  const base = { folder: '', branch: 'main', commit: null, root: HASH };
  expect(words({ base })['Began with']).toBe(`main · ${'a'.repeat(16)}`);
});
