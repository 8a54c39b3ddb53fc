import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { AFFECTED, affectedSuites } from '../../../scripts/setup/affected-suites.mjs';

const ROOT = join(import.meta.dirname, '../../..');

test('every path of the table exists', () => {
  const paths = [...Object.keys(AFFECTED), ...Object.values(AFFECTED).flat()];
  expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

test.each([
  ...['cli', 'egress-proxy', 'extension', 'handoff', 'hosts', 'images', 'project', 'protocol', 'scripts'],
  ...['sidecar', 'snapshot-format', 'supervisor', 'webview'],
])('a change anywhere in %s affects some suite', (module) => {
  expect(affectedSuites([`${module}/new/file.ts`])).not.toEqual([]);
});

test('a suite that no row names is affected by any change of a program', () => {
  const tests = ['test/docker/brand-new.test.ts', 'test/docker/seed.test.ts', 'test/unit/new/thing.test.ts'];
  expect(affectedSuites(['sidecar/search/ripgrep.ts'], tests)).toEqual([
    'test/docker/brand-new.test.ts',
    'test/docker/search.test.ts',
    'test/docker/watch.test.ts',
  ]);
  expect(affectedSuites(['docs/cli.md', 'test/attacks/files/attacker.py'], tests)).toEqual([
    'test/attacks/files',
  ]);
});

test('the longest prefix counts, and no suite is named twice', () => {
  expect(affectedSuites(['sidecar/search/ripgrep.ts'])).toEqual([
    'test/docker/search.test.ts',
    'test/docker/watch.test.ts',
  ]);
  expect(affectedSuites(['supervisor/daemon/run.ts', 'supervisor/turns/run.ts'])).toEqual([
    'test/docker/cli.test.ts',
    'test/docker/daemon',
    'test/docker/mission',
    'test/faults/deaths.test.ts',
    'test/faults/failpoints',
    'test/faults/homes.test.ts',
  ]);
});

test('a test of an engine tier is affected by itself, and what tests share affects those of its folder', () => {
  expect(affectedSuites(['test/docker/seed.test.ts', 'test/attacks/files/attacker.py'])).toEqual([
    'test/attacks/files',
    'test/docker/seed.test.ts',
  ]);
  expect(affectedSuites(['docs/cli.md', 'test/unit/cli/render.test.ts'])).toEqual([]);
});
