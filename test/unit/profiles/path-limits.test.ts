import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { PROJECT_LIMITS, type ProjectEntry } from '../../../protocol/deploy.ts';
import { ProjectReader } from '../../../project/read-project.ts';
import { TreeWriter, UploadTotals } from '../../../supervisor/profiles/tree-writer.ts';

const WIDE = { files: 100, bytes: 1000 };
const TOO_LARGE = {
  code: 'profile_invalid',
  why: expect.stringContaining('bytes in the paths of its files') as string,
};

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-paths-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const names = (count: number) => Array.from({ length: count }, (_, nth) => `${nth}`.padStart(250, 'n'));
const fileEntry = (path: string): ProjectEntry => ({ kind: 'file', path, size: 0, executable: false });

test('empty files with long paths reach the limit of an upload long before its number of files', () => {
  const totals = new UploadTotals();
  const deep = `${names(15).join('/')}/`;
  let files = 0;
  const addAll = () => {
    for (const name of names(24_000)) {
      totals.addFile(deep + name, 0);
      files += 1;
    }
  };
  expect(addAll).toThrow(expect.objectContaining(TOO_LARGE));
  expect(files * (deep.length + 250)).toBeLessThanOrEqual(PROJECT_LIMITS.pathBytes);
  expect(files).toBeGreaterThan(8000);
});

test('as many files as may be sent fit with ordinary paths', () => {
  const totals = new UploadTotals();
  for (let nth = 0; nth < PROJECT_LIMITS.files; nth += 1)
    totals.addFile(`packages/some-package-${nth % 1000}/node_modules/@scope/name/dist/lib/file-${nth}.js`, 0);
  expect(totals.files).toBe(PROJECT_LIMITS.files);
});

test.each<[string, readonly ProjectEntry[]]>([
  ['folders', names(3).map((path) => ({ kind: 'folder', path }))],
  ['files', names(3).map(fileEntry)],
  ['texts of links', [{ kind: 'link', path: 'a', target: Buffer.from('x'.repeat(700)).toString('base64') }]],
  ['bytes that are not UTF-8', [fileEntry('\u241bff'.repeat(150))]],
])('a writer counts the paths of %s', async (_, entries) => {
  const writer = new TreeWriter(join(folder, 'code'), 'code', new UploadTotals({ ...WIDE, pathBytes: 700 }));
  await expect(writer.append(entries, Buffer.alloc(0))).rejects.toMatchObject(TOO_LARGE);
  await writer.close();
  expect(readdirSync(join(folder, 'code')).length).toBeLessThan(3);
});

test.each<[string, () => void]>([
  ['folders', () => names(3).forEach((name) => mkdirSync(join(folder, name)))],
  ['files', () => names(3).forEach((name) => writeFileSync(join(folder, name), ''))],
  ['texts of links', () => symlinkSync('x'.repeat(700), join(folder, 'a'))],
])('the reader of a project counts the paths of %s, so that its person is told', async (_, make) => {
  make();
  const readAll = async (pathBytes: number) => {
    let items = 0;
    for await (const item of new ProjectReader(folder, { limits: { ...WIDE, pathBytes } }).items())
      items += item.path.length > 0 ? 1 : 0;
    return items;
  };
  await expect(readAll(700)).rejects.toMatchObject(TOO_LARGE);
  expect(await readAll(800)).toBeGreaterThan(0);
});
