import { expect, test, vi } from 'vitest';
import { targetsOf } from '../../../extension/review/change-targets.ts';
import type { OpenReviews } from '../../../extension/review/open-reviews.ts';

vi.mock('vscode', () => ({ Uri: Object }));

const REVIEWS = { all: [] } as unknown as OpenReviews;
const review = (id: string) => ({ session: { id } });
const change = (of: object, path: string) => ({ review: of, file: { path } });
const ONE = review('one');
const [A, B, C] = [change(ONE, 'a'), change(ONE, 'b'), change(ONE, 'c')];
const FOLDER = { review: ONE, files: [B.file, C.file] };

function paths(...args: readonly unknown[]): string[] {
  return targetsOf(REVIEWS, args).files.map(({ path }) => path);
}

test('a button of an entry is about the selection only if the entry is in it', () => {
  expect(paths(A, [A, B])).toEqual(['a', 'b']);
  expect(paths(C, [A, B])).toEqual(['c']);
  expect(paths(A, undefined)).toEqual(['a']);
});

test('a change that is named twice is decided once', () => {
  expect(paths(B, [B, FOLDER])).toEqual(['b', 'c']);
  expect(targetsOf(REVIEWS, [B, [B, FOLDER]]).what).toBe('branch');
});

test('a selection over two reviews is refused: a decision belongs to one', () => {
  const other = change(review('two'), 'a');
  expect(() => paths(A, [A, other])).toThrow('The selection has changes of more than one review');
  expect(() => paths(A, other)).toThrow('The selection has changes of more than one review');
});
