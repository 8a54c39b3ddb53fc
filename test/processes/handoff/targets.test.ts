import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Journals } from '../../../handoff/journal.ts';
import { undoHandoff } from '../../../handoff/undo.ts';
import {
  failureOf,
  type Files,
  filesIn,
  handedOverSession,
  handOff,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';

const BEFORE: Files = {
  'a.txt': 'one\ntwo\nthree\n',
  'binary.bin': Buffer.from([0, 1, 2, 0xff, 0x0a, 0x0d]),
  'gone.txt': 'gone\n',
  'crlf.txt': 'one\r\ntwo\r\n',
  'no-end.txt': 'no newline',
  'moved.txt': 'the same content\n'.repeat(20),
  'sub/run.sh': { run: 'echo 1\n' },
  'sub/kept.txt': 'kept\n',
  'to-folder': 'a file\n',
  link: { link: 'a.txt' },
};
const AFTER: Files = {
  'a.txt': 'one\n2\nthree\n',
  'binary.bin': Buffer.from([0, 1, 3, 0xff, 0x0a, 0x0d, 0]),
  'crlf.txt': 'one\r\n2\r\n',
  'no-end.txt': 'still no newline',
  'elsewhere/moved.txt': 'the same content\n'.repeat(20),
  'sub/run.sh': { run: 'echo 2\n' },
  'sub/kept.txt': 'kept\n',
  'to-folder/file': 'in a folder\n',
  'not-utf8-\xff\xfe': 'bytes\n',
  'new/q"uo\\te\n.txt': 'odd name\n',
  empty: '',
  link: { link: 'sub/kept.txt' },
};
const EXPECTED = Object.fromEntries(
  Object.entries(AFTER).map(([path, content]) => [
    path,
    typeof content === 'string' || Buffer.isBuffer(content)
      ? `file ${content.toString('latin1')}`
      : 'link' in content
        ? `link ${content.link}`
        : `run ${content.run}`,
  ]),
);

async function prepared() {
  const repository = new PersonsRepository();
  const head = repository.commit(BEFORE);
  const session = await handedOverSession(BEFORE, AFTER, { head });
  return { repository, head, ...session };
}

test('worktree, branch, patch and folder deliver the same files, byte for byte, and leave the work tree alone', async () => {
  const { repository, head, connection, types, made } = await prepared();
  repository.write({ 'a.txt': 'my own edit\n' });
  const status = repository.git('status', '--porcelain');

  const worktree = await handOff(connection, repository.folder);
  expect(filesIn(worktree.folder ?? '')).toEqual(EXPECTED);
  expect(repository.gitIn(worktree.folder ?? '', 'status', '--porcelain')).toBe('');
  expect(repository.git('rev-parse', `${worktree.branch}^`).trim()).toBe(head);
  const message = repository.git('log', '-1', '--format=%an %ae%n%B', worktree.branch ?? '');
  expect(message).toMatch(
    /^A Person person@example.org\nChanges of session work\n\nHoldfast-Session: ses-\w+\nHoldfast-Manifest: man-\w+\n/,
  );

  const branch = await handOff(connection, repository.folder, { to: 'branch' });
  expect([branch.branch, branch.tree]).toEqual(['holdfast/work-2', worktree.tree]);

  const patch = await handOff(connection, repository.folder, { to: 'patch' });
  const clone = new PersonsRepository();
  clone.git('fetch', '-q', repository.folder, 'main');
  clone.git('reset', '-q', '--hard', 'FETCH_HEAD');
  writeFileSync(join(clone.folder, '../patch'), patch.patch ?? '');
  clone.git('am', '-q', '--keep-cr', join(clone.folder, '../patch'));
  expect(clone.git('rev-parse', 'HEAD^{tree}').trim()).toBe(worktree.tree);
  expect(repository.git('cat-file', '-t', worktree.tree ?? '').trim()).toBe('tree');

  const folder = await handOff(connection, repository.folder, {
    to: 'dir',
    folder: join(repository.folder, '../delivered'),
  });
  const { 'sub/kept.txt': _unchanged, ...changed } = EXPECTED;
  expect(filesIn(folder.folder ?? '')).toEqual(changed);
  expect([...folder.deleted].sort()).toEqual(['gone.txt', 'moved.txt', 'to-folder']);

  expect(repository.git('status', '--porcelain')).toBe(status);
  expect(repository.git('fsck', '--strict', '--no-dangling')).toBe('');
  expect(repository.git('for-each-ref', '--format=%(refname)').trim().split('\n')).toEqual([
    'refs/heads/holdfast/work',
    'refs/heads/holdfast/work-2',
    'refs/heads/main',
  ]);
  expect(types().filter((type) => type === 'handoff.approved')).toHaveLength(4);
  expect(made).toHaveLength(4);
});

test('undo removes the worktree and its branch, and nothing that was added since', async () => {
  const { repository, connection } = await prepared();
  const before = repository.git('for-each-ref');
  const first = await handOff(connection, repository.folder);
  await undoHandoff(await open(repository.folder), { force: false });
  expect(repository.git('for-each-ref')).toBe(before);
  expect(repository.git('worktree', 'list').trim().split('\n')).toHaveLength(1);
  expect(() => filesIn(first.folder ?? '')).toThrow('ENOENT');

  const second = await handOff(connection, repository.folder);
  repository.write({ 'mine/new.txt': 'my work' }, second.folder ?? '');
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: false }))).toMatch(
    /mine\/new.txt/,
  );
  expect(filesIn(second.folder ?? '')).toEqual({ ...EXPECTED, 'mine/new.txt': 'file my work' });
  const { keptRef } = await undoHandoff(await open(repository.folder), { force: true });
  expect(repository.git('show', `${keptRef}:mine/new.txt`)).toBe('my work');
  expect(repository.git('branch', '--list', 'holdfast/*')).toBe('');

  const third = await handOff(connection, repository.folder);
  repository.gitIn(third.folder ?? '', 'commit', '-q', '--allow-empty', '-m', 'on top');
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: false }))).toContain(
    'commits that were added',
  );
});

test('an ignored file in the worktree is work, too', async () => {
  const repository = new PersonsRepository();
  const head = repository.commit({ '.gitignore': 'build\n', a: '1' });
  const { connection } = await handedOverSession(
    { '.gitignore': 'build\n', a: '1' },
    { '.gitignore': 'build\n', a: '2' },
    { head },
  );
  const { folder } = await handOff(connection, repository.folder);
  repository.write({ 'build/result': 'an hour of computing' }, folder ?? '');
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: false }))).toContain('build');
  expect(filesIn(folder ?? '')['build/result']).toBe('file an hour of computing');
});

test('the work tree gets the changes, merged with what is there, and gets back what was there', async () => {
  const before = {
    'a.txt': '1\n2\n3\n4\n5\n',
    'b.txt': 'b\n',
    'gone.txt': 'gone\n',
    'run.sh': { run: 'x\n' },
  };
  const repository = new PersonsRepository();
  const head = repository.commit(before);
  const after = {
    'a.txt': '1\n2\n3\n4\nfive\n',
    'b.txt': 'b\n',
    'new/deep/c.txt': 'c\n',
    'run.sh': { run: 'y\n' },
  };
  const { connection, types } = await handedOverSession(before, after, { head });
  repository.write({ 'a.txt': 'one\n2\n3\n4\n5\n', 'b.txt': 'mine\n', 'untracked.txt': 'mine\n' });
  const index = repository.git('ls-files', '--stage');
  const was = filesIn(repository.folder);

  const result = await handOff(connection, repository.folder, { to: 'tree' });
  expect(result.merged).toEqual(['a.txt']);
  expect(filesIn(repository.folder)).toEqual({
    'a.txt': 'file one\n2\n3\n4\nfive\n',
    'b.txt': 'file mine\n',
    'new/deep/c.txt': 'file c\n',
    'run.sh': 'run y\n',
    'untracked.txt': 'file mine\n',
  });
  expect(repository.git('ls-files', '--stage')).toBe(index);
  await undoHandoff(await open(repository.folder), { force: false });
  expect(filesIn(repository.folder)).toEqual(was);
  expect(repository.git('for-each-ref', 'refs/holdfast')).toBe('');
  expect((await new Journals(join(repository.folder, '.git')).list()).journals).toEqual([]);
  expect(types()).toEqual(['handoff.approved', 'handoff.made']);
});

test('a conflict in the work tree leaves every file as it was, and is shown', async () => {
  const repository = new PersonsRepository();
  const before = { a: '1\n', b: '1\n' };
  const head = repository.commit(before);
  const { connection, types } = await handedOverSession(before, { a: 'agent\n', b: 'agent\n' }, { head });
  repository.write({ b: 'mine\n' });
  const was = filesIn(repository.folder);
  expect(await failureOf(handOff(connection, repository.folder, { to: 'tree' }))).toMatch(
    /1 file conflicts: b: the agent changed lines/,
  );
  expect(filesIn(repository.folder)).toEqual(was);
  expect(types()).toEqual([]);
});

test('a moved HEAD: merged in memory, and a conflict writes nothing', async () => {
  const repository = new PersonsRepository();
  const before = { a: '1\n2\n3\n4\n5\n', b: 'b\n' };
  const head = repository.commit(before);
  const { connection } = await handedOverSession(before, { a: '1\n2\n3\n4\nfive\n', b: 'b\n' }, { head });
  repository.commit({ a: 'one\n2\n3\n4\n5\n' });
  const moved = await handOff(connection, repository.folder, { to: 'branch', onto: 'HEAD' });
  expect(repository.git('show', `${moved.branch}:a`)).toBe('one\n2\n3\n4\nfive\n');
  expect(repository.git('rev-parse', `${moved.branch}^`)).toBe(repository.git('rev-parse', 'HEAD'));
  const exact = await handOff(connection, repository.folder, { to: 'branch' });
  expect(repository.git('rev-parse', `${exact.branch}^`).trim()).toBe(head);

  // The person made the agent's change, too, and another one.
  repository.commit({ a: 'one\n2\n3\n4\nfive\n' });
  await expect(handOff(connection, repository.folder, { to: 'branch', onto: 'HEAD' })).resolves.toMatchObject(
    {
      tree: repository.git('rev-parse', 'HEAD^{tree}').trim(),
      merged: ['a'],
    },
  );

  repository.commit({ a: '1\n2\n3\n4\nFIVE\n' });
  const references = repository.git('for-each-ref');
  expect(await failureOf(handOff(connection, repository.folder, { to: 'branch', onto: 'HEAD' }))).toContain(
    'a: the agent changed lines',
  );
  expect(repository.git('for-each-ref')).toBe(references);
});

test('a file that replaces a folder takes nothing along that stays', async () => {
  const repository = new PersonsRepository();
  const before: Files = { 'lib/a': 'a\n', 'lib/package.json': '{}', 'all/a': 'a\n', other: '1\n' };
  const head = repository.commit(before);
  const after: Files = { lib: 'now a file\n', all: { link: 'other' }, other: '2\n' };
  const { connection } = await handedOverSession(before, after, { head });
  const { plan, commit } = await handOff(connection, repository.folder, { to: 'branch' });
  expect(plan.refused).toEqual([{ path: 'lib', why: 'it replaces a folder in which other files stay' }]);
  const paths = (of: string): string[] =>
    repository.git('ls-tree', '-r', '--name-only', of).trim().split('\n');
  expect(paths(commit ?? '')).toEqual(['all', 'lib/package.json', 'other']);

  repository.commit({ 'all/later': 'mine\n' });
  const onto = await handOff(connection, repository.folder, {
    to: 'branch',
    onto: 'HEAD',
    released: ['lib/package.json'],
  });
  expect(onto.plan.refused.map(({ path }) => path)).toEqual(['all']);
  expect(paths(onto.commit ?? '')).toEqual(['all/later', 'lib', 'other']);
});

test('attributes that are alone in a new folder arrive, and those of a folder that became a file go', async () => {
  const repository = new PersonsRepository();
  const before: Files = { 'old/.gitattributes': '* -text\n', 'old/a': 'a\n', '.gitattributes': '* -text\n' };
  const head = repository.commit(before);
  const after: Files = {
    old: 'a file\n',
    '.gitattributes': '* text\n',
    'new/deep/.gitattributes': '* text\n',
  };
  const { connection } = await handedOverSession(before, after, { head });
  const { folder } = await handOff(connection, repository.folder, { released: ['**'] });
  expect(filesIn(folder ?? '')).toEqual({
    old: 'file a file\n',
    '.gitattributes': 'file * text\n',
    'new/deep/.gitattributes': 'file * text\n',
  });
  expect(repository.gitIn(folder ?? '', 'status', '--porcelain', '--ignored')).toBe('');
});
