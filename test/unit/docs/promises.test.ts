import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const page = readFileSync(join(ROOT, 'docs/promises.md'), 'utf8');

/** The text of the file below `test/` that a row names, or null. Suites of the extension host are no `.test.ts`. */
function suite(name: string): string | null {
  const path = [`${name}.test.ts`, `${name}.ts`]
    .map((file) => join(ROOT, 'test', file))
    .find((file) => existsSync(file));
  return path === undefined ? null : readFileSync(path, 'utf8');
}

const rows = page.split('\n').filter((line) => line.startsWith('| ') && !line.startsWith('| promise'));
const shown = rows.map((row) => [row.split('|')[1]?.trim() ?? '', row.split('|')[2] ?? ''] as const);

test.each(shown)('“%s” is shown by tests that exist', (_promise, cell) => {
  const named = [...cell.matchAll(/`([^`]+)` “([^”]+)”/g)];
  expect(named.length).toBeGreaterThan(0);
  // Each test of the cell has been read, and nothing else is in it.
  expect(named.map(([all]) => all).join(', ')).toBe(cell.trim());
  for (const [, file = '', title = ''] of named) {
    const text = suite(file);
    expect(text, file).not.toBeNull();
    const begins = ["'", '"', '`'].some((quote) => text?.includes(quote + title));
    expect(begins, `a title of ${file} begins with “${title}”`).toBe(true);
  }
});

test('every promise is there', () => {
  expect(rows.length).toBeGreaterThan(40);
});
