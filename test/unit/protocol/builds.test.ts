import { expect, test } from 'vitest';
import { compareBuilds, compareVersions } from '../../../protocol/client/builds.ts';

test('versions are ordered as semantic versions are', () => {
  const ordered = [
    'nonsense',
    '0.0.1',
    '0.9.10',
    '1.0.0-alpha',
    '1.0.0-alpha.1',
    '1.0.0-alpha.beta',
    '1.0.0-beta.2',
    '1.0.0-beta.11',
    '1.0.0-rc.1',
    '1.0.0',
    '1.0.1',
    '1.2.0',
    '1.10.0',
    '2.0.0',
  ];
  for (const [at, left] of ordered.entries()) {
    for (const [other, right] of ordered.entries()) {
      expect(Math.sign(compareVersions(left, right)), `${left} ${right}`).toBe(Math.sign(at - other));
    }
  }
  expect(compareVersions('1.0.0+one', '1.0.0+two')).toBe(0);
  expect(compareVersions('v1.0.0', '1.0.0')).toBe(0);
});

test('equal versions are ordered by the time of their build, unless it is the same build', () => {
  const old = { version: '1.0.0', build: 'a', builtAt: 1 };
  expect(compareBuilds(old, { version: '1.0.0', build: 'b', builtAt: 2 })).toBeLessThan(0);
  expect(compareBuilds({ version: '0.9.0', build: 'b', builtAt: 9 }, old)).toBeLessThan(0);
  expect(compareBuilds(old, { ...old, builtAt: 5 })).toBe(0);
});
