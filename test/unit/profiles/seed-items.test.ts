import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type SeedItem, seedItems } from '../../../supervisor/profiles/seed-source.ts';

let below = '';
beforeEach(() => {
  below = mkdtempSync(join(tmpdir(), 'holdfast-seed-'));
});
afterEach(() => rmSync(below, { recursive: true, force: true }));

async function items(folder: string): Promise<SeedItem[]> {
  const all: SeedItem[] = [];
  const source = { code: join(below, 'code'), history: null, folder, ignore: [] };
  for await (const item of seedItems(source)) all.push(item);
  return all;
}

test('a folder that links lead out of the project is no folder of the project', async () => {
  mkdirSync(join(below, 'private'));
  writeFileSync(join(below, 'private/key'), 'secret');
  mkdirSync(join(below, 'code/inside'), { recursive: true });
  writeFileSync(join(below, 'code/inside/file'), 'own');
  // Each stays inside as text; together they do not.
  mkdirSync(join(below, 'code/a/b'), { recursive: true });
  symlinkSync('../..', join(below, 'code/a/b/up'));
  symlinkSync('a/b/up/../private', join(below, 'code/leak'));
  symlinkSync('inside', join(below, 'code/also'));
  await expect(items('leak/')).rejects.toMatchObject({ code: 'not_found' });
  await expect(items('a/b/up/../private')).rejects.toMatchObject({ code: 'not_found' });
  expect((await items('inside')).map(({ path }) => path)).toEqual(['/workspace/file']);
  expect((await items('also/')).map(({ path }) => path)).toEqual(['/workspace/file']);
});
