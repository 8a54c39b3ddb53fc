import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const DIST = join(import.meta.dirname, '../../../dist');
/**
 * A seventh of it are the parsers of YAML and TOML, with which a deploy checks the profile and an agent's configuration itself; a tenth
 * hands changes to git. Moves and files of sessions are 15 KB, the home page is 10 KB, the names that a handoff holds back 15 KB, the
 * agents that a first profile offers and what a deploy installs for them 10 KB, the tree of a review 15 KB,
 * what turns changed and why snapshots are created 7 KB.
 */
const MOST_BYTES = 1030 * 1024;
/**
 * The marks of the Explorer, of which VS Code asks at once in the window of a session, are 4 KB of it. What turns
 * changed and the tooltips of sessions are 1 KB each.
 */
const MOST_AT_ONCE = 203 * 1024;

test('the bundles of the extension are small', () => {
  const sizes = ['extension.cjs', 'extension-protocol.cjs'].map((name) => statSync(join(DIST, name)).size);
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(MOST_BYTES);
});

test('the bundle that loads at activation is smaller, and contains no schema', () => {
  const text = readFileSync(join(DIST, 'extension.cjs'), 'utf8');
  expect(text.length).toBeLessThan(MOST_AT_ONCE);
  expect(text).toContain('extension-protocol.cjs');
  expect(text).not.toMatch(/invalid_type|unrecognized_keys/);
});
