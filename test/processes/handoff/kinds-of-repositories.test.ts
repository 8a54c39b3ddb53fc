import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { undoHandoff } from '../../../handoff/undo.ts';
import {
  failureOf,
  filesIn,
  handedOverSession,
  handOff,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';
import { soakCount } from '../../setup/run-length.ts';

const BEFORE = { 'a.txt': 'one\n', 'sub/b.txt': 'one\n' };
const AFTER = { 'a.txt': 'two\n', 'sub/b.txt': 'one\n', 'new.txt': 'new\n' };
const DELIVERED = { 'a.txt': 'file two\n', 'sub/b.txt': 'file one\n', 'new.txt': 'file new\n' };

async function prepared(more: Readonly<Record<string, string>> = {}) {
  const repository = new PersonsRepository();
  repository.commit({ 'a.txt': 'zero\n' }, 'an earlier one');
  const head = repository.commit({ ...BEFORE, ...more });
  const session = await handedOverSession({ ...BEFORE, ...more }, { ...AFTER, ...more }, { head });
  return { repository, head, ...session };
}

/** What a handoff must leave as it was. */
function stateOf(repository: PersonsRepository, folder = repository.folder): Record<string, unknown> {
  const git = (...command: string[]): string => repository.gitIn(folder, ...command);
  return {
    refs: git('for-each-ref'),
    worktrees: git('worktree', 'list', '--porcelain'),
    status: git('status', '--porcelain', '--ignored'),
    files: filesIn(folder),
  };
}

describe('a handoff into', () => {
  test('a shallow clone adds its commit, and pushes back into the whole repository', async () => {
    const { repository, head, connection } = await prepared();
    const clone = join(temporaryDirectory(), 'shallow');
    repository.git('clone', '-q', '--depth', '1', `file://${repository.folder}`, clone);
    expect(repository.gitIn(clone, 'rev-list', '--count', 'HEAD').trim()).toBe('1');
    const { branch, folder } = await handOff(connection, clone, { released: ['**'] });
    expect(filesIn(folder ?? '')).toEqual(DELIVERED);
    expect(repository.gitIn(clone, 'rev-parse', `${branch}^`).trim()).toBe(head);
    expect(repository.gitIn(clone, 'fsck', '--strict', '--no-dangling')).toBe('');
    repository.gitIn(clone, 'push', '-q', 'origin', branch ?? '');
    expect(repository.git('log', '--format=%s', branch ?? '')).toContain('an earlier one');
    await undoHandoff(await open(clone), { force: false });
    expect(existsSync(folder ?? '')).toBe(false);
  });

  test('a bare repository makes a branch or a worktree, and never a work tree of it', async () => {
    const { repository, head, connection } = await prepared();
    const bare = join(temporaryDirectory(), 'bare.git');
    repository.git('clone', '-q', '--bare', repository.folder, bare);
    const git = (...command: string[]): string => repository.gitIn(bare, ...command);
    const made = await handOff(connection, bare, { to: 'branch' });
    expect(git('rev-parse', `${made.branch}^`).trim()).toBe(head);
    expect(git('show', `${made.branch}:a.txt`)).toBe('two\n');
    const { folder, handoff } = await handOff(connection, bare);
    expect(filesIn(folder ?? '')).toEqual(DELIVERED);
    expect(await failureOf(handOff(connection, bare, { to: 'tree' }))).toMatch(/bare/);
    expect(git('fsck', '--strict', '--no-dangling')).toBe('');
    await undoHandoff(await open(bare), { force: false, handoff });
    expect(existsSync(folder ?? '')).toBe(false);
  });

  test('one with a submodule leaves the submodule as it is, and refuses files inside it', async () => {
    const module = new PersonsRepository();
    module.commit({ 'of-the-module': 'one\n' });
    const repository = new PersonsRepository();
    repository.commit(BEFORE);
    repository.git(
      '-c',
      'protocol.file.allow=always',
      'submodule',
      '--quiet',
      'add',
      '--',
      module.folder,
      'lib',
    );
    const head = repository.commit({});
    const link = repository.git('ls-tree', 'HEAD', 'lib');
    const { connection } = await handedOverSession(
      { ...BEFORE, 'lib/of-the-module': 'one\n' },
      { ...AFTER, 'lib/of-the-module': 'changed\n', 'lib/new': 'x\n' },
      { head },
    );
    const { plan, branch } = await handOff(connection, repository.folder);
    expect(plan.refused.map(({ path, why }) => [path, why])).toEqual([
      ['lib/new', 'it is in a submodule'],
      ['lib/of-the-module', 'it is in a submodule'],
    ]);
    expect(repository.git('ls-tree', branch ?? '', 'lib')).toBe(link);
    expect(repository.git('show', `${branch}:a.txt`)).toBe('two\n');
    const tree = await handOff(connection, repository.folder, { to: 'tree' });
    expect(tree.plan.refused).toHaveLength(2);
    expect(readFileSync(join(repository.folder, 'lib/of-the-module'), 'utf8')).toBe('one\n');
    expect(repository.gitIn(join(repository.folder, 'lib'), 'status', '--porcelain')).toBe('');
  });

  test('a worktree of the repository, while its branch is checked out elsewhere', async () => {
    const { repository, head, connection } = await prepared();
    const other = join(temporaryDirectory(), 'other');
    repository.git('worktree', 'add', '-q', '-b', 'topic', other);
    const was = stateOf(repository);
    expect(await failureOf(handOff(connection, other, { branch: 'main' }))).toMatch(/main exists already/);
    expect(await failureOf(handOff(connection, repository.folder, { branch: 'topic' }))).toMatch(
      /topic exists/,
    );
    expect(stateOf(repository)).toEqual(was);
    const { branch, folder } = await handOff(connection, other);
    expect(filesIn(folder ?? '')).toEqual(DELIVERED);
    expect(repository.git('rev-parse', `${branch}^`).trim()).toBe(head);
    expect(repository.gitIn(other, 'symbolic-ref', '--short', 'HEAD').trim()).toBe('topic');
    expect(repository.gitIn(other, 'status', '--porcelain')).toBe('');
    // The note of it is in the folder that all worktrees share.
    await undoHandoff(await open(repository.folder), { force: false });
    expect(stateOf(repository)).toEqual(was);
  });

  test('one with a detached HEAD, and one that was never committed to', async () => {
    const { repository, head, connection } = await prepared();
    repository.git('checkout', '-q', '--detach');
    const { folder } = await handOff(connection, repository.folder);
    expect(filesIn(folder ?? '')).toEqual(DELIVERED);
    expect(repository.git('rev-parse', 'HEAD').trim()).toBe(head);
    const empty = new PersonsRepository();
    expect(await failureOf(handOff(connection, empty.folder))).toContain(`no commit ${head}`);
    expect(await failureOf(handOff(connection, empty.folder, { to: 'tree' }))).not.toBe('');
    expect([filesIn(empty.folder), empty.git('for-each-ref')]).toEqual([{}, '']);
  });

  test('one whose index is locked: the work tree is refused, untouched, and a worktree is made', async () => {
    const { repository, connection } = await prepared();
    const lock = join(repository.folder, '.git/index.lock');
    writeFileSync(lock, '');
    const was = filesIn(repository.folder);
    expect(await failureOf(handOff(connection, repository.folder, { to: 'tree' }))).toMatch(/lock/);
    expect(filesIn(repository.folder)).toEqual(was);
    const { folder } = await handOff(connection, repository.folder);
    expect(filesIn(folder ?? '')).toEqual(DELIVERED);
    expect(existsSync(lock)).toBe(true);
    rmSync(lock);
    expect(repository.git('status', '--porcelain')).toBe('');
    expect((await handOff(connection, repository.folder, { to: 'tree' })).files).toBe(2);
  });

  test.each([
    ['SHA-256', /SHA-256/],
    ['a sparse checkout', /sparse checkout/],
    ['a partial clone', /partial clone/],
  ] as const)('one with %s is refused with a sentence, and changes nothing', async (kind, sentence) => {
    const { repository, connection } = await prepared();
    let { folder } = repository;
    switch (kind) {
      case 'SHA-256':
        folder = join(temporaryDirectory(), 'sha256');
        mkdirSync(folder);
        repository.gitIn(folder, 'init', '-q', '--object-format=sha256');
        break;
      case 'a sparse checkout':
        repository.git('sparse-checkout', 'set', 'sub');
        break;
      case 'a partial clone':
        repository.git('config', 'remote.origin.promisor', 'true');
        break;
    }
    const was = repository.gitIn(folder, 'for-each-ref');
    for (const to of ['worktree', 'branch', 'tree', 'patch'] as const)
      expect(await failureOf(handOff(connection, folder, { to }))).toMatch(sentence);
    expect(repository.gitIn(folder, 'for-each-ref')).toBe(was);
    const asBase = await failureOf(open(folder, { use: 'review' }));
    expect(asBase).toMatch(sentence);
    expect(asBase).not.toMatch(/hand/);
  });
});

test('outside a repository, and in the home of agents, the error says what works for what was asked', async () => {
  const outside = temporaryDirectory();
  expect(await failureOf(open(outside))).toContain('hand off with --to dir');
  expect(await failureOf(open(outside, { use: 'review' }))).toContain('use --base start');
  for (const [use, failed] of [
    ['handoff', 'The changes were not handed off'],
    ['review', 'The commit that is checked out cannot be the base'],
  ] as const)
    expect(await failureOf(open(outside, { use, home: outside }))).toContain(failed);
});

const FILES = soakCount(5000, 20_000);

test(`a commit of ${FILES / 20} files in ${FILES} takes seconds, and every target delivers the same tree`, async () => {
  const name = (n: number): string => `packages/p${n % 100}/src/d${n % 7}/file-${n}.ts`;
  const before = Object.fromEntries(
    Array.from({ length: FILES }, (_, n) => [name(n), `export const value = ${n};\n`.repeat(1 + (n % 20))]),
  );
  const after: Record<string, string> = { ...before };
  for (let n = 0; n < FILES; n += 20) {
    if (n % 200 === 0) Reflect.deleteProperty(after, name(n));
    else if (n % 60 === 0) after[`${name(n)}.new.ts`] = 'export {};\n';
    else after[name(n)] = `// changed\n${before[name(n)] ?? ''}`;
  }
  const repository = new PersonsRepository();
  const head = repository.commit(before);
  const { connection } = await handedOverSession(before, after, { head });
  const took: Record<string, number> = {};
  const timed = async (to: 'worktree' | 'branch' | 'patch') => {
    const begun = performance.now();
    const made = await handOff(connection, repository.folder, { to });
    took[to] = performance.now() - begun;
    return made;
  };
  const branch = await timed('branch');
  expect(branch.files).toBe(FILES / 20);
  const worktree = await timed('worktree');
  expect(worktree.tree).toBe(branch.tree);
  expect(Object.keys(filesIn(worktree.folder ?? '')).sort()).toEqual(Object.keys(after).sort());
  expect((await timed('patch')).tree).toBe(branch.tree);
  expect(repository.gitIn(worktree.folder ?? '', 'status', '--porcelain')).toBe('');
  // Three seconds on an idle machine: `npm run bench` compares with `git format-patch | git am`.
  expect(Math.max(...Object.values(took))).toBeLessThan(30_000);
  const begun = performance.now();
  await undoHandoff(await open(repository.folder), { force: false });
  expect(performance.now() - begun).toBeLessThan(30_000);
  // Here, because a hook has less time.
  rmSync(repository.folder, { recursive: true });
}, 180_000);

const ROOT = join(import.meta.dirname, '../../..');

test.skipIf(!existsSync(join(ROOT, '.git')))(
  'a real history gets one commit more, and is whole (needs the git history of this project)',
  { timeout: 120_000 },
  async () => {
    const clone = join(temporaryDirectory(), 'history');
    const repository = new PersonsRepository();
    repository.git('clone', '-q', '--no-local', ROOT, clone);
    const git = (...command: string[]): string => repository.gitIn(clone, ...command);
    const [head, count] = [git('rev-parse', 'HEAD').trim(), Number(git('rev-list', '--count', 'HEAD'))];
    const names = git('ls-files', 'docs', 'handoff').trim().split('\n');
    const before = Object.fromEntries(names.map((name) => [name, readFileSync(join(clone, name))]));
    const after = Object.fromEntries(
      names
        .slice(1)
        .map((name) => [name, Buffer.concat([Buffer.from('changed\n'), before[name] ?? Buffer.alloc(0)])]),
    );
    const { connection } = await handedOverSession(before, after, { head });
    const was = git('status', '--porcelain');
    const { branch, folder, files } = await handOff(connection, clone, { released: ['**'] });
    expect(files).toBe(names.length);
    expect(Number(git('rev-list', '--count', branch ?? ''))).toBe(count + 1);
    const changed = git('diff', '--name-status', '--no-renames', head, branch ?? '')
      .trim()
      .split('\n');
    expect(changed.sort()).toEqual(
      [`D\t${names[0] ?? ''}`, ...names.slice(1).map((name) => `M\t${name}`)].sort(),
    );
    expect(git('fsck', '--no-dangling')).toBe('');
    expect(git('status', '--porcelain')).toBe(was);
    await undoHandoff(await open(clone), { force: false });
    expect([existsSync(folder ?? ''), git('branch', '--list', branch ?? '')]).toEqual([false, '']);
  },
);
