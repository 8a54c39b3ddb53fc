import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Journals } from '../../../handoff/journal.ts';
import { recoverHandoffs } from '../../../handoff/undo.ts';
import {
  filesIn,
  handedOverSession,
  handOff,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';

/** A process id that no process has. */
const NOBODY = 2 ** 22 + 1;
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

test('the origin that a record names is never used as a folder, and its prefix is checked', async () => {
  const repository = new PersonsRepository();
  const head = repository.commit(BEFORE);
  for (const prefix of ['../', '.git/', 'a/.GIT/']) {
    const { connection } = await handedOverSession(BEFORE, { a: '2\n', b: '1\n' }, { head, prefix });
    await expect(handOff(connection, repository.folder)).rejects.toMatchObject({ code: 'protocol_error' });
  }
});
