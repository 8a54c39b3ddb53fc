import { expect, test } from 'vitest';
import { handedOverSession, handOff, PersonsRepository } from '../../fixtures/handoff/handoff-fixture.ts';

const BEFORE = { 'src/a': '1\n' };
const AFTER = {
  'src/a': '2\n',
  'package.json': '{}\n',
  'app/package.json': '{}\n',
  '.husky/pre-commit': 'x\n',
};

/** A session whose workspace is the folder `app` of the repository. */
async function prepared(after: Readonly<Record<string, string>> = AFTER) {
  const repository = new PersonsRepository();
  const head = repository.commit({ 'app/src/a': '1\n' });
  const { connection } = await handedOverSession(BEFORE, after, { head, prefix: 'app/' });
  return { repository, connection };
}

test('in a project below the top of its repository, exactly the path that was let through travels', async () => {
  const { repository, connection } = await prepared();
  const releasedPaths = new Set(['app/package.json']);
  const { plan } = await handOff(connection, repository.folder, { to: 'branch', releasedPaths });
  expect(plan.prefix).toBe('app/');
  expect(plan.released.map(({ path }) => path)).toEqual(['app/package.json']);
  expect(plan.quarantined.map(({ path }) => path).sort()).toEqual([
    'app/.husky/pre-commit',
    'app/app/package.json',
  ]);
});

test('a path that was let through lets nothing below it through', async () => {
  const { repository, connection } = await prepared();
  const releasedPaths = new Set(['app/.husky', 'app']);
  const { plan } = await handOff(connection, repository.folder, { to: 'branch', releasedPaths });
  expect(plan.released).toEqual([]);
  expect(plan.quarantined).toHaveLength(3);
});

test('a pattern names paths of the workspace', async () => {
  const { repository, connection } = await prepared();
  const { plan } = await handOff(connection, repository.folder, {
    to: 'branch',
    released: ['app/package.json'],
  });
  expect(plan.released.map(({ path }) => path)).toEqual(['app/app/package.json']);
});
