import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
/** Pages with a table of claims, and how many at least. */
const PAGES = [
  ['docs/promises.md', 40],
  ['test/attacks/README.md', 25],
] as const;

/** The text of the file below `test/` that a row names, or null. Suites of the extension host are no `.test.ts`. */
function suite(name: string): string | null {
  const path = [`${name}.test.ts`, `${name}.ts`]
    .map((file) => join(ROOT, 'test', file))
    .find((file) => existsSync(file));
  return path === undefined ? null : readFileSync(path, 'utf8');
}

const rowsOf = (page: string): string[] =>
  readFileSync(join(ROOT, page), 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('| ') && !/^\| (promise|attack) /.test(line));
const shown = PAGES.flatMap(([page]) => rowsOf(page)).map(
  (row) => [row.split('|')[1]?.trim() ?? '', row.split('|')[2] ?? ''] as const,
);

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

test.each(PAGES)('%s has all its rows', (page, least) => {
  expect(rowsOf(page).length).toBeGreaterThan(least);
});
