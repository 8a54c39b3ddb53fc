import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Journals } from '../../../handoff/journal.ts';
import { recoverHandoffs, undoHandoff } from '../../../handoff/undo.ts';
import {
  type Files,
  failureOf,
  filesIn,
  GIT_ENV,
  handedOverSession,
  handOff,
  NOBODY,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const BEFORE: Files = { a: '1\n', 'x.dat': 'data\n', '.gitattributes': '*.dat filter=local\n' };

/** A filter of the person's, chosen by the person's attributes, and a program of that name which the agent adds. */
async function prepared(filter: Readonly<Record<string, string>>, program = 'tools/strip') {
  const repository = new PersonsRepository();
  const mark = join(temporaryDirectory(), 'mark');
  const head = repository.commit(BEFORE);
  for (const [kind, command] of Object.entries(filter))
    repository.git('config', `filter.local.${kind}`, command);
  const evil = { run: `#!/bin/sh\necho ran >> ${mark}\n/bin/cat\n` };
  const { connection } = await handedOverSession(BEFORE, { ...BEFORE, a: '2\n', [program]: evil }, { head });
  return { repository, connection, hasRun: () => existsSync(mark) };
}

/** As if the client had been killed before it could note the end. */
async function interrupt(repository: PersonsRepository): Promise<void> {
  const journals = new Journals(join(repository.folder, '.git'));
  const [journal] = (await journals.list()).journals;
  if (journal === undefined) throw new Error('the handoff left no journal');
  await journals.write({ ...journal, state: 'making', recorded: false, pid: NOBODY });
}

test.each([
  './tools/strip %f',
  '$(git rev-parse --show-toplevel)/tools/strip',
  '"$PWD"/tools/strip',
  'cd tools && ./strip',
  'git-lfs smudge -- %f; tools/strip',
])('a worktree in which a filter could start what the agent wrote is refused: %s', async (smudge) => {
  const { repository, connection, hasRun } = await prepared({ smudge });
  const failure = await failureOf(handOff(connection, repository.folder, { released: ['**'] }));
  expect(failure).toMatch(/the filter local .* x\.dat .*--to branch or --to patch/);
  expect(repository.git('worktree', 'list').trim().split('\n')).toHaveLength(1);
  for (const to of ['branch', 'patch'] as const)
    await handOff(connection, repository.folder, { to, released: ['**'] });
  expect(hasRun()).toBe(false);
});

test('a long-running filter is refused as well', async () => {
  const { repository, connection } = await prepared({ process: 'local-filter' });
  expect(await failureOf(handOff(connection, repository.folder))).toContain('the filter local');
});

test('a filter that no file of the tree needs stops nothing', async () => {
  const { repository, connection } = await prepared({});
  repository.git('config', 'filter.other.smudge', './tools/strip');
  const { folder } = await handOff(connection, repository.folder, { released: ['**'] });
  expect(readFileSync(join(folder ?? '', 'x.dat'), 'utf8')).toBe('data\n');
});

test.each(['undo', 'undo by force', 'recovery', 'recovery of a part'])(
  'a clean filter starts nothing that the agent wrote: %s',
  async (how) => {
    const filter = { clean: '"$PWD"/tools/strip', smudge: 'cat', required: 'true' };
    const { repository, connection, hasRun } = await prepared(filter);
    const { folder } = await handOff(connection, repository.folder, { released: ['**'] });
    const worktree = folder ?? '';
    expect(existsSync(join(worktree, 'tools/strip'))).toBe(true);
    if (how === 'undo by force') writeFileSync(join(worktree, 'mine'), 'my work');
    if (how === 'recovery of a part') rmSync(join(worktree, 'a'));
    const opened = await open(repository.folder);
    if (how.startsWith('recovery')) {
      await interrupt(repository);
      expect((await recoverHandoffs(opened)).failed).toEqual([]);
    } else {
      const { keptRef } = await undoHandoff(opened, { force: how === 'undo by force' });
      if (keptRef !== null) expect(repository.git('show', `${keptRef}:x.dat`)).toBe('data\n');
    }
    expect([hasRun(), existsSync(worktree)]).toEqual([false, how === 'recovery']);
  },
);

const CONTENT = 'large\n';
const pointerOf = (content: string): string =>
  `version https://git-lfs.github.com/spec/v1\noid sha256:${createHash('sha256').update(content).digest('hex')}\nsize ${content.length}\n`;

/** A person's repository with files under Git LFS, and a program that stands for it. */
async function withLfs(change: Files = {}) {
  const repository = new PersonsRepository();
  const programs = temporaryDirectory();
  const log = join(programs, 'log');
  mkdirSync(join(programs, 'bin'));
  const lfs = join(programs, 'bin/git-lfs');
  writeFileSync(lfs, `#!/bin/sh\necho "$1" >> ${log}\ncat > ${programs}/input\nprintf 'large\\n'\n`);
  chmodSync(lfs, 0o755);
  const env = { ...GIT_ENV, PATH: `${join(programs, 'bin')}:${GIT_ENV['PATH']}` };
  const before = {
    a: '1\n',
    'x.dat': pointerOf(CONTENT),
    'y.dat': pointerOf(CONTENT),
    '.gitattributes': '*.dat filter=lfs\n',
  };
  const head = repository.commit(before);
  repository.git('config', 'filter.lfs.clean', 'git-lfs clean -- %f');
  repository.git('config', 'filter.lfs.smudge', 'git-lfs smudge -- %f');
  repository.git('config', 'filter.lfs.required', 'true');
  const { connection } = await handedOverSession(before, { ...before, a: '2\n', ...change }, { head });
  const started = (): string[] => readFileSync(log, 'utf8').trim().split('\n');
  return { repository, connection, env, started };
}

test('Git LFS writes its files, and an undo compares them without it', async () => {
  const { repository, connection, env, started } = await withLfs();
  const { folder } = await handOff(connection, repository.folder, { env });
  expect(filesIn(folder ?? '')['x.dat']).toBe('file large\n');
  expect(await undoHandoff(await open(repository.folder, { env }), { force: false })).toMatchObject({
    keptRef: null,
  });
  expect([existsSync(folder ?? ''), started()]).toEqual([false, ['smudge', 'smudge']]);
});

test.each(['content', 'mode'])('a file under Git LFS whose %s was changed is work', async (what) => {
  const { repository, connection, env, started } = await withLfs();
  const { folder } = await handOff(connection, repository.folder, { env });
  const file = join(folder ?? '', 'x.dat');
  if (what === 'content') writeFileSync(file, 'mine!\n');
  else chmodSync(file, 0o755);
  const opened = await open(repository.folder, { env });
  const failure = await failureOf(undoHandoff(opened, { force: false }));
  expect(failure).toContain('x.dat');
  expect(failure).not.toContain('y.dat');
  const { keptRef } = await undoHandoff(opened, { force: true });
  expect(repository.git('show', `${keptRef}:x.dat`)).toBe(what === 'content' ? 'mine!\n' : CONTENT);
  expect(repository.git('show', `${keptRef}:y.dat`)).toBe(pointerOf(CONTENT));
  expect(started()).toEqual(['smudge', 'smudge']);
});

test('Git LFS does not run when the agent configures it', async () => {
  const { repository, connection, env } = await withLfs({
    '.lfsconfig': '[lfs]\n\turl = http://127.0.0.1:1\n',
  });
  const failure = await failureOf(handOff(connection, repository.folder, { env, released: ['**'] }));
  expect(failure).toContain('the filter lfs');
});

test('Git LFS does not run when it is to start other programs', async () => {
  const { repository, connection, env } = await withLfs();
  repository.git('config', 'lfs.extension.local.smudge', './tools/strip %f');
  expect(await failureOf(handOff(connection, repository.folder, { env }))).toContain('the filter lfs');
});
