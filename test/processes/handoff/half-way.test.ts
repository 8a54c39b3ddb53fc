import { cpSync, existsSync } from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, test, vi } from 'vitest';
import type { HandoffConnection } from '../../../handoff/changes.ts';
import { recordRecovered } from '../../../handoff/record.ts';
import { Journals } from '../../../handoff/journal.ts';
import { recoverHandoffs, undoHandoff } from '../../../handoff/undo.ts';
import { WorkingFiles } from '../../../handoff/working-files.ts';
import {
  failureOf,
  filesIn,
  handedOverSession,
  handOff,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';

const BEFORE = { a: '1\n', b: '1\n' };

async function prepared() {
  const repository = new PersonsRepository();
  const head = repository.commit(BEFORE);
  const session = await handedOverSession(BEFORE, { a: '2\n', b: '2\n' }, { head });
  return { repository, ...session };
}

test('a disk that gets full leaves a handoff that says what remains, and that the same process takes back', async () => {
  const { repository, connection } = await prepared();
  const was = filesIn(repository.folder);
  const replace = WorkingFiles.prototype.replace;
  let calls = 0;
  const spy = vi.spyOn(WorkingFiles.prototype, 'replace').mockImplementation(async function (
    this: WorkingFiles,
    ...rest
  ) {
    calls += 1;
    if (calls > 1) throw new Error('no space left');
    await replace.apply(this, rest);
  });
  try {
    const failure = await failureOf(handOff(connection, repository.folder, { to: 'tree' }));
    expect(failure).toMatch(/half-way.*Not as before: a\b.*refs\/holdfast\/undo/s);
  } finally {
    spy.mockRestore();
  }
  expect(filesIn(repository.folder)).toEqual({ ...was, a: 'file 2\n' });
  const { recovered, failed } = await recoverHandoffs(await open(repository.folder));
  expect([recovered.length, failed]).toEqual([1, []]);
  expect(filesIn(repository.folder)).toEqual(was);
});

test('a handoff that still runs in this process is nobody else to record', async () => {
  const { repository, connection, types } = await prepared();
  const seen: number[] = [];
  const looks: HandoffConnection = {
    callWithBytes: async (method, params, options) => {
      if (method === 'handoff/record' && (params as { step: string }).step === 'made')
        seen.push((await recordRecovered(connection, await open(repository.folder))).length);
      return await connection.callWithBytes(method, params, options);
    },
  };
  await handOff(looks, repository.folder, { to: 'tree' });
  expect([seen, types()]).toEqual([[0], ['handoff.approved', 'handoff.made']]);
});

test.each(['short', 'lost'] as const)(
  'a write to the temporary disk that is %s changes no byte',
  async (how) => {
    const { repository, connection } = await prepared();
    const file = await openFile('/dev/null', 'w');
    type Write = (
      bytes: Buffer,
      at: number,
      length: number,
      position: number,
    ) => Promise<{ bytesWritten: number }>;
    const handle = Object.getPrototypeOf(file) as { write: Write };
    await file.close();
    const write = handle.write;
    let calls = 0;
    const spy = vi.spyOn(handle, 'write').mockImplementation(async function (
      this: unknown,
      bytes,
      at,
      length,
      position,
    ) {
      calls += 1;
      const taken = calls === 1 ? 1 : length;
      const done = await write.call(this, bytes, at, taken, position);
      return how === 'lost' ? { ...done, bytesWritten: length } : done;
    });
    try {
      const made = handOff(connection, repository.folder, { to: 'branch' });
      if (how === 'lost') expect(await failureOf(made)).toContain('damaged');
      else expect(repository.git('show', `${(await made).branch}:a`)).toBe('2\n');
    } finally {
      spy.mockRestore();
    }
  },
);

test('a copied repository takes nothing back in the one that it was copied from', async () => {
  const { repository, connection } = await prepared();
  await handOff(connection, repository.folder, { to: 'tree' });
  const handed = filesIn(repository.folder);
  const copy = join(dirname(repository.folder), 'copy');
  cpSync(repository.folder, copy, { recursive: true });
  expect(await failureOf(undoHandoff(await open(copy), { force: true }))).toContain('no work tree of this');
  expect(filesIn(repository.folder)).toEqual(handed);
});

test('an undo deletes no reference but that of its handoff', async () => {
  const { repository, connection } = await prepared();
  await handOff(connection, repository.folder, { to: 'tree' });
  const journals = new Journals(join(repository.folder, '.git'));
  const [journal] = (await journals.list()).journals;
  if (journal?.to !== 'tree') throw new Error('the handoff left no journal');
  await journals.write({ ...journal, undoRef: 'refs/heads/main' });
  await expect(undoHandoff(await open(repository.folder), { force: true })).rejects.toMatchObject({
    code: 'conflict',
  });
  expect(repository.git('branch', '--list', 'main')).toContain('main');
});

test('a worktree with a submodule that was checked out is not taken back, also by force', async () => {
  const { repository, connection } = await prepared();
  const { folder } = await handOff(connection, repository.folder);
  const worktree = folder ?? '';
  repository.gitIn(
    worktree,
    ...['-c', 'protocol.file.allow=always', 'submodule', '--quiet', 'add', '--', repository.folder, 'module'],
  );
  repository.gitIn(worktree, 'commit', '-q', '-m', 'module');
  for (const force of [false, true])
    expect(await failureOf(undoHandoff(await open(repository.folder), { force }))).toContain('module');
  expect(existsSync(join(worktree, 'module/.git'))).toBe(true);
});
