import { join } from 'node:path';
import { expect, test } from 'vitest';
import { recordUndone } from '../../../handoff/record.ts';
import { undoHandoff } from '../../../handoff/undo.ts';
import {
  failureOf,
  filesIn,
  handedOverSession,
  handOff,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';

const BEFORE = { 'a.txt': 'one\n', 'gone.txt': 'gone\n', 'kept.txt': 'kept\n' };
const AFTER = { 'a.txt': 'two\n', 'kept.txt': 'kept\n', 'new.txt': 'new\n', 'package.json': '{}\n' };

async function prepared() {
  const repository = new PersonsRepository();
  const head = repository.commit(BEFORE);
  const session = await handedOverSession(BEFORE, AFTER, { head });
  const changed = (branch: string | null): string[] =>
    repository
      .git('diff', '--name-status', head, branch ?? '')
      .trim()
      .split('\n');
  return { repository, changed, ...session };
}

test('a review hands over what is accepted and ends; undone, it is open again with its decisions', async () => {
  const { repository, changed, connection, rows, row, beginReview, accept, types } = await prepared();
  const review = beginReview();
  expect(await failureOf(handOff(connection, repository.folder))).toMatch(
    /Nothing is accepted.*holdfast review accept work --all.*--unreviewed/,
  );
  accept(review, 'a.txt', 'gone.txt');

  const first = await handOff(connection, repository.folder, { to: 'branch' });
  expect(first.plan.begun).toMatchObject({
    base: { kind: 'review' },
    target: { kind: 'review' },
    review: { id: review, notAccepted: 2 },
  });
  expect(changed(first.branch)).toEqual(['M\ta.txt', 'D\tgone.txt']);
  expect(first.endedReview).toBe(review);
  expect(rows.findOpen(row.id)).toBeNull();
  expect(rows.newestEnded(row.id)?.acceptedRoot).toBe(first.plan.begun.target.root);
  expect(await failureOf(handOff(connection, repository.folder))).toMatch(/accepted since its last review/);

  const undone = await undoHandoff(await open(repository.folder), { force: false });
  await recordUndone(connection, undone.journal);
  await recordUndone(connection, undone.journal);
  expect(rows.findOpen(row.id)?.id).toBe(review);
  const again = await handOff(connection, repository.folder, { to: 'branch' });
  expect(again.tree).toBe(first.tree);
  expect(types()).toEqual([
    ...['handoff.approved', 'handoff.made', 'review.ended'],
    ...['handoff.undone', 'review.opened'],
    ...['handoff.approved', 'handoff.made', 'review.ended'],
  ]);
});

test('the review continues while something accepted is not in the repository', async () => {
  const { repository, changed, connection, rows, row, beginReview, accept } = await prepared();
  const review = beginReview();
  accept(review, 'a.txt', 'new.txt', 'package.json');
  const isOpen = (): boolean => rows.findOpen(row.id)?.id === review;

  await handOff(connection, repository.folder, { to: 'patch' });
  const dir = await handOff(connection, repository.folder, {
    to: 'dir',
    folder: join(repository.folder, '../delivered'),
  });
  expect(filesIn(dir.folder ?? '')).toEqual({ 'a.txt': 'file two\n', 'new.txt': 'file new\n' });
  await handOff(connection, repository.folder, { to: 'branch', paths: ['a.txt'] });
  const withQuarantine = await handOff(connection, repository.folder, { to: 'branch' });
  expect(withQuarantine.plan.quarantined).toHaveLength(1);
  expect(isOpen()).toBe(true);

  const all = await handOff(connection, repository.folder, { to: 'branch', released: ['package.json'] });
  expect(changed(all.branch)).toEqual(['M\ta.txt', 'A\tnew.txt', 'A\tpackage.json']);
  expect(isOpen()).toBe(false);
});

test('the review continues while an accepted file is ignored', async () => {
  const repository = new PersonsRepository();
  const before = { a: '1\n', '.gitignore': 'build\n' };
  const head = repository.commit(before);
  const after = { ...before, a: '2\n', 'build/x': 'x\n' };
  const { connection, rows, row, beginReview, accept } = await handedOverSession(before, after, { head });
  const review = beginReview();
  accept(review, 'a', 'build/x');
  const { plan, endedReview } = await handOff(connection, repository.folder, { to: 'branch' });
  expect([plan.ignored, endedReview]).toEqual([['build/x'], null]);
  expect(rows.findOpen(row.id)?.id).toBe(review);
});

test('everything travels when asked for, and the review stays as it is', async () => {
  const { repository, changed, connection, rows, row, beginReview } = await prepared();
  const review = beginReview();
  const { branch } = await handOff(connection, repository.folder, {
    to: 'branch',
    unreviewed: true,
    released: ['**'],
  });
  expect(changed(branch)).toEqual(['M\ta.txt', 'D\tgone.txt', 'A\tnew.txt', 'A\tpackage.json']);
  expect(rows.findOpen(row.id)).toMatchObject({ id: review, endedAt: null });
});

test('a decision between planning and writing keeps the review open', async () => {
  const { repository, changed, connection, rows, row, beginReview, accept } = await prepared();
  const review = beginReview();
  accept(review, 'a.txt');
  const decidesMeanwhile: typeof connection = {
    callWithBytes: (method, params, options) => {
      if (method === 'handoff/record') accept(review, 'new.txt');
      return connection.callWithBytes(method, params, options);
    },
  };
  const { branch } = await handOff(decidesMeanwhile, repository.folder, { to: 'branch' });
  expect(changed(branch)).toEqual(['M\ta.txt']);
  expect(rows.findOpen(row.id)?.id).toBe(review);
});

test('the message of the commit is the prompt as it was edited', async () => {
  const { repository, connection, events, contents, row } = await prepared();
  const turnId = 'turn-aaaaaaaaaaaaaaaa';
  const prompt = (text: string) => {
    const content = contents.insert(row.id, Buffer.from(text));
    return { inputBytes: content.bytes, content };
  };
  const queued = { turnId, kind: 'command', timeoutMs: 1 } as const;
  const old = { ...queued, inputBytes: 4, content: null };
  events.append(row.id, [
    { type: 'turn.queued', data: { ...queued, ...prompt('Mend it') } },
    { type: 'turn.queued', data: { ...queued, ...prompt('Test it'), turnId: 'turn-bbbbbbbbbbbbbbbb' } },
    // As earlier versions stored it.
    { type: 'turn.queued', data: { ...old, preview: 'An old one', turnId: 'turn-cccccccccccccccc' } },
    { type: 'turn.edited', data: { turnId, ...prompt('Mend all') } },
    { type: 'turn.edited', data: { turnId, ...prompt('Mend\n  the parser') } },
  ]);
  const { plan } = await handOff(connection, repository.folder, { to: 'branch' });
  expect(plan.begun.prompts).toEqual(['Mend the parser', 'Test it', 'An old one']);
});
