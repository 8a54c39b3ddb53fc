import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { HandoffConnection } from '../../../handoff/changes.ts';
import { recordRecovered } from '../../../handoff/record.ts';
import { Journals } from '../../../handoff/journal.ts';
import { recoverHandoffs, undoHandoff } from '../../../handoff/undo.ts';
import {
  failureOf,
  filesIn,
  handedOverSession,
  handOff,
  NOBODY,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';
import { turnId } from '../../fixtures/store/temporary-home.ts';

const BEFORE = { a: '1\n', b: '1\n' };

async function prepared() {
  const repository = new PersonsRepository();
  const head = repository.commit(BEFORE);
  const session = await handedOverSession(BEFORE, { a: '2\n', b: '1\n', c: 'new\n' }, { head });
  return { repository, ...session };
}

/** Commits in a work tree, and goes back to where it was. */
function commitAndForget(repository: PersonsRepository, folder: string, name: string): string {
  writeFileSync(join(folder, name), 'my work');
  repository.gitIn(folder, 'add', name);
  repository.gitIn(folder, 'commit', '-q', '-m', name);
  const commit = repository.gitIn(folder, 'rev-parse', 'HEAD').trim();
  repository.gitIn(folder, 'reset', '-q', '--hard', 'HEAD~');
  return commit;
}

function collectAll(repository: PersonsRepository): void {
  repository.git('reflog', 'expire', '--expire=now', '--all');
  repository.git('gc', '-q', '--prune=now');
}

test('commits that only the log of the worktree knows are not lost', async () => {
  const { repository, connection } = await prepared();
  const { folder } = await handOff(connection, repository.folder);
  const forgotten = ['one', 'two'].map((name) => commitAndForget(repository, folder ?? '', name));
  const failure = await failureOf(undoHandoff(await open(repository.folder), { force: false }));
  expect(failure).toMatch(/commits/);
  expect(existsSync(folder ?? '')).toBe(true);
  const { keptRef } = await undoHandoff(await open(repository.folder), { force: true });
  expect(existsSync(folder ?? '')).toBe(false);
  collectAll(repository);
  for (const commit of forgotten)
    repository.git('merge-base', '--is-ancestor', commit, keptRef ?? 'no reference');
});

test('commits that another branch has as well do not stop an undo', async () => {
  const { repository, connection } = await prepared();
  const { folder } = await handOff(connection, repository.folder);
  repository.git('branch', 'mine', commitAndForget(repository, folder ?? '', 'one'));
  const { keptRef } = await undoHandoff(await open(repository.folder), { force: false });
  expect([keptRef, existsSync(folder ?? '')]).toEqual([null, false]);
});

test('commits of a detached head that the branch never had are not lost', async () => {
  const { repository, connection } = await prepared();
  const { folder, branch } = await handOff(connection, repository.folder);
  repository.gitIn(folder ?? '', 'checkout', '-q', '--detach');
  const commit = commitAndForget(repository, folder ?? '', 'one');
  repository.gitIn(folder ?? '', 'checkout', '-q', branch ?? '');
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: false }))).toContain(
    commit.slice(0, 12),
  );
});

test('commits that only the log of the branch knows are not lost', async () => {
  const { repository, connection } = await prepared();
  const { branch } = await handOff(connection, repository.folder, { to: 'branch' });
  const work = join(repository.folder, '../elsewhere');
  repository.git('worktree', 'add', '-q', work, branch ?? '');
  const commit = commitAndForget(repository, work, 'one');
  repository.git('worktree', 'remove', '--force', work);
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: false }))).toContain(
    commit.slice(0, 12),
  );
  expect(repository.git('branch', '--list', branch ?? '')).not.toBe('');
  const { keptRef } = await undoHandoff(await open(repository.folder), { force: true });
  collectAll(repository);
  repository.git('merge-base', '--is-ancestor', commit, keptRef ?? 'no reference');
});

test('an unfinished worktree in which commits were made and forgotten stays', async () => {
  const { repository, connection } = await prepared();
  const { folder } = await handOff(connection, repository.folder);
  const commit = commitAndForget(repository, folder ?? '', 'one');
  rmSync(join(folder ?? '', 'b'));
  await interrupt(repository);
  const { failed } = await recoverHandoffs(await open(repository.folder));
  expect(failed).toMatchObject([{ why: expect.stringContaining(commit.slice(0, 12)) as string }]);
  const { keptRef } = await undoHandoff(await open(repository.folder), { force: true });
  expect(existsSync(folder ?? '')).toBe(false);
  repository.git('merge-base', '--is-ancestor', commit, keptRef ?? 'no reference');
});

/** The undo by force, stopped when it has kept the work: git removes no locked worktree. */
async function stoppedUndo(repository: PersonsRepository, folder: string): Promise<void> {
  repository.git('worktree', 'lock', folder);
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: true }))).toContain('removed');
  repository.git('worktree', 'unlock', folder);
}

test('an undo by force that died half-way and is repeated drops nothing of what it had kept', async () => {
  const { repository, connection } = await prepared();
  const { folder } = await handOff(connection, repository.folder);
  const worktree = folder ?? '';
  writeFileSync(join(worktree, 'mine'), 'my work');
  writeFileSync(join(worktree, 'other'), 'other work');
  await stoppedUndo(repository, worktree);
  const kept = repository.git('for-each-ref', 'refs/holdfast/kept');
  // Git had removed a part: nothing is new, and the reference shows all.
  rmSync(join(worktree, 'mine'));
  await stoppedUndo(repository, worktree);
  expect(repository.git('for-each-ref', 'refs/holdfast/kept')).toBe(kept);
  writeFileSync(join(worktree, 'other'), 'newer work');
  const { keptRef } = await undoHandoff(await open(repository.folder), { force: true });
  expect(repository.git('for-each-ref', '--format=%(refname)', 'refs/holdfast/kept').trim()).toBe(keptRef);
  expect(repository.git('show', `${keptRef}:other`)).toBe('newer work');
  expect(repository.git('show', `${keptRef}^2:mine`)).toBe('my work');
  expect(repository.git('show', `${keptRef}^2:other`)).toBe('other work');
});

test('commits of the branch are kept beside the work of the worktree, under the reference that is named', async () => {
  const { repository, connection } = await prepared();
  const { folder, branch } = await handOff(connection, repository.folder);
  const worktree = folder ?? '';
  writeFileSync(join(worktree, 'mine'), 'my work');
  repository.gitIn(worktree, 'checkout', '-q', '--detach');
  const elsewhere = join(repository.folder, '../elsewhere');
  repository.git('worktree', 'add', '-q', elsewhere, branch ?? '');
  repository.gitIn(elsewhere, 'commit', '-q', '--allow-empty', '-m', 'on the branch');
  const commit = repository.gitIn(elsewhere, 'rev-parse', 'HEAD').trim();
  repository.git('worktree', 'remove', '--force', elsewhere);
  const { keptRef } = await undoHandoff(await open(repository.folder), { force: true });
  collectAll(repository);
  expect(repository.git('show', `${keptRef}:mine`)).toBe('my work');
  repository.git('merge-base', '--is-ancestor', commit, keptRef ?? 'no reference');
});

/** As if the client had been killed before it could note the end. */
async function interrupt(repository: PersonsRepository): Promise<Journals> {
  const journals = new Journals(join(repository.folder, '.git'));
  const [journal] = (await journals.list()).journals;
  if (journal === undefined) throw new Error('the handoff left no journal');
  await journals.write({ ...journal, state: 'making', recorded: false, pid: NOBODY });
  return journals;
}

test('an interrupted handoff into files that were edited since is taken back by force, and keeps the edits', async () => {
  const { repository, connection } = await prepared();
  await handOff(connection, repository.folder, { to: 'tree' });
  writeFileSync(join(repository.folder, 'a'), 'my work');
  const journals = await interrupt(repository);
  expect((await recoverHandoffs(await open(repository.folder))).failed).toHaveLength(1);
  expect(await failureOf(undoHandoff(await open(repository.folder), { force: false }))).toContain('--force');
  const { journal, keptRef } = await undoHandoff(await open(repository.folder), { force: true });
  expect([journal.state, keptRef]).toEqual(['making', null]);
  expect(filesIn(repository.folder)).toEqual({ a: 'file my work', b: 'file 1\n' });
  expect(await journals.list()).toEqual({ journals: [], damaged: [] });
  expect(repository.git('for-each-ref', 'refs/holdfast/undo')).not.toBe('');
});

/** The connection, lost when it should say that the handoff was made. */
function lostAtTheEnd(connection: HandoffConnection): HandoffConnection {
  return {
    callWithBytes: (method, params, options) =>
      method === 'handoff/record' && (params as { step: string }).step === 'made'
        ? Promise.reject(new Error('the connection was lost'))
        : connection.callWithBytes(method, params, options),
  };
}

test.each(['tree', 'patch', 'dir'] as const)(
  'a handoff that could not be recorded at its end was made all the same: %s',
  async (to) => {
    const { repository, connection, types } = await prepared();
    const folder = to === 'dir' ? join(repository.folder, '../out') : undefined;
    const result = await handOff(lostAtTheEnd(connection), repository.folder, { to, folder });
    expect(result.unrecorded).toContain('the connection was lost');
    if (to === 'patch') expect(result.patch?.toString()).toContain('+2');
    if (to === 'dir') expect(readFileSync(join(result.folder ?? '', 'c'), 'utf8')).toBe('new\n');
    expect(types()).toEqual(['handoff.approved']);
    const recorded = await recordRecovered(connection, await open(repository.folder));
    const isNoted = to !== 'patch' && to !== 'dir';
    expect(recorded).toHaveLength(isNoted ? 1 : 0);
    if (isNoted) expect(types()).toEqual(['handoff.approved', 'handoff.made']);
  },
);

test('a handoff that could be recorded says so', async () => {
  const { repository, connection } = await prepared();
  const { unrecorded } = await handOff(connection, repository.folder, { to: 'branch' });
  expect(unrecorded).toBe(null);
});

test('the message is proposed from the newest prompts of a long conversation', async () => {
  const { repository, connection, events, contents, row } = await prepared();
  for (let n = 0; n < 45; n += 1) {
    const content = contents.insert(row.id, Buffer.from(`prompt ${n}`));
    const queued = {
      turnId: turnId(n),
      kind: 'command' as const,
      inputBytes: content.bytes,
      timeoutMs: 1000,
      content,
    };
    events.append(row.id, [{ type: 'turn.queued', data: queued }]);
  }
  const { plan, branch } = await handOff(connection, repository.folder, { to: 'branch' });
  expect(plan.begun.prompts).toHaveLength(20);
  expect(plan.begun.prompts.at(-1)).toBe('prompt 44');
  expect(repository.git('log', '-1', '--format=%s', branch ?? '')).toBe('prompt 44\n');
});
