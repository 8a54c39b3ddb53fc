import { statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const MOST_BYTES = 600 * 1024;

test('what every window loads is small', () => {
  const { size } = statSync(join(import.meta.dirname, '../../../dist/extension.cjs'));
  expect(size).toBeLessThan(MOST_BYTES);
});
