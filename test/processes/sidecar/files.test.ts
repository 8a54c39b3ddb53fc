import { execFileSync } from 'node:child_process';
import {
  chmod,
  link,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  rm,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Directory } from '../../../sidecar/files/directory.ts';
import { hasReader, sendLine } from '../../../sidecar/files/fifo.ts';
import { clearWorkspace } from '../../../sidecar/workspace/clear.ts';
import { readWorkspaceFile } from '../../../sidecar/workspace/read.ts';
import { usageOf } from '../../../sidecar/workspace/usage.ts';
import { soakCount } from '../../setup/run-length.ts';

/** Deep enough that neither paths nor descriptors nor stacks would do it the plain way. */
const DEPTH = soakCount(1500, 10_000);

const SIDES = (2 * DEPTH) / 100;

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-files-'));
});
afterEach(() => {
  // Not by Node's rm: it takes one path and one call deeper for each level.
  execFileSync('chmod', ['-R', 'u+rwx', root]);
  execFileSync('rm', ['-rf', root]);
});

/** Folders inside folders, deeper than any path can be long. */
function nest(below: string, depth: number): void {
  let inner = '';
  // From the inside out, so that every path stays short.
  for (let level = 0; level < depth; level += 1) {
    const outer = join(below, `.level-${String(level)}`);
    mkdirSync(outer);
    writeFileSync(join(outer, 'file'), 'x');
    // On both sides of the way down, whichever comes first.
    if (level % 100 === 0)
      for (const side of ['a', 'z']) {
        mkdirSync(join(outer, side));
        writeFileSync(join(outer, side, 'file'), 'x');
      }
    if (inner !== '') renameSync(inner, join(outer, 'deeper'));
    inner = outer;
  }
  renameSync(inner, join(below, 'deep'));
}

/** Clears the root in a process that has no rights but its uid's; what it printed. */
function clearAs12345(): string {
  const module = JSON.stringify(join(import.meta.dirname, '../../../sidecar/workspace/clear.ts'));
  const program = `
    // Loaded with the test's own rights: the checkout may lie where no other user can read.
    const { clearWorkspace } = await import(${module});
    process.setgid(12345); process.setuid(12345);
    try { console.log(JSON.stringify(await clearWorkspace(${JSON.stringify(root)}, {}))); }
    catch (error) { console.error(error.code); process.exit(1); }`;
  return execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
    stdio: 'pipe',
  });
}

async function usage(path: string): ReturnType<typeof usageOf> {
  using directory = Directory.open(path);
  return await usageOf(directory);
}

test('usage counts sizes once for all names of a file, and never follows a link', async () => {
  await mkdir(join(root, 'a/b'), { recursive: true });
  await writeFile(join(root, 'a/one'), 'x'.repeat(1000));
  await link(join(root, 'a/one'), join(root, 'a/b/two'));
  await symlink('/usr', join(root, 'usr'));
  await writeFile(join(root, 'sparse'), '');
  await truncate(join(root, 'sparse'), 5_000_000);
  execFileSync('mkfifo', [join(root, 'fifo')]);
  writeFileSync(Buffer.concat([Buffer.from(`${root}/not-utf8-`), Buffer.from([0xff, 0xfe])]), 'yy');
  expect(await usage(root)).toEqual({ bytes: 1000 + 5_000_000 + 2, files: 6, directories: 2 });
});

test('usage reaches the bottom of very deep folders with a bounded number of descriptors', async () => {
  nest(root, DEPTH);
  expect(await usage(root)).toEqual({
    bytes: DEPTH + SIDES,
    files: DEPTH + SIDES,
    directories: DEPTH + SIDES,
  });
});

test('usage leaves time for others while it walks', async () => {
  let others = 0;
  const timer = setInterval(() => (others += 1), 1);
  // The largest tree that is there anyway: making one takes longer than the walk.
  const { files } = await usage(join(import.meta.dirname, '../../../node_modules'));
  clearInterval(timer);
  expect(files).toBeGreaterThan(5000);
  expect(others).toBeGreaterThan(1);
});

test('clear removes everything whatever its modes, names and depth, and nothing that a link points to', async () => {
  const outside = await mkdtemp(join(tmpdir(), 'holdfast-outside-'));
  await writeFile(join(outside, 'precious'), 'kept');
  await mkdir(join(root, 'closed/inner'), { recursive: true });
  await writeFile(join(root, 'closed/inner/file'), '12345');
  await symlink(outside, join(root, 'link-to-folder'));
  await symlink(join(outside, 'precious'), join(root, 'closed/link'));
  execFileSync('mkfifo', [join(root, 'fifo')]);
  mkdirSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xff])]));
  nest(root, DEPTH);
  await chmod(join(root, 'closed/inner'), 0o000);
  await chmod(join(root, 'closed'), 0o000);
  await chmod(root, 0o000);

  const seen: number[] = [];
  const removed = await clearWorkspace(root, { onProgress: ({ files }) => seen.push(files) });

  expect(removed).toEqual({ files: DEPTH + SIDES + 4, bytes: DEPTH + SIDES + 5 });
  expect(await readdir(root)).toEqual([]);
  expect((await lstat(root)).mode & 0o777).toBe(0o700);
  expect(await readdir(outside)).toEqual(['precious']);
  expect(seen.length).toBeGreaterThan(0);
  await rm(outside, { recursive: true });
});

test('clear as an ordinary user gets into folders whose modes deny their owner', async ({ skip }) => {
  skip(process.getuid?.() !== 0, 'only root can become another user');
  await mkdir(join(root, 'a/b'), { recursive: true });
  await writeFile(join(root, 'a/b/c'), 'x');
  execFileSync('chown', ['-R', '12345:12345', root]);
  await chmod(join(root, 'a/b'), 0o000);
  await chmod(join(root, 'a'), 0o500);
  await chmod(root, 0o500);
  const printed = clearAs12345();
  expect(JSON.parse(printed)).toEqual({ files: 1, bytes: 1 });
  expect(await readdir(root)).toEqual([]);
});

test('clear continues where an interrupted one ended', async () => {
  nest(root, 500);
  for (let file = 0; file < 6000; file += 1) writeFileSync(join(root, `f${String(file)}`), '');
  const interrupt = new AbortController();
  const first = clearWorkspace(root, { signal: interrupt.signal, onProgress: () => interrupt.abort() });
  await expect(first).rejects.toMatchObject({ name: 'AbortError' });
  expect((await readdir(root)).length).toBeGreaterThan(0);
  await clearWorkspace(root, {});
  expect(await readdir(root)).toEqual([]);
});

test('clear says so when something cannot be removed, and does not continue for ever', async ({ skip }) => {
  skip(process.getuid?.() !== 0, 'only root can make what another user cannot remove');
  await mkdir(join(root, 'mine/theirs'), { recursive: true });
  await writeFile(join(root, 'mine/theirs/file'), 'x');
  execFileSync('chown', ['12345:12345', root, join(root, 'mine')]);
  expect(() => clearAs12345()).toThrow(/directory_not_empty/);
  expect(await readdir(root)).not.toEqual([]);
});

test('clear ends although somebody keeps writing, and the next one has the rest', async () => {
  nest(root, 300);
  let count = 0;
  const writer = setInterval(() => {
    for (let at = 0; at < 20; at += 1) writeFileSync(join(root, `w${String(count++)}`), 'x');
  }, 1);
  setTimeout(() => clearInterval(writer), 200);
  // Once it finds the folder empty it is done, whatever comes later.
  await clearWorkspace(root, {});
  await new Promise((resolve) => setTimeout(resolve, 250));
  await clearWorkspace(root, {});
  expect(count).toBeGreaterThan(0);
  expect(await readdir(root)).toEqual([]);
});

test('a file is read by its path below /workspace, and nothing else is', async () => {
  await mkdir(join(root, 'src'));
  await writeFile(join(root, 'src/a.txt'), 'hello');
  await symlink('/etc', join(root, 'etc'));
  await symlink('/etc/passwd', join(root, 'passwd'));
  await writeFile(join(root, 'big'), '');
  await truncate(join(root, 'big'), 2 ** 40);
  execFileSync('mkfifo', [join(root, 'fifo')]);
  const code = (path: string): unknown => {
    try {
      return readWorkspaceFile(root, path).toString('utf8');
    } catch (error) {
      return (error as { code: unknown }).code;
    }
  };
  expect(code('/workspace/src/a.txt')).toBe('hello');
  expect(code('src//./a.txt')).toBe('hello');
  expect(code('missing')).toBe('file_not_found');
  expect(code('src')).toBe('file_is_a_directory');
  expect(code('')).toBe('file_is_a_directory');
  expect(code('src/a.txt/x')).toBe('file_not_a_directory');
  expect(code('fifo')).toBe('file_not_regular');
  expect(code('big')).toBe('file_too_large');
  expect(code('passwd')).toBe('file_not_regular');
  expect(code('etc/passwd')).toMatch(/^file_not/);
  expect(code('/etc/passwd')).toBe('permission_denied');
  expect(code('../../etc/passwd')).toBe('permission_denied');
  expect(code('/workspace/../etc/passwd')).toBe('permission_denied');
});

test('a line goes to a FIFO only when somebody reads it, and nothing else is ever opened for writing', async () => {
  using directory = Directory.open(root);
  expect(sendLine(directory, 'requests', 'hello')).toBe('nobody');
  execFileSync('mkfifo', [join(root, 'requests')]);
  expect(hasReader(directory, 'requests')).toBe(false);
  expect(sendLine(directory, 'requests', 'hello')).toBe('nobody');

  await writeFile(join(root, 'file'), 'unchanged');
  symlinkSync(join(root, 'file'), join(root, 'link'));
  for (const name of ['file', 'link', '.']) expect(sendLine(directory, name, 'hello')).toBe('nobody');
  rmSync(join(root, 'requests'));
  expect(await readdir(root)).toEqual(['file', 'link']);
  expect(execFileSync('cat', [join(root, 'file')], { encoding: 'utf8' })).toBe('unchanged');
});
