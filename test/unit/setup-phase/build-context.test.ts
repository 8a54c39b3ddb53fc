import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { extract } from 'tar-stream';
import { expect, test } from 'vitest';
import { readContext } from '../../../supervisor/setup/dockerfile/context.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const NAME = '.own.Dockerfile';
const signal = new AbortController().signal;

function write(files: Readonly<Record<string, string>>): string {
  const root = temporaryDirectory();
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}
/** The tar of a context without our own two files: `path`, `path/` or `path -> target`. */
async function entries(folder: string, wanted: readonly string[] | null): Promise<string[]> {
  const context = await readContext(folder, wanted, signal);
  const found: string[] = [];
  const reader = extract();
  context.tar({ name: NAME, text: 'FROM a\n' }).pipe(reader);
  for await (const entry of reader) {
    const { name, type, linkname, uid } = entry.header;
    expect(uid).toBe(0);
    found.push(
      type === 'directory'
        ? `${name.replace(/\/$/, '')}/`
        : type === 'symlink'
          ? `${name} -> ${linkname}`
          : name,
    );
    entry.resume();
  }
  expect(found.slice(0, 2)).toEqual([NAME, '.dockerignore']);
  return found.slice(2);
}

test('has what is named, with its folders, and nothing else', async () => {
  const folder = write({ 'a/b/c': '1', 'a/d': '2', e: '3', ee: '4', [NAME]: 'theirs' });
  expect(await entries(folder, ['a/b', 'e', 'missing/x'])).toEqual(['a/', 'a/b/', 'a/b/c', 'e']);
  expect(await entries(folder, [])).toEqual([]);
  expect(await entries(folder, null)).toEqual(['a/', 'a/b/', 'a/b/c', 'a/d', 'e', 'ee']);
});

test('has links as links, and all files where a named one is a link', async () => {
  const folder = write({ 'real/file': '1', other: '2' });
  symlinkSync('real', join(folder, 'link'));
  expect(await entries(folder, ['link/file'])).toEqual(['link -> real', 'other', 'real/', 'real/file']);
  expect(await entries(folder, ['other'])).toEqual(['other']);
});

test('follows .dockerignore, whose patterns begin at the context', async () => {
  const folder = write({
    'node_modules/x': '1',
    'sub/node_modules/y': '2',
    'a.log': '3',
    'sub/b.log': '4',
    'keep.log': '5',
  });
  writeFileSync(join(folder, '.dockerignore'), '# comment\nnode_modules\n**/*.log\n!keep.log\n');
  expect(await entries(folder, null)).toEqual([
    'keep.log',
    'node_modules/',
    'sub/',
    'sub/node_modules/',
    'sub/node_modules/y',
  ]);
});

test('has a hash of paths, modes and contents, and of nothing that is not named', async () => {
  const one = write({ a: '1', b: '2' });
  const two = write({ a: '1', b: 'other' });
  const hash = async (folder: string, wanted: readonly string[] | null) =>
    (await readContext(folder, wanted, signal)).hash;
  expect(await hash(one, ['a'])).toBe(await hash(two, ['a']));
  expect(await hash(one, null)).not.toBe(await hash(two, null));
});

test('with a name that is not UTF-8 is refused', async () => {
  const folder = write({ a: '1' });
  writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0x66, 0xff])]), '');
  await expect(readContext(folder, null, signal)).rejects.toMatchObject({
    code: 'profile_invalid',
    why: expect.stringContaining('not UTF-8') as string,
  });
});

test('ends with its signal', async () => {
  const folder = write({ a: '1' });
  await expect(readContext(folder, null, AbortSignal.abort())).rejects.toThrow();
});
