import { expect, test } from 'vitest';
import { versionAtNewPath } from '../../../extension/files/base-versions.ts';

const base = { version: 'v1', mtimeMs: 1 };
const stat = { size: 9, mtimeMs: 1, mtimeNs: '1000000', version: 'v1' };

test('a rename changes the version of a large file, and the base version of its document with it', () => {
  expect(versionAtNewPath(base, stat, { ...stat, version: 'v2' })).toBe('v2');
});

test('a base version stays if the file changed before or during the rename, or has no stat', () => {
  expect(versionAtNewPath(base, { ...stat, version: 'v0' }, { ...stat, version: 'v2' })).toBe('v1');
  expect(versionAtNewPath(base, stat, { ...stat, version: 'v2', mtimeNs: '1000001' })).toBe('v1');
  expect(versionAtNewPath(base, stat, { ...stat, version: 'v2', size: 10 })).toBe('v1');
  expect(versionAtNewPath(base, stat, { ...stat, version: null })).toBe('v1');
  expect(versionAtNewPath(base, undefined, stat)).toBe('v1');
  expect(versionAtNewPath(base, stat, undefined)).toBe('v1');
});
