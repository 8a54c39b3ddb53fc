import { expect, test } from 'vitest';
import { whatStays } from '../../../extension/review/will-not-travel.ts';
import type { ReviewFile } from '../../../protocol/review.ts';

function change(path: string, given: Partial<ReviewFile> = {}): ReviewFile {
  return {
    path: `/workspace/${path}`,
    id: '0'.repeat(24),
    kind: 'added',
    type: 'file',
    oldBytes: null,
    newBytes: 2,
    oldMode: null,
    newMode: 0o644,
    state: 'to-review',
    again: false,
    byHunk: false,
    below: 0,
    risks: [],
    ...given,
  };
}

async function staying(
  files: readonly ReviewFile[],
  ignoreFiles: Readonly<Record<string, string>> = {},
): Promise<string[]> {
  const found = await whatStays(files, (folder) => Promise.resolve(ignoreFiles[folder] ?? null));
  return found.map(({ file, why }) => `${file.path.slice('/workspace/'.length)}: ${why}`);
}

test('what a handoff leaves behind is listed with its reason, whether it is accepted or not', async () => {
  const files = [
    change('Makefile', { risks: ['executes', 'large'], state: 'accepted' }),
    change('link', { type: 'symlink', risks: ['outside'] }),
    change('.github/workflows/ci.yml', { kind: 'deleted', risks: ['ci'] }),
    change('sub/.GIT/config', { risks: ['executes'] }),
    change('pipe', { type: 'fifo' }),
    change('plain.txt', { risks: ['generated'] }),
    change('hook', { risks: ['executes'], state: 'rejected' }),
    change('folder', { type: 'directory' }),
  ];
  expect(await staying(files)).toEqual([
    'Makefile: in quarantine: may run on your machine',
    'link: in quarantine: leads out of the tree',
    '.github/workflows/ci.yml: in quarantine: runs on a build server',
    'sub/.GIT/config: its path names a part of a git repository',
    'pipe: git stores files and links only',
  ]);
});

test('what ignore files name stays, unless the repository has it already', async () => {
  const files = [
    change('node_modules/a/index.js', { state: 'accepted' }),
    change('sub/out.js'),
    change('sub/kept.js'),
    change('dist/known.js', { kind: 'modified' }),
    change('d\u00e9p/x'),
  ];
  const ignoreFiles = { '': 'node_modules\ndist\nd\u00c3\u00a9p\n', sub: '*.js\n!kept.js\n' };
  expect(await staying(files, ignoreFiles)).toEqual([
    'node_modules/a/index.js: ignored by git',
    'sub/out.js: ignored by git',
    'd\u00e9p/x: ignored by git',
  ]);
});

test('few ignore files are read, and none below what is ignored', async () => {
  const read: string[] = [];
  const files = Array.from({ length: 1000 }, (_, at) => change(`folder${at}/file`));
  await whatStays([...files, change('node_modules/a/b/c')], (folder) => {
    read.push(folder);
    return Promise.resolve(folder === '' ? 'node_modules\n' : null);
  });
  expect(read).toHaveLength(200);
  expect(read.filter((folder) => folder.startsWith('node_modules'))).toEqual([]);
});
