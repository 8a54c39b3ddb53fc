import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ProjectEntry } from '../../../protocol/deploy.ts';
import { IgnoredEntries } from '../../../project/ignored-entries.ts';
import { type DeployConnection, Sender } from '../../../project/deploy.ts';
import { ProjectReader, type ReadProjectOptions } from '../../../project/read-project.ts';
import { TreeWriter, UploadTotals } from '../../../supervisor/profiles/tree-writer.ts';

let folder: string;
let source: string;
let target: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-copy-'));
  source = join(folder, 'project');
  target = join(folder, 'copy');
  mkdirSync(source);
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

function write(files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(source, name)), { recursive: true });
    writeFileSync(join(source, name), text);
  }
}
/** Reads the project and writes it to `target`, as a client and a supervisor do together. */
async function copy(options: ReadProjectOptions = {}) {
  const writer = new TreeWriter(target, 'code', new UploadTotals());
  const append = async (_method: string, params: { entries: ProjectEntry[] }, { bytes }: { bytes: Buffer }) =>
    writer.append(params.entries, bytes);
  const reader = new ProjectReader(source, options);
  try {
    const sender = new Sender({ call: append } as unknown as DeployConnection, 'upload', {});
    await sender.send('code', reader.items(), null);
    return { ...(await writer.finish()), ignored: await reader.measureIgnored() };
  } finally {
    await writer.close();
  }
}
const copied = () => readdirSync(target, { recursive: true, encoding: 'utf8' }).sort();
const mode = (name: string) => (statSync(join(target, name)).mode & 0o7777).toString(8);

test('ignored files are measured, the largest first, within a time limit', async () => {
  write({
    '.gitignore': 'out\n*.log\nlink\nclosed\n',
    '.git/objects/pack/large': 'x'.repeat(9000),
    'out/a/b': 'x'.repeat(2000),
    'out/c': 'x'.repeat(500),
    'small.log': 'x',
    'src/large.log': 'x'.repeat(4000),
    'src/main': 'kept',
  });
  symlinkSync('/', join(source, 'link'));
  const { files, ignored } = await copy();
  expect(files).toBe(2);
  const link = { path: 'link', files: 1, bytes: 0 };
  expect(ignored).toEqual({
    files: 5,
    bytes: 6501,
    complete: true,
    largest: [
      { path: 'src/large.log', files: 1, bytes: 4000 },
      { path: 'out', files: 2, bytes: 2500 },
      { path: 'small.log', files: 1, bytes: 1 },
      link,
    ],
  });

  const entries = new IgnoredEntries();
  entries.add('out', Buffer.from(join(source, 'out')));
  expect(await entries.measure(undefined, { entries: 2, ms: 60_000 })).toMatchObject({ complete: false });
  expect(await entries.measure(undefined, { entries: 4, ms: 60_000 })).toMatchObject({
    complete: true,
    files: 2,
  });
  expect(await entries.measure(undefined, { entries: 100, ms: 0 })).toMatchObject({ complete: false });
});

describe('what is copied', () => {
  test('files, folders and executable bits, readable by everybody whatever the umask and the source’s modes', async () => {
    write({ 'holdfast.yaml': 'x', 'bin/run': '#!/bin/sh', 'data/private': 'p', 'data/empty/.keep': '' });
    chmodSync(join(source, 'bin/run'), 0o4710);
    chmodSync(join(source, 'data/private'), 0o600);
    chmodSync(join(source, 'data'), 0o700);
    const before = process.umask(0o077);
    const result = await copy().finally(() => process.umask(before));
    expect(result).toMatchObject({ files: 4, bytes: 11 });
    expect(['.', 'bin', 'data', 'bin/run', 'data/private', 'holdfast.yaml'].map(mode)).toEqual([
      '755',
      '755',
      '755',
      '755',
      '644',
      '644',
    ]);
    expect(readFileSync(join(target, 'data/private'), 'utf8')).toBe('p');
    expect(result.hasFile('./bin/run')).toBe(true);
    expect(result.hasFile('bin')).toBe(false);
  });

  test('names that are not UTF-8, with spaces and newlines, stay what they are', async () => {
    const name = Buffer.concat([Buffer.from(`${source}/caf`), Buffer.from([0xe9, 0x20, 0x0a])]);
    writeFileSync(name, 'latin');
    await copy();
    const names = readdirSync(target, { encoding: 'buffer' });
    expect(names.map((one) => one.toString('hex'))).toEqual(['636166e9200a']);
  });

  test('hard links and large files become separate files', async () => {
    write({ a: 'same' });
    linkSync(join(source, 'a'), join(source, 'b'));
    writeFileSync(join(source, 'large'), Buffer.alloc(3 * 2 ** 20, 7));
    expect(await copy()).toMatchObject({ files: 3, bytes: 3 * 2 ** 20 + 8 });
    expect(statSync(join(target, 'a')).nlink).toBe(1);
    expect(readFileSync(join(target, 'large')).equals(Buffer.alloc(3 * 2 ** 20, 7))).toBe(true);
  });
});

describe('ignored files', () => {
  test('follow git: patterns, folders, exceptions, nested files; .holdfastignore takes precedence', async () => {
    write({
      '.git/config': '',
      'sub/.git': 'gitdir: elsewhere',
      '.gitignore': '*.log\nbuild/\n/root-only\n!keep.log\ndist\n',
      'a.log': '',
      'keep.log': '',
      'build/out': '',
      'root-only': '',
      'sub/root-only': '',
      'sub/.gitignore': '!special.log\nlocal\n',
      'sub/special.log': '',
      'sub/other.log': '',
      'sub/local': '',
      local: '',
      '.holdfastignore': 'secret*\n!dist\n',
      'secret.txt': '',
      'dist/bundle.js': '',
      'BUILD/x': '',
      'node_modules/dep/index.js': '',
    });
    await copy();
    expect(copied()).toEqual(
      [
        '.gitignore',
        '.holdfastignore',
        'BUILD',
        'BUILD/x',
        'dist',
        'dist/bundle.js',
        'keep.log',
        'local',
        'node_modules',
        'node_modules/dep',
        'node_modules/dep/index.js',
        'sub',
        'sub/.gitignore',
        'sub/root-only',
        'sub/special.log',
      ].sort(),
    );
  });

  test('never include holdfast.yaml', async () => {
    write({ 'holdfast.yaml': 'x', 'agent.py': '', '.gitignore': '*\n' });
    const result = await copy();
    expect(copied()).toEqual(['holdfast.yaml']);
    expect(result.hasFile('agent.py')).toBe(false);
  });

  test('include the home of the installation, also under another path', async () => {
    write({ 'a.py': '', 'state/holdfast.db': '', 'state/supervisor.lock': '' });
    await copy({ excludedFolder: join(source, 'state') });
    expect(copied()).toEqual(['a.py']);
  });
});

describe('links', () => {
  test('inside the project are copied as they are', async () => {
    write({ 'data/a': 'x', 'deep/er/b': '' });
    symlinkSync('../data/a', join(source, 'deep/link'));
    symlinkSync('.', join(source, 'here'));
    symlinkSync('nowhere-yet', join(source, 'dangling'));
    await copy();
    expect(readlinkSync(join(target, 'deep/link'))).toBe('../data/a');
    expect(readlinkSync(join(target, 'dangling'))).toBe('nowhere-yet');
    expect(readFileSync(join(target, 'deep/link'), 'utf8')).toBe('x');
  });

  test.each([
    ['by an absolute path', '/etc/passwd'],
    ['by its words', '../../etc/passwd'],
    ['by its words, at the end', 'a/../../project-other'],
  ])('that leave the project %s are refused with their path', async (_, to) => {
    symlinkSync(to, join(source, 'way-out'));
    await expect(copy()).rejects.toMatchObject({ code: 'profile_invalid', details: { path: 'way-out' } });
  });

  test('that leave the project through another link are refused', async () => {
    mkdirSync(join(source, 'a/b'), { recursive: true });
    symlinkSync('../..', join(source, 'a/b/up'));
    writeFileSync(join(folder, 'outside'), 'host');
    symlinkSync('a/b/up/../outside', join(source, 'way-out'));
    await expect(copy()).rejects.toMatchObject({ code: 'profile_invalid', details: { path: 'way-out' } });
  });

  test('that leave the project may be ignored instead', async () => {
    write({ '.holdfastignore': 'way-out\n', a: '' });
    symlinkSync('/etc', join(source, 'way-out'));
    await copy();
    expect(existsSync(join(target, 'way-out'))).toBe(false);
  });
});

describe('what is refused', () => {
  test('a named pipe, without blocking', async () => {
    execFileSync('mkfifo', [join(source, 'pipe')]);
    await expect(copy()).rejects.toMatchObject({
      code: 'profile_invalid',
      why: 'it is a named pipe',
      details: { path: 'pipe' },
    });
  });

  test('a socket', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(source, 's'), resolve));
    await expect(copy()).rejects.toMatchObject({ why: 'it is a socket' });
    server.close();
  });

  test('more files or bytes than allowed, naming the first that is too many', async () => {
    write({ a: '1', b: '22', c: '333' });
    await expect(copy({ limits: { files: 2, bytes: 100 } })).rejects.toMatchObject({
      details: { path: 'c' },
      why: /more than 2 files/,
    });
    rmSync(target, { recursive: true, force: true });
    await expect(copy({ limits: { files: 9, bytes: 4 } })).rejects.toMatchObject({
      details: { path: 'c' },
      why: /more than 4 bytes/,
    });
  });

  test('a folder that is nested too deeply', async () => {
    mkdirSync(join(source, 'd/'.repeat(220)), { recursive: true });
    await expect(copy()).rejects.toMatchObject({ code: 'profile_invalid', why: /folders deep/ });
  });

  test('a copy that is cancelled', async () => {
    write({ a: '' });
    const reason = new Error('enough');
    await expect(copy({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });
});

describe('the hash', () => {
  const hashOf = async () => {
    rmSync(target, { recursive: true, force: true });
    return (await copy()).hash;
  };

  test('depends only on paths, kinds, executable bits and contents', async () => {
    write({ 'a/x': 'one', b: 'two' });
    const first = await hashOf();
    chmodSync(join(source, 'b'), 0o600);
    execFileSync('touch', ['-d', '2001-01-01', join(source, 'b')]);
    expect(await hashOf()).toBe(first);
    const seen = new Set([first]);
    const changes = [
      () => chmodSync(join(source, 'b'), 0o755),
      () => write({ b: 'twO' }),
      () => write({ c: '' }),
      () => symlinkSync('b', join(source, 'l')),
      () => {
        rmSync(join(source, 'l'));
        symlinkSync('c', join(source, 'l'));
      },
      () => {
        rmSync(join(source, 'c'));
        write({ 'a/c': '' });
      },
    ];
    for (const change of changes) {
      change();
      const hash = await hashOf();
      expect(seen.has(hash)).toBe(false);
      seen.add(hash);
    }
  });
});
