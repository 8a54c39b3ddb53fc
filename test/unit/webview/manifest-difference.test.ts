import { expect, test } from 'vitest';
import type { SessionManifest } from '../../../webview/late-messages.ts';
import { differencesOf } from '../../../webview/late/manifest-difference.ts';

const manifest = (more: Partial<SessionManifest> = {}): SessionManifest => ({
  ...{ signature: { keyId: 'f', why: null }, madeAt: null },
  facts: [
    { label: 'Profile', value: 'claude' },
    { label: 'Turns', value: '3' },
  ],
  hosts: [{ host: 'a.test', port: 443, allowed: 2, denied: 0, failed: 0 }],
  credentials: [{ name: 'KEY', host: 'a.test' }],
  ...more,
});

test('two manifests that say the same have no differences', () => {
  expect(differencesOf(manifest(), manifest({ madeAt: '2026-01-01T00:00:00.000Z' }))).toEqual([]);
});

test('what changed, what is new and what is gone differ, each once', () => {
  const later = manifest({
    facts: [
      { label: 'Turns', value: '4' },
      { label: 'Model', value: 'large' },
    ],
    hosts: [{ host: 'a.test', port: 443, allowed: 3, denied: 1, failed: 0 }],
    credentials: [],
  });
  expect(differencesOf(manifest(), later)).toEqual([
    { what: 'Turns', before: '3', after: '4' },
    { what: 'Model', before: null, after: 'large' },
    { what: 'a.test:443', before: '2 allowed, 0 denied, 0 failed', after: '3 allowed, 1 denied, 0 failed' },
    { what: 'Profile', before: 'claude', after: null },
    { what: 'Credential KEY for a.test', before: 'yes', after: null },
  ]);
});
