import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { allowedConfig, withoutCredentials } from '../../../project/git/allowed-config.ts';
import { parseGitConfig } from '../../../project/git/config.ts';
import { GitHistory } from '../../../project/git/history.ts';
import { portableIndex } from '../../../project/git/index-file.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';

let folder: string;
let project: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-git-')));
  project = join(folder, 'project');
  mkdirSync(project);
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const ENVIRONMENT = {
  PATH: process.env['PATH'],
  HOME: '/nonexistent',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_AUTHOR_NAME: 'A',
  GIT_AUTHOR_EMAIL: 'a@example.org',
  GIT_COMMITTER_NAME: 'A',
  GIT_COMMITTER_EMAIL: 'a@example.org',
};
const gitIn = (at: string, ...args: string[]): string =>
  execFileSync('git', args, {
    cwd: at,
    env: ENVIRONMENT,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
const git = (...args: string[]): string => gitIn(project, ...args);
const inGit = (name: string): string => join(project, '.git', name);

/** Two commits, a tag, a link, an executable file and a tracked file that workspaces do not start with. */
function createRepository(): void {
  git('init', '-q', '-b', 'main');
  writeFileSync(join(project, 'a.txt'), 'one\n');
  writeFileSync(join(project, 'empty'), '');
  writeFileSync(join(project, 'run.sh'), 'echo\n', { mode: 0o755 });
  writeFileSync(join(project, 'holdfast.yaml'), 'name: x\n');
  mkdirSync(join(project, 'sub'));
  writeFileSync(join(project, 'sub/ünï.txt'), 'deep\n');
  symlinkSync('a.txt', join(project, 'link'));
  git('add', '.');
  git('commit', '-q', '-m', 'first');
  git('tag', 'v1');
  git('branch', 'other');
  git('gc', '-q');
  writeFileSync(join(project, 'a.txt'), 'two\n');
  git('commit', '-q', '-a', '-m', 'second');
}

const isSeeded = (path: string): boolean => path !== 'holdfast.yaml';
const read = (from = project): Promise<GitHistory> =>
  GitHistory.read(from, { isSeeded, requireAllowed: async () => undefined });
const refused = (pattern: RegExp): object => {
  const why: unknown = expect.stringMatching(pattern);
  return { code: 'profile_invalid', why };
};

/** A work tree like a new workspace: the history and the project's files. */
async function workspace(from = project): Promise<string> {
  const target = join(folder, `workspace-${String(readdirSync(folder).length)}`);
  mkdirSync(target);
  for (const name of readdirSync(from))
    if (name !== '.git' && name !== 'holdfast.yaml')
      cpSync(join(from, name), join(target, name), { recursive: true, verbatimSymlinks: true });
  await (await read(from)).copyTo(join(target, '.git'));
  return target;
}

describe('a copied history', () => {
  test('is a repository of its own with the same commits, refs and status', async () => {
    createRepository();
    writeFileSync(join(project, 'staged'), 'staged\n');
    git('add', 'staged');
    writeFileSync(join(project, 'a.txt'), 'changed\n');
    writeFileSync(join(project, 'new'), 'new\n');
    const copy = await workspace();
    for (const args of [
      ['log', '--format=%H %s', '--all'],
      ['show-ref'],
      ['status', '--porcelain=v2', '--branch'],
      ['diff', 'HEAD'],
    ])
      expect(gitIn(copy, ...args), args.join(' ')).toBe(git(...args));
    expect(gitIn(copy, 'fsck', '--full', '--strict')).toBe('');
    gitIn(copy, 'gc', '-q', '--prune=now');
    // `commit -a` keeps the file that the workspace does not have.
    gitIn(copy, 'commit', '-q', '-a', '-m', 'third');
    expect(gitIn(copy, 'ls-tree', '--name-only', 'HEAD')).toContain('holdfast.yaml');
    expect(gitIn(copy, 'fsck', '--full', '--strict')).toBe('');
  });

  test('has no hooks, reflogs, merge state or keys', async () => {
    createRepository();
    for (const name of [
      'hooks/pre-commit',
      'FETCH_HEAD',
      'ORIG_HEAD',
      'MERGE_MSG',
      'lfs/x',
      'gc.pid',
      'index.lock',
      'rebase-merge/x',
      'credentials',
      'info/attributes',
      'refs/heads/x.lock',
      'objects/pack/tmp_pack_x',
      'objects/zz',
    ]) {
      mkdirSync(join(inGit(name), '..'), { recursive: true });
      writeFileSync(inGit(name), 'credential-canary');
    }
    writeFileSync(inGit('refs/stash'), git('rev-parse', 'HEAD'));
    appendFileSync(inGit('config'), '[http]\n\textraHeader = "Authorization: credential-canary"\n');
    const copy = await workspace();
    expect(readdirSync(join(copy, '.git')).sort()).toEqual(
      ['HEAD', 'config', 'index', 'info', 'objects', 'packed-refs', 'refs'].sort(),
    );
    expect(readdirSync(join(copy, '.git/info'))).toEqual(['exclude']);
    expect(() => execFileSync('grep', ['-r', 'credential-canary', copy])).toThrow();
    expect(readFileSync(join(copy, '.git/packed-refs'), 'utf8')).not.toContain('stash');
    expect(readFileSync(join(copy, '.git/index'), 'latin1')).not.toContain(folder);
  });

  test('has a hash that depends on the history, not on packs or file times', async () => {
    createRepository();
    const { hash } = await read();
    git('gc', '-q', '--prune=now');
    execFileSync('touch', ['-d', '2020-01-01', join(project, 'a.txt')]);
    git('update-index', '--refresh');
    expect((await read()).hash).toBe(hash);
    git('commit', '-q', '--allow-empty', '-m', 'third');
    expect((await read()).hash).not.toBe(hash);
  });

  test('of a linked work tree is that of its branch; a .git file without git’s own record is refused', async () => {
    createRepository();
    const linked = join(folder, 'linked');
    git('worktree', 'add', '-q', linked, 'other');
    const copy = await workspace(linked);
    expect(gitIn(copy, 'status', '--porcelain=v2', '--branch')).toBe(
      gitIn(linked, 'status', '--porcelain=v2', '--branch'),
    );
    expect(gitIn(copy, 'branch', '--show-current')).toBe('other\n');
    const thief = join(folder, 'thief');
    mkdirSync(thief);
    cpSync(join(linked, '.git'), join(thief, '.git'));
    await expect(read(thief)).rejects.toMatchObject(refused(/another work tree/));
    // Another repository of this machine, named by a file in the project.
    writeFileSync(join(thief, '.git'), `gitdir: ${join(project, '.git')}\n`);
    await expect(read(thief)).rejects.toMatchObject(refused(/does not name this folder/));
    // The same with a record of a linked work tree inside the project.
    const record = join(thief, 'record');
    mkdirSync(record);
    cpSync(join(project, '.git/HEAD'), join(record, 'HEAD'));
    writeFileSync(join(record, 'gitdir'), `${join(thief, '.git')}\n`);
    writeFileSync(join(record, 'commondir'), `${join(project, '.git')}\n`);
    writeFileSync(join(thief, '.git'), 'gitdir: record\n');
    await expect(read(thief)).rejects.toMatchObject(refused(/is not a work tree of/));
    for (const text of ['gitdir: /nowhere\n', 'something', 'gitdir: \n', 'x'.repeat(10_000)]) {
      writeFileSync(join(thief, '.git'), text);
      await expect(read(thief), text.slice(0, 20)).rejects.toMatchObject({ code: 'profile_invalid' });
    }
  });

  test('of an empty repository, a detached HEAD and a shallow clone', async () => {
    git('init', '-q', '-b', 'main');
    expect(gitIn(await workspace(), 'status', '--porcelain')).toBe('');
    createRepository();
    git('checkout', '-q', '--detach', 'v1');
    expect(gitIn(await workspace(), 'log', '--format=%s')).toBe('first\n');
    git('checkout', '-q', 'main');
    const shallow = join(folder, 'shallow');
    gitIn(folder, 'clone', '-q', '--depth=1', `file://${project}`, shallow);
    const copy = await workspace(shallow);
    expect(gitIn(copy, 'log', '--format=%s')).toBe('second\n');
    expect(gitIn(copy, 'fsck')).toBe('');
    // file:// names a folder of this machine.
    expect(gitIn(copy, 'remote')).toBe('');
  });

  test('stops at the limits and when the request is cancelled', async () => {
    createRepository();
    const history = await read();
    const at = (name: string): string => join(folder, name);
    await expect(history.copyTo(at('one'), { limits: { files: 9, bytes: 1e9 } })).rejects.toMatchObject(
      refused(/more than 9 files/),
    );
    const used = { files: 5, bytes: 1e9 };
    await expect(
      history.copyTo(at('two'), { limits: { files: 1000, bytes: 1e9 }, used }),
    ).rejects.toMatchObject(refused(/bytes/));
    await expect(history.copyTo(at('three'), { signal: AbortSignal.abort() })).rejects.toMatchObject({
      name: 'AbortError',
    });
  });
});

describe('what is refused, with what to do', () => {
  test.each(['start', './start', 'a/..b'])('the history with the folder %s only', (path) => {
    const profile = (seed: object): string =>
      JSON.stringify({ name: 'x', agent: { protocol: 'command', command: ['sh'] }, workspace: { seed } });
    expect(() => checkProfile(profile({ git: true, path }))).toThrow(
      expect.objectContaining({ code: 'profile_invalid' }),
    );
    expect(() => checkProfile(profile({ git: true, path: './' }))).not.toThrow();
    expect(() => checkProfile(profile({ path }))).not.toThrow();
    expect(() => checkProfile(profile({ path: '../x' }))).toThrow();
  });

  test('a folder inside of a repository, and no repository', async () => {
    createRepository();
    await expect(read(join(project, 'sub'))).rejects.toMatchObject({
      ...refused(/inside the repository/),
      next: expect.stringContaining(project) as unknown,
    });
    const plain = join(folder, 'plain');
    mkdirSync(plain);
    await expect(read(plain)).rejects.toMatchObject(refused(/no \.git folder/));
  });

  test.each([
    ['[core]\nrepositoryformatversion = 2', /version 2/],
    ['[extensions]\nobjectFormat = sha256', /objectformat/],
    ['[extensions]\nrefStorage = reftable', /refstorage/],
    ['[extensions]\nworktreeConfig', /worktreeconfig/],
    ['[extensions]\npartialClone = origin', /partialclone/],
    ['[extensions]\nconstructor = x', /constructor/],
    ['[remote "origin"]\npromisor = true', /partial clone/],
    ['[core\n', /line \d+ of the repository's config/],
    ['[core]\nx = "open', /config/],
    ['[core]\nx = \\q', /config/],
  ])('the config %j', async (text, why) => {
    createRepository();
    appendFileSync(inGit('config'), `\n${text}\n`);
    await expect(read()).rejects.toMatchObject(refused(why));
  });

  test('alternates, links and special files', async () => {
    createRepository();
    const other = join(folder, 'other');
    gitIn(folder, 'clone', '-q', '--shared', project, other);
    await expect(read(other)).rejects.toMatchObject(refused(/alternates/));

    for (const name of [
      'HEAD',
      'index',
      'config',
      'packed-refs',
      'objects',
      'objects/pack',
      'refs/heads',
      'refs/heads/main',
      'refs',
      'info',
    ]) {
      const moved = join(folder, 'moved');
      renameSync(inGit(name), moved);
      symlinkSync(moved, inGit(name));
      await expect(
        read().then((history) => history.copyTo(join(folder, 'x'))),
        name,
      ).rejects.toMatchObject(refused(/link/));
      rmSync(join(folder, 'x'), { recursive: true, force: true });
      rmSync(inGit(name));
      renameSync(moved, inGit(name));
    }
    rmSync(inGit('packed-refs'));
    execFileSync('mkfifo', [inGit('packed-refs')]);
    await expect(read()).rejects.toMatchObject(refused(/special file/));
    renameSync(join(project, '.git'), join(folder, 'real'));
    symlinkSync(join(folder, 'real'), join(project, '.git'));
    await expect(read()).rejects.toMatchObject({ code: 'profile_invalid' });
  });

  test('a damaged HEAD, ref or index', async () => {
    createRepository();
    const index = readFileSync(inGit('index'));
    for (const [name, text] of [
      ['HEAD', 'ref: ../../etc/passwd'],
      ['HEAD', ''],
      ['refs/heads/bad', 'secret of another file'],
      ['refs/heads/bad', 'ref: refs/heads/../../x'],
      ['packed-refs', 'secret of another file'],
      ['shallow', 'secret of another file'],
      ['index', 'DIRC'],
      ['index', index.subarray(0, index.length - 30)],
      ['index', Buffer.concat([index.subarray(0, 50), Buffer.from('x'), index.subarray(51)])],
    ] as const) {
      const before = existsSync(inGit(name)) ? readFileSync(inGit(name)) : null;
      writeFileSync(inGit(name), text);
      await expect(read(), `${name}: ${text.toString('latin1').slice(0, 30)}`).rejects.toMatchObject({
        code: 'profile_invalid',
      });
      if (before === null) rmSync(inGit(name));
      else writeFileSync(inGit(name), before);
    }
    await read();
  });
});

describe('the config of a workspace', () => {
  const configOf = (text: string): string => allowedConfig(parseGitConfig(text));

  test('has only values known to be harmless', () => {
    const hostile = `
[core] ; a comment
	filemode = false # and another
	hooksPath = /canary
	fsmonitor = canary
	sshCommand = canary
	ignoreCase
[include]
	path = canary
[includeIf "gitdir:/"]
	path = canary
[credential]
	helper = canary
[http]
	cookieFile = canary
	proxy = http://canary
	extraheader = canary
[http "https://example.org/"]
	extraheader = canary
[url "https://canary@example.org/"]
	insteadOf = https://example.org/
[remote "origin"]
	url = https://user:canary@example.org:8443/x/y.git?token=canary#canary
	pushurl = https://canary@example.org
	proxy = canary
	fetch = +refs/heads/*:refs/remotes/origin/*
	fetch = "+refs/heads/x:refs/remotes/x\\n[canary]"
	uploadpack = canary
[remote "ext"]
	url = ext::sh -c canary
[remote "bad\\"]\\n[canary]"]
	url = https://example.org/
[branch "main"]
	remote = origin
	merge = refs/heads/main
	description = canary
[branch "canary\\" quote"]
	remote = origin
	merge = refs/heads/main
[branch "elsewhere"]
	remote = https://canary@example.org
	merge = refs/heads/main
[alias]
	st = !canary
`;
    expect(configOf(hostile)).toBe(`[core]
	repositoryformatversion = 0
	filemode = false
	bare = false
	logallrefupdates = true
	ignorecase = true
[remote "origin"]
	url = "https://example.org:8443/x/y.git"
	fetch = "+refs/heads/*:refs/remotes/origin/*"
[branch "main"]
	remote = "origin"
	merge = "refs/heads/main"
`);
  });

  test('is parsed as git parses it', () => {
    const path = join(folder, 'config');
    const text =
      '[a]\n\tb = "x # y" ; z\n  c = one \\\n two  \n\td\n[A "Sub.\\"X\\\\"] e=\\t"  "f\n[a.Old]\r\ng = \r\n[x] y = a"b"c # no\n';
    writeFileSync(path, text);
    const listed = execFileSync('git', ['config', '--file', path, '--no-includes', '--list', '-z'], {
      encoding: 'utf8',
    });
    const own = parseGitConfig(text).map(({ section, subsection, key, value }) => {
      const name = [section, ...(subsection === null ? [] : [subsection]), key].join('.');
      return value === null ? name : `${name}\n${value}`;
    });
    expect(own).toEqual(listed.split('\0').slice(0, -1));
  });

  test.each([
    ['https://example.org/x.git', 'https://example.org/x.git'],
    ['https://token@example.org/x', 'https://example.org/x'],
    ['https://a:b@c:d@example.org/x', 'https://example.org/x'],
    ['ssh://git:secret@example.org:22/x', 'ssh://git@example.org:22/x'],
    ['ssh://secret@example.org/x', 'ssh://example.org/x'],
    ['git@github.com:a/b.git', 'git@github.com:a/b.git'],
    ['secret@example.org:a/b.git', 'example.org:a/b.git'],
    ['git://example.org/x', 'git://example.org/x'],
    ['http://example.org/x', null],
    ['file:///etc', null],
    ['/etc', null],
    ['../x', null],
    ['C:/x', null],
    ['ext::sh -c x', null],
    ['ext::sh', null],
    ['https://example.org\\@evil/x', null],
    ['https://example.org/x"\n[core]', null],
    ['--upload-pack=x:y', null],
    ['ssh://-oProxyCommand=x/y', null],
    ['', null],
  ])('the address %j becomes %j', (address, expected) => {
    expect(withoutCredentials(address)).toBe(expected);
  });
});

test('a small version-4 index that expands too far is refused, and so is a name that no file can have', () => {
  /** Each entry repeats the previous name and adds one byte. */
  const index = (first: number, entries: number): Buffer => {
    const header = Buffer.from('DIRC\0\0\0\u0004\0\0\0\0', 'latin1');
    header.writeUInt32BE(entries, 8);
    const fixed = Buffer.alloc(62);
    fixed.writeUInt32BE(0o100644, 24);
    const later = Buffer.concat([fixed, Buffer.from([0]), Buffer.from('x\0')]);
    const parts = [header, fixed, Buffer.from([0]), Buffer.from(`${'n'.repeat(first)}\0`)];
    for (let at = 1; at < entries; at += 1) parts.push(later);
    return Buffer.concat([...parts, Buffer.alloc(20)]);
  };
  expect(() => portableIndex(index(20_000, 2), () => true)).toThrow(
    expect.objectContaining({ code: 'profile_invalid' }),
  );
  expect(() => portableIndex(index(4000, 200), () => true)).toThrow(
    expect.objectContaining({ code: 'profile_invalid' }),
  );
  expect(portableIndex(index(4000, 3), () => true).length).toBeGreaterThan(12_000);
});

test.each([2, 3, 4])('an index of version %i loses the data of this machine', (version) => {
  createRepository();
  git('update-index', '--index-version', String(version));
  if (version === 3) {
    writeFileSync(join(project, 'later'), 'x');
    git('add', '-N', 'later');
  }
  const listed = git('ls-files', '--stage');
  writeFileSync(
    inGit('index'),
    portableIndex(readFileSync(inGit('index')), () => true),
  );
  expect(git('ls-files', '--stage')).toBe(listed);
  expect(git('ls-files', '--debug', 'a.txt')).toMatch(/mtime: 0:0[^]*ino: 0[^]*uid: 0[^]*size: 0/);
  expect(git('status', '--porcelain')).toBe(version === 3 ? ' A later\n' : '');
});
