import { expect, test } from 'vitest';
import { reviewFixture } from '../../fixtures/reviews/review-fixture.ts';
import { Link } from '../../fixtures/snapshots/small-tree.ts';
import type { SmallTree } from '../../fixtures/snapshots/small-tree.ts';

async function reviewOf(before: SmallTree, after: SmallTree) {
  const at = reviewFixture();
  at.sidecar.tree = before;
  await at.take();
  await at.open(after);
  return {
    ...at,
    /** The accepted file, or the code of the error; the same once the accepted tree is stored. */
    accepted: async (path: string): Promise<string> => {
      const read = (): Promise<string> =>
        at.read(path, 'accepted').catch((error: unknown) => {
          if (error instanceof Error && 'code' in error) return String(error.code);
          throw error;
        });
      const found = await read();
      await at.tree();
      expect(await read()).toBe(found);
      return found;
    },
  };
}

test('a file that became a folder: what is in it is accepted with it', async () => {
  const at = await reviewOf({ a: 'file\n' }, { a: { below: 'new\n' } });
  expect(await at.accepted('a')).toBe('file\n');
  expect(await at.accepted('a/below')).toBe('file_not_a_directory');
  await at.decide('accept', 'a');
  expect(await at.accepted('a')).toBe('file_is_a_directory');
  expect(await at.accepted('a/below')).toBe('new\n');
});

test('a folder that became a file: what was in it goes with it', async () => {
  const at = await reviewOf({ a: { below: 'old\n' } }, { a: 'file\n' });
  expect(await at.accepted('a/below')).toBe('old\n');
  await at.decide('accept', 'a');
  expect(await at.accepted('a/below')).toBe('file_not_a_directory');
  expect(await at.accepted('a')).toBe('file\n');
});

test('a file that became a link leads to what is accepted there, and not to what the agent has there', async () => {
  const at = await reviewOf(
    { a: 'a\n', b: '1\n2\n3\n4\n5\n6\n' },
    { a: new Link('b'), b: 'x\n2\n3\n4\n5\ny\n' },
  );
  expect(await at.accepted('a')).toBe('a\n');
  await at.decide('accept', 'a');
  expect(await at.accepted('a')).toBe('1\n2\n3\n4\n5\n6\n');
  const { path, id: seen } = await at.file('b');
  const [first] = await at.hunks('b');
  const decisions = [{ path, seen, hunks: [first?.id ?? ''] }];
  await at.decisions().decide(at.session(), { verdict: 'accept', decisions });
  expect(await at.accepted('b')).toBe('x\n2\n3\n4\n5\n6\n');
  expect(await at.accepted('a')).toBe('x\n2\n3\n4\n5\n6\n');
});

test('below a link to a folder are its accepted files', async () => {
  const folder = { file: 'old\n', same: 'same\n' };
  const at = await reviewOf(
    { folder, link: new Link('folder') },
    { folder: { ...folder, file: 'new\n' }, link: new Link('folder') },
  );
  expect(await at.accepted('link/same')).toBe('same\n');
  expect(await at.accepted('link/file')).toBe('old\n');
  await at.decide('accept', 'folder/file');
  expect(await at.accepted('link/file')).toBe('new\n');
});

test('a renamed file is no longer where it was once that is accepted', async () => {
  const at = await reviewOf({ old: 'the same text\n', keep: '\n' }, { now: 'the same text\n', keep: '\n' });
  expect(await at.accepted('old')).toBe('the same text\n');
  expect(await at.accepted('now')).toBe('file_not_found');
  await at.decide('accept', 'now');
  expect(await at.accepted('old')).toBe('file_not_found');
  expect(await at.accepted('now')).toBe('the same text\n');
});
