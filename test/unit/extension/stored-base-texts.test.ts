import { mkdtemp, readdir, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StoredBaseTexts } from '../../../extension/files/stored-base-texts.ts';

const [ONE, TWO] = ['holdfast://ses-a/workspace/one', 'holdfast://ses-a/workspace/two'];

let parent: string;
let folder: string;

beforeEach(async () => {
  parent = await mkdtemp(join(tmpdir(), 'holdfast-bases-'));
  folder = join(parent, 'bases');
});
afterEach(() => rm(parent, { recursive: true, force: true }));

describe('a stored base text', () => {
  test('is there after a reload of the window, for exactly its version', async () => {
    const before = new StoredBaseTexts(folder, []);
    await before.set(ONE, 'v1', 'a text\r\nwith "quotes" and ü');
    const after = new StoredBaseTexts(folder, [ONE]);
    expect(await after.get(ONE, 'v1')).toBe('a text\r\nwith "quotes" and ü');
    expect(await after.get(ONE, 'v2')).toBeUndefined();
    expect(await after.get(TWO, 'v1')).toBeUndefined();
  });

  test('is replaced, and removed with what it belongs to', async () => {
    const texts = new StoredBaseTexts(folder, []);
    await texts.set(ONE, 'v1', 'first');
    await texts.set(ONE, 'v2', 'second');
    expect(await texts.get(ONE, 'v1')).toBeUndefined();
    expect(await texts.get(ONE, 'v2')).toBe('second');
    await texts.forget(ONE);
    expect(await texts.get(ONE, 'v2')).toBeUndefined();
    expect(await readdir(folder)).toEqual([]);
  });

  test('of a document that has no unsaved text any more is removed, and so is half a file', async () => {
    const before = new StoredBaseTexts(folder, []);
    await before.set(ONE, 'v1', 'one');
    await before.set(TWO, 'v1', 'two');
    await writeFile(join(folder, 'half.tmp'), '{"version":');
    const after = new StoredBaseTexts(folder, [TWO]);
    expect(await after.get(TWO, 'v1')).toBe('two');
    expect(await after.get(ONE, 'v1')).toBeUndefined();
    expect(await readdir(folder)).toHaveLength(1);
  });

  test('that is damaged is none', async () => {
    const texts = new StoredBaseTexts(folder, []);
    await texts.set(ONE, 'v1', 'one');
    const [name = ''] = await readdir(folder);
    await truncate(join(folder, name), 9);
    expect(await texts.get(ONE, 'v1')).toBeUndefined();
    await texts.set(ONE, 'v1', 'again');
    expect(await texts.get(ONE, 'v1')).toBe('again');
  });

  test('that cannot be written is none, and nothing fails', async () => {
    await writeFile(folder, 'a file where the folder should be');
    const texts = new StoredBaseTexts(folder, []);
    await texts.set(ONE, 'v1', 'one');
    expect(await texts.get(ONE, 'v1')).toBeUndefined();
  });

  test('can be read by its owner only', async () => {
    await new StoredBaseTexts(folder, []).set(ONE, 'v1', 'one');
    const [name = ''] = await readdir(folder);
    expect((await stat(folder)).mode & 0o077).toBe(0);
    expect((await stat(join(folder, name))).mode & 0o077).toBe(0);
  });

  test('is dropped for later ones beyond the limit, and a larger one is not stored', async () => {
    const limits = { maxBytes: 1_000, maxTotalBytes: 4_000 };
    const texts = new StoredBaseTexts(folder, [], limits);
    const text = 'x'.repeat(900);
    for (let n = 0; n < 6; n += 1) await texts.set(`${ONE}-${n}`, 'v1', text);
    expect(await texts.get(`${ONE}-1`, 'v1')).toBeUndefined();
    expect(await texts.get(`${ONE}-2`, 'v1')).toBe(text);
    expect(await readdir(folder)).toHaveLength(4);
    await texts.set(TWO, 'v1', `${text}${'x'.repeat(100)}`);
    expect(await texts.get(TWO, 'v1')).toBeUndefined();
  });
});
