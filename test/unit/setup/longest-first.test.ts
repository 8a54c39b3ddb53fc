import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { LONG_FILES } from '../../setup/longest-first.ts';

test('every file that is named as long exists', () => {
  const root = join(import.meta.dirname, '../../..');
  expect(Object.keys(LONG_FILES).filter((path) => !existsSync(join(root, path)))).toEqual([]);
});
