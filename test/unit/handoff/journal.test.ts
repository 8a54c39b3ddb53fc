import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Journal, Journals } from '../../../handoff/journal.ts';

let common: string;
beforeEach(async () => {
  common = await mkdtemp(join(tmpdir(), 'holdfast-journal-'));
});
afterEach(() => rm(common, { recursive: true }));

test('a note that cannot be written leaves nothing', async () => {
  const journals = new Journals(common);
  const journal = { handoff: 'hand-aaaaaaaaaaaaaaaa' } as Journal;
  await journals.write(journal);
  const written = (await readdir(common, { recursive: true })).find((name) => name.includes(journal.handoff));
  const path = join(common, written ?? '');
  // In its place a folder, over which no file can be moved.
  await rm(path);
  await mkdir(path);
  await expect(journals.write(journal)).rejects.toThrow('EISDIR');
  expect(await readdir(dirname(path))).toEqual([path.slice(dirname(path).length + 1)]);
});
