import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ProjectEntry, ProjectTree } from '../../../protocol/deploy.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { type DeployConnection, Sender } from '../../../project/deploy.ts';
import { GitHistory } from '../../../project/git/history.ts';
import { readOrigin } from '../../../project/origin.ts';
import { ProjectReader } from '../../../project/read-project.ts';
import { TreeWriter, UploadTotals } from '../../../supervisor/profiles/tree-writer.ts';
import { Uploads } from '../../../supervisor/profiles/uploads.ts';
import { Home } from '../../../supervisor/store/home.ts';

let folder: string;
let home: Home;
let uploads: Uploads;
const owner = {};
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-uploads-'));
  home = Home.open(join(folder, 'home'));
  uploads = new Uploads(home);
});
afterEach(async () => {
  await uploads.close();
  rmSync(folder, { recursive: true, force: true });
});

const folderEntry = (path: string): ProjectEntry => ({ kind: 'folder', path });
const fileEntry = (path: string, size = 0): ProjectEntry => ({ kind: 'file', path, size, executable: false });
const linkEntry = (path: string, target: string): ProjectEntry => ({
  kind: 'link',
  path,
  target: Buffer.from(target).toString('base64'),
});

describe('an upload by a hostile client', () => {
  test.each<[string, readonly ProjectEntry[], string?]>([
    ['a path out of the tree', [fileEntry('../x')]],
    ['a path with a dot', [fileEntry('./x')]],
    ['an absolute path', [fileEntry('/etc/x')]],
    ['a name with NUL', [fileEntry('a\0b')]],
    ['a name that is too long', [fileEntry('x'.repeat(256))]],
    ['a folder that was not sent', [fileEntry('a/b')]],
    ['a file as a folder', [fileEntry('a'), fileEntry('a/b')]],
    ['a link as a folder', [folderEntry('d'), linkEntry('a', 'd'), fileEntry('a/b')]],
    ['one path twice', [fileEntry('a'), fileEntry('a')]],
    ['a file over a link', [linkEntry('a', 'b'), fileEntry('a')]],
    ['git data in the code', [folderEntry('.git')]],
    ['a nested repository', [folderEntry('a'), folderEntry('a/.git')]],
    ['a link out of the tree', [linkEntry('a', '../x')]],
    ['an absolute link', [linkEntry('a', '/etc/passwd')]],
    ['holdfast.yaml as a link', [linkEntry('holdfast.yaml', 'x')]],
    ['more bytes than its files', [fileEntry('a', 1)], 'xy'],
    ['an entry before a file is complete', [fileEntry('a', 9), fileEntry('b')], 'x'],
    [
      'a link that leaves through another one',
      [folderEntry('d'), folderEntry('d/e'), linkEntry('d/e/up', '..'), linkEntry('out', 'd/e/up/../../..')],
    ],
  ])('is refused: %s', async (_, entries, bytes = '') => {
    const upload = await uploads.begin('/project', owner);
    const sent = (async () => {
      await uploads.append(upload, owner, 'code', entries, Buffer.from(bytes));
      return await uploads.finish(upload, owner);
    })();
    await expect(sent).rejects.toMatchObject({
      code: expect.stringMatching(/^(invalid_params|profile_invalid)$/) as string,
    });
    expect(readdirSync(home.uploads)).toEqual([]);
  });

  test('is refused if a file is not complete at the end', async () => {
    const upload = await uploads.begin('/project', owner);
    await uploads.append(upload, owner, 'code', [fileEntry('a', 5)], Buffer.from('1234'));
    await expect(uploads.finish(upload, owner)).rejects.toMatchObject({ code: 'invalid_params' });
    expect(readdirSync(home.uploads)).toEqual([]);
  });

  test('ends at the limits of files and bytes, of both trees together', async () => {
    const totals = new UploadTotals({ files: 2, bytes: 10 });
    const code = new TreeWriter(join(folder, 'code'), 'code', totals);
    const history = new TreeWriter(join(folder, 'history'), 'history', totals);
    await code.append([fileEntry('a', 6)], Buffer.from('123456'));
    await expect(history.append([fileEntry('b', 5)], Buffer.alloc(5))).rejects.toMatchObject({
      why: expect.stringContaining('10 bytes') as string,
    });
    await history.close();
    await expect(code.append([fileEntry('c'), fileEntry('d')], Buffer.alloc(0))).rejects.toMatchObject({
      code: 'profile_invalid',
    });
  });

  test('cannot use the upload of another connection', async () => {
    const upload = await uploads.begin('/project', owner);
    const stranger = {};
    await expect(uploads.append(upload, stranger, 'code', [], Buffer.alloc(0))).rejects.toMatchObject({
      code: 'interrupted',
    });
    await uploads.abort(upload, stranger);
    expect(readdirSync(home.uploads)).toEqual([upload]);
    await uploads.abort(upload, owner);
    expect(readdirSync(home.uploads)).toEqual([]);
  });

  test('cannot begin any number of uploads', async () => {
    const begun = [];
    for (let count = 0; count < 16; count += 1) begun.push(await uploads.begin('/project', owner));
    await expect(uploads.begin('/project', owner)).rejects.toMatchObject({ code: 'overloaded' });
    await uploads.abort(begun[0] ?? '', owner);
    await expect(uploads.begin('/project', owner)).resolves.toBeTypeOf('string');
  });
});

test('folders of an earlier supervisor are removed, those of this one stay', async () => {
  const upload = await uploads.begin('/project', owner);
  mkdirSync(join(home.uploads, 'left/code'), { recursive: true });
  await uploads.removeLeftovers();
  expect(readdirSync(home.uploads)).toEqual([upload]);
});

describe('a project that is sent', () => {
  let project: string;
  const git = (...command: string[]) =>
    execFileSync('git', ['-c', 'user.name=n', '-c', 'user.email=e@x', ...command], {
      cwd: project,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  beforeEach(() => {
    project = join(folder, 'project');
    mkdirSync(join(project, 'sub'), { recursive: true });
    writeFileSync(join(project, 'holdfast.yaml'), 'name: x\n');
    writeFileSync(join(project, 'sub/run.sh'), 'echo 1\n', { mode: 0o755 });
    writeFileSync(join(project, 'large'), Buffer.alloc(3 * 2 ** 20 + 7, 'ab'));
  });

  async function send(tree: ProjectTree, upload: string, items: Parameters<Sender['send']>[1]) {
    const tracked = tree === 'code' ? await readOrigin(project) : null;
    const call = async (
      _method: string,
      params: { tree: ProjectTree; entries: ProjectEntry[] },
      { bytes }: { bytes: Buffer },
    ) => uploads.append(upload, owner, params.tree, params.entries, bytes);
    await new Sender({ call } as unknown as DeployConnection, upload, {}).send(tree, items, tracked);
    return tracked;
  }

  test('arrives byte for byte, also if its folder is gone before the end', async () => {
    const upload = await uploads.begin(project, owner);
    await send('code', upload, new ProjectReader(project).items());
    const large = readFileSync(join(project, 'large'));
    rmSync(project, { recursive: true });
    const { code, codeFolder, discard } = await uploads.finish(upload, owner);
    expect(code).toMatchObject({ files: 3, bytes: large.length + 15 });
    expect(readFileSync(join(codeFolder, 'large')).equals(large)).toBe(true);
    expect(statSync(join(codeFolder, 'sub/run.sh')).mode & 0o777).toBe(0o755);
    expect([code.hasFile('./sub/run.sh'), code.hasFile('sub')]).toEqual([true, false]);
    await discard();
    expect(existsSync(codeFolder)).toBe(false);
  });

  test.each<[string, (path: string) => void]>([
    ['grows', (path) => writeFileSync(path, 'longer than before')],
    ['shrinks', (path) => writeFileSync(path, '')],
  ])('is refused if a file %s while it is read', async (_, change) => {
    const reading = (async () => {
      for await (const item of new ProjectReader(project).items()) {
        if (item.kind !== 'file') continue;
        change(join(project, item.path));
        for await (const chunk of item.content()) expect(chunk.length).toBeGreaterThan(0);
      }
    })();
    await expect(reading).rejects.toMatchObject({ code: 'conflict' });
  });

  test('says where it comes from, and which of its files git tracks', async () => {
    git('init', '-q', '-b', 'main');
    git('remote', 'add', 'origin', 'https://me:secret@example.com/x.git');
    git('add', 'holdfast.yaml', 'large');
    git('commit', '-q', '-m', 'first');
    const head = git('rev-parse', 'HEAD');
    writeFileSync(join(project, 'large'), 'other');
    const upload = await uploads.begin(project, owner);
    const tracked = await send('code', upload, new ProjectReader(project).items());
    expect(tracked?.origin).toEqual({
      root: project,
      prefix: '',
      head,
      branch: 'main',
      remote: 'https://example.com/x.git',
    });
    const { code, discard } = await uploads.finish(upload, owner);
    expect(code.sources).toEqual([
      {
        path: 'holdfast.yaml',
        blob: git('hash-object', 'holdfast.yaml'),
        head: git('rev-parse', 'HEAD:holdfast.yaml'),
      },
      { path: 'large', blob: git('hash-object', 'large'), head: git('rev-parse', 'HEAD:large') },
      { path: 'sub/run.sh', blob: git('hash-object', 'sub/run.sh'), head: null },
    ]);
    expect(code.sources[0]?.blob).toBe(code.sources[0]?.head);
    expect(code.sources[1]?.blob).not.toBe(code.sources[1]?.head);
    await discard();
  });

  test('has no origin without git; its programs are never run', async () => {
    expect(await readOrigin(project)).toBeNull();
    git('init', '-q');
    const trap = join(folder, 'trap');
    writeFileSync(trap, `#!/bin/sh\ntouch ${folder}/ran\n`, { mode: 0o755 });
    for (const key of ['core.fsmonitor', 'core.pager', 'core.editor', 'filter.x.clean', 'filter.x.process'])
      git('config', key, trap);
    writeFileSync(join(project, '.gitattributes'), '* filter=x\n');
    expect(await readOrigin(project)).toMatchObject({ origin: { head: null, remote: null } });
    expect(existsSync(join(folder, 'ran'))).toBe(false);
  });

  test('has the same git history at both ends', async () => {
    git('init', '-q', '-b', 'main');
    git('add', '.');
    git('commit', '-q', '-m', 'first');
    git('tag', 'v1');
    const read = (from: string) =>
      GitHistory.read(from, { isSeeded: () => true, requireAllowed: async () => undefined });
    const history = await read(project);
    const upload = await uploads.begin(project, owner);
    await send('code', upload, new ProjectReader(project).items());
    await send('history', upload, history.items());
    const { historyFolder, discard } = await uploads.finish(upload, owner);
    const received = await GitHistory.readUploaded(historyFolder ?? '', { isSeeded: () => true });
    expect(received.hash).toBe(history.hash);
    const target = join(folder, 'target.git');
    await received.copyTo(target);
    expect(execFileSync('git', ['--git-dir', target, 'rev-parse', 'v1'], { encoding: 'utf8' }).trim()).toBe(
      git('rev-parse', 'HEAD'),
    );
    expect(execFileSync('git', ['--git-dir', target, 'fsck'], { encoding: 'utf8' })).not.toContain('missing');
    await discard();
  });

  test('may not be in the home, where agents write', async () => {
    const inside = join(home.workspaces, 'ses-aaaaaaaaaaaaaaaa');
    mkdirSync(inside);
    const { requireOutsideHome } = await import('../../../project/outside-home.ts');
    await expect(requireOutsideHome(home.root, inside)).rejects.toBeInstanceOf(HoldfastError);
    await expect(requireOutsideHome(join(folder, 'no-home'), project)).resolves.toBe(project);
  });
});
