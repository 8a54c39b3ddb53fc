import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { Journals } from '../../../handoff/journal.ts';
import { recordRecovered } from '../../../handoff/record.ts';
import { recoverHandoffs, undoHandoff, unfinishedHandoffs } from '../../../handoff/undo.ts';
import type { HandoffConnection } from '../../../handoff/changes.ts';
import {
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

const BEFORE = { a: '1\n', b: '1\n' };

/** As if the client had been killed before it could note the end. */
async function unfinish(folder: string): Promise<Journals> {
  const journals = new Journals(join(folder, '.git'));
  const [journal] = (await journals.list()).journals;
  if (journal === undefined) throw new Error('the handoff left no journal');
  await journals.write({ ...journal, state: 'making', pid: NOBODY });
  return journals;
}

test.each(['worktree', 'tree'] as const)('what a killed client had made goes again: %s', async (to) => {
  const repository = new PersonsRepository();
  const head = repository.commit(BEFORE);
  const { connection } = await handedOverSession(BEFORE, { a: '2\n', c: 'new\n' }, { head });
  const was = filesIn(repository.folder);
  const references = repository.git('for-each-ref');
  const { folder } = await handOff(connection, repository.folder, { to });
  if (to === 'worktree') rmSync(join(folder ?? '', 'a'));
  const journals = await unfinish(repository.folder);
  const { recovered, failed } = await recoverHandoffs(await open(repository.folder));
  expect([recovered.length, failed]).toEqual([1, []]);
  expect(filesIn(repository.folder)).toEqual(was);
  expect(repository.git('for-each-ref')).toBe(references);
  expect(repository.git('worktree', 'list').trim().split('\n')).toHaveLength(1);
  expect(await journals.list()).toEqual({ journals: [], damaged: [] });
});

/** The connection, with something that happens while the handoff waits for its approval. */
function atApproval(connection: HandoffConnection, act: () => unknown): HandoffConnection {
  let isFirst = true;
  return {
    callWithBytes: async (method, params, options) => {
      if (method === 'handoff/record' && isFirst) {
        isFirst = false;
        await act();
      }
      return await connection.callWithBytes(method, params, options);
    },
  };
}

async function prepared(before: Record<string, string> = BEFORE) {
  const repository = new PersonsRepository();
  const head = repository.commit(before);
  const session = await handedOverSession(before, { ...before, a: '2\n', c: 'new\n' }, { head });
  return { repository, ...session };
}

test('a folder that came to exist while the handoff was prepared stays as it is', async () => {
  const { repository, connection } = await prepared();
  const mine = join(dirname(repository.folder), 'mine');
  const act = (): void => {
    mkdirSync(mine);
    writeFileSync(join(mine, 'thesis.txt'), 'my work');
  };
  const references = repository.git('for-each-ref');
  await expect(
    handOff(atApproval(connection, act), repository.folder, { folder: mine }),
  ).rejects.toMatchObject({ code: 'already_exists' });
  expect(readFileSync(join(mine, 'thesis.txt'), 'utf8')).toBe('my work');
  expect(repository.git('for-each-ref')).toBe(references);
  expect(await new Journals(join(repository.folder, '.git')).list()).toEqual({ journals: [], damaged: [] });
});

test('a handoff that another one overtook leaves the branch and the worktree of the other', async () => {
  const { repository, connection } = await prepared();
  const mine = join(dirname(repository.folder), 'mine');
  const options = { branch: 'both' };
  const overtaken = atApproval(connection, async () => {
    const { folder } = await handOff(connection, repository.folder, options);
    writeFileSync(join(folder ?? '', 'work.txt'), 'my work');
  });
  await expect(handOff(overtaken, repository.folder, { ...options, folder: mine })).rejects.toThrow(
    'could not be created',
  );
  expect(existsSync(mine)).toBe(false);
  expect(repository.git('branch', '--list', 'both')).toContain('both');
  const other = repository.git('worktree', 'list', '--porcelain').split('worktree ')[2]?.split('\n')[0];
  expect(readFileSync(join(other ?? '', 'work.txt'), 'utf8')).toBe('my work');
});

test('a worktree that lacked nothing but the note of its end is kept, and can be undone', async () => {
  const { repository, connection } = await prepared({ ...BEFORE, '.gitignore': '.env\n' });
  const { folder } = await handOff(connection, repository.folder);
  writeFileSync(join(folder ?? '', '.env'), 'KEY');
  const journals = await unfinish(repository.folder);
  expect(await recoverHandoffs(await open(repository.folder))).toEqual({ recovered: [], failed: [] });
  expect((await journals.list()).journals.map(({ state }) => state)).toEqual(['made']);
  expect(existsSync(join(folder ?? '', '.env'))).toBe(true);
});

test.each(['an ignored file', 'a commit'])(
  'an unfinished worktree with %s of the person stays',
  async (what) => {
    const { repository, connection } = await prepared({ ...BEFORE, '.gitignore': '.env\n' });
    const { folder } = await handOff(connection, repository.folder);
    const worktree = folder ?? '';
    await unfinish(repository.folder);
    if (what === 'a commit') {
      repository.gitIn(worktree, 'checkout', '-q', '--detach');
      repository.gitIn(worktree, 'commit', '-q', '--allow-empty', '-m', 'work');
    } else {
      rmSync(join(worktree, 'a'));
      writeFileSync(join(worktree, '.env'), 'KEY');
    }
    const { recovered, failed } = await recoverHandoffs(await open(repository.folder));
    expect([recovered.length, failed.length]).toEqual([0, 1]);
    expect(existsSync(join(worktree, 'b'))).toBe(true);
  },
);

test('a repository inside the worktree is not taken back, also by force', async () => {
  const { repository, connection } = await prepared();
  const { folder } = await handOff(connection, repository.folder);
  const nested = join(folder ?? '', 'nested');
  mkdirSync(nested);
  repository.gitIn(nested, 'init', '-q');
  repository.gitIn(nested, 'commit', '-q', '--allow-empty', '-m', 'only here');
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: true }))).toContain('nested');
  expect(existsSync(join(nested, '.git'))).toBe(true);
});

test('a change that git was told not to look at is work, too', async () => {
  const { repository, connection } = await prepared();
  const { folder } = await handOff(connection, repository.folder);
  repository.gitIn(folder ?? '', 'update-index', '--skip-worktree', 'a');
  writeFileSync(join(folder ?? '', 'a'), 'my work');
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: false }))).toContain('a');
  expect(readFileSync(join(folder ?? '', 'a'), 'utf8')).toBe('my work');
});

test('the origin that a record names is never used as a folder, and its prefix is checked', async () => {
  const repository = new PersonsRepository();
  const head = repository.commit(BEFORE);
  for (const prefix of ['../', '.git/', 'a/.GIT/']) {
    const { connection } = await handedOverSession(BEFORE, { a: '2\n', b: '1\n' }, { head, prefix });
    await expect(handOff(connection, repository.folder)).rejects.toMatchObject({ code: 'protocol_error' });
  }
});

test('a branch of another is not taken for that of a handoff that was killed before it had made one', async () => {
  const { repository, connection } = await prepared();
  await handOff(connection, repository.folder, { to: 'branch', branch: 'theirs' });
  const journals = new Journals(join(repository.folder, '.git'));
  const [journal] = (await journals.list()).journals;
  if (journal?.to !== 'branch') throw new Error('the handoff left no journal');
  await journals.write({ ...journal, state: 'making', pid: NOBODY, hasBranch: false });
  repository.git('update-ref', 'refs/heads/theirs', 'HEAD');
  repository.git('checkout', '-q', 'theirs');
  const { recovered, failed } = await recoverHandoffs(await open(repository.folder));
  expect([recovered.length, failed]).toEqual([1, []]);
  expect(repository.git('rev-parse', 'theirs')).toBe(repository.git('rev-parse', 'HEAD'));
});

test('a preview says that a handoff was interrupted, and leaves it to the next one', async () => {
  const { repository, connection } = await prepared();
  await handOff(connection, repository.folder, { to: 'tree' });
  const journals = await unfinish(repository.folder);
  const was = [filesIn(repository.folder), await journals.list()];
  expect(await unfinishedHandoffs(await open(repository.folder))).toHaveLength(1);
  expect([filesIn(repository.folder), await journals.list()]).toEqual(was);
});

test.each(['worktree', 'branch', 'tree'] as const)(
  'a handoff whose client was killed before it had told the supervisor is recorded by the next: %s',
  async (to) => {
    const { repository, connection, types, made } = await prepared();
    const silent: HandoffConnection = {
      callWithBytes: (method, params, options) =>
        method === 'handoff/record' && (params as { step: string }).step === 'made'
          ? Promise.reject(new Error('the connection was lost'))
          : connection.callWithBytes(method, params, options),
    };
    expect((await handOff(silent, repository.folder, { to })).unrecorded).toContain('was lost');
    expect(types()).toEqual(['handoff.approved']);
    const journals = new Journals(join(repository.folder, '.git'));
    const [journal] = (await journals.list()).journals;
    if (journal === undefined) throw new Error('the handoff left no journal');
    await journals.write({ ...journal, pid: NOBODY });
    // That of a worktree is found complete, although its end was not noted.
    if (to === 'worktree') await unfinish(repository.folder);
    await recoverHandoffs(await open(repository.folder));
    await recordRecovered(connection, await open(repository.folder));
    await recordRecovered(connection, await open(repository.folder));
    expect(types()).toEqual(['handoff.approved', 'handoff.made']);
    expect(made).toHaveLength(1);
    expect((await journals.list()).journals).toMatchObject([{ state: 'made', recorded: true }]);
  },
);

test('what a handoff keeps for its undo is on disk before a file changes', async () => {
  const { repository, connection } = await prepared();
  const trace = join(temporaryDirectory(), 'trace');
  const env = { ...GIT_ENV, GIT_TRACE2_EVENT: trace };
  await handOff(connection, repository.folder, { to: 'tree', env });
  const lines = readFileSync(trace, 'utf8').trim().split('\n');
  const events = lines.map(
    (line) => JSON.parse(line) as { event: string; sid: string; argv?: string[]; key?: string },
  );
  const writers = events.filter(
    ({ event, argv = [] }) =>
      event === 'start' && (argv.includes('unpack-objects') || argv.includes('commit-tree')),
  );
  expect(writers).toHaveLength(2);
  const isFlushed = (sid: string): boolean =>
    events.some((one) => one.sid === sid && one.key === 'fsync/hardware-flush');
  expect(writers.map(({ sid }) => isFlushed(sid))).toEqual([true, true]);
});
