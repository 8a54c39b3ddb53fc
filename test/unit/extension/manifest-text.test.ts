import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { expect, test } from 'vitest';
import { manifestText } from '../../../extension/page/manifest-text.ts';
import { keyIdOf, sealEnvelope } from '../../../protocol/envelope.ts';
import type { Manifest } from '../../../protocol/manifest.ts';
import { statementOf } from '../../../protocol/manifest.ts';

const HASH = 'ab'.repeat(32);
const { privateKey } = generateKeyPairSync('ed25519');
const publicKey = createPublicKey(privateKey);
const none = { total: 0, listed: [] };
const MANIFEST: Manifest = {
  id: 'man-aaaaaaaaaaaaaaaa',
  reason: 'now',
  handoff: null,
  madeAt: '2026-01-01T00:00:00.000Z',
  home: 'aaaaaaaaaaaaaaaaaaaaaaaaaa',
  session: {
    id: 'ses-aaaaaaaaaaaaaaaa',
    name: 'story\n‮Valid: [all](command:x)',
    profile: 'claude',
    createdAt: '2026-01-01T00:00:00.000Z',
    forkedFrom: null,
    model: null,
  },
  memory: 0,
  snapshot: null,
  base: null,
  image: null,
  turns: none,
  egress: {
    ...{ hosts: 3, allowed: 2, denied: 1, failed: 0, bytesOut: 1, bytesIn: 1 },
    listed: [
      { host: 'api.example.org', port: 443, allowed: 2, denied: 1, failed: 0, bytesOut: 1, bytesIn: 1 },
    ],
  },
  credentials: [{ name: 'key', host: 'api.example.org', secret: 'API_KEY' }],
  handoffs: none,
  checks: none,
  permissions: null,
  review: null,
  changes: null,
  setup: null,
  importedFrom: null,
  ports: null,
  artifact: null,
  history: { seq: 7, hash: HASH, first: 1 },
};

function seal(manifest: Manifest): string {
  const statement = statementOf(manifest, [{ name: 'history', digest: { holdfastEvents: HASH } }]);
  return JSON.stringify(sealEnvelope(Buffer.from(JSON.stringify(statement)), privateKey));
}

test('a manifest that holds says so, what it says, and what it does not prove', () => {
  const text = manifestText(seal(MANIFEST), publicKey, 'this machine');
  expect(text.split('\n')[0]).toBe(
    `Valid: signed with the key ${keyIdOf(publicKey).slice(0, 16)} of this machine, and unchanged since.`,
  );
  expect(text).toContain('  api.example.org:443  2 allowed, 1 denied, 0 failed\n  and 2 hosts more\n');
  expect(text).toMatch(/^Credentials {7}key \(api\.example\.org\)$/m);
  expect(text).toMatch(/^Not proven by it:\n {2}- that the machine was honest/m);
});

test('a name in it cannot begin a line, reorder one, or become a link', () => {
  const text = manifestText(seal(MANIFEST), publicKey, 'this machine');
  expect(text).toContain('story \\u{202e}Valid: [all] (command:x) (ses-aaaaaaaaaaaaaaaa)');
  expect(text.match(/^Valid/gm)).toHaveLength(1);
});

test('of a changed one, or one of another key, it says why and nothing that it claims', () => {
  const sealed = JSON.parse(seal(MANIFEST)) as { payload: string };
  const payload = Buffer.from(sealed.payload, 'base64').toString().replace('claude', 'harmless');
  const changed = JSON.stringify({ ...sealed, payload: Buffer.from(payload).toString('base64') });
  const other = createPublicKey(generateKeyPairSync('ed25519').privateKey);
  expect(manifestText(changed, publicKey, 'a.pem')).toMatch(
    /^NOT VALID for the key of a\.pem: its signature does not match[^\n]*\n$/,
  );
  expect(manifestText(seal(MANIFEST), other, 'a.pem')).toMatch(
    /^NOT VALID[^\n]*another key signed it[^\n]*\n$/,
  );
  expect(manifestText('{}', publicKey, 'a.pem')).toMatch(/^NOT VALID[^\n]*not a signed envelope[^\n]*\n$/);
});
