import { expect, test } from 'vitest';
import { hasLines, linesIn, pathOn, threadOf } from '../../../extension/review/comment-threads.ts';
import type { ReviewComment } from '../../../protocol/review-comments.ts';
import type { ReviewFile } from '../../../protocol/review.ts';

const FILE: ReviewFile = {
  ...{ path: '/workspace/b', id: 'a'.repeat(24), kind: 'renamed', oldPath: '/workspace/a', type: 'file' },
  ...{ oldBytes: 1, newBytes: 1, oldMode: 0o644, newMode: 0o644, state: 'to-review', again: false },
  ...{ byHunk: false, below: 0, risks: [] },
};
const COMMENT: ReviewComment = {
  ...{ id: 'cmt-aaaaaaaaaaaaaaaa', path: '/workspace/b', side: 'target', lines: { start: 4, end: 6 } },
  ...{ quote: 'one\ntwo\n', text: 'why?', createdAt: '2026-01-01T00:00:00.000Z', sent: null },
  ...{ now: { lines: { start: 7, end: 9 } }, addressed: false },
};
const SENT = { turnId: 'turn-aaaaaaaaaaaaaaaa', at: '2026-01-01T00:00:00.000Z' };

test('a comment is shown where its lines are now', () => {
  expect(threadOf(COMMENT, [FILE])).toEqual({
    ...{ id: COMMENT.id, side: 'target', file: FILE, path: '/workspace/b', lines: { start: 7, end: 9 } },
    ...{ label: 'Not sent', isSent: false, isAddressed: false },
    entries: [{ author: 'You', text: 'why?' }],
  });
});

test('one whose lines are gone shows them, where they were', () => {
  const found = threadOf({ ...COMMENT, now: { lines: null } }, [FILE]);
  expect(found).toMatchObject({ label: 'Outdated, not sent', lines: { start: 4, end: 6 } });
  expect(found.entries).toEqual([
    { author: 'The lines as they were', text: 'one\ntwo' },
    { author: 'You', text: 'why?' },
  ]);
});

test('a sent one says so, and when its lines have changed since it is addressed', () => {
  expect(threadOf({ ...COMMENT, sent: SENT }, [FILE])).toMatchObject({ label: 'Sent', isSent: true });
  const addressed = { ...COMMENT, sent: SENT, now: { lines: null }, addressed: true };
  expect(threadOf(addressed, [FILE])).toMatchObject({ label: 'Addressed', isAddressed: true });
  expect(threadOf({ ...addressed, addressed: false, side: 'base' }, [FILE]).label).toBe('Outdated, sent');
});

test('the base of a renamed file has its old path, and what is not in the review has no change', () => {
  expect(pathOn(FILE, 'base')).toBe('/workspace/a');
  expect(threadOf({ ...COMMENT, side: 'base' }, [FILE]).file).toBeNull();
  expect(threadOf({ ...COMMENT, side: 'base', path: '/workspace/a' }, [FILE]).file).toBe(FILE);
});

test('a range that ends before the first character of a line is not about that line', () => {
  expect(linesIn({ line: 2 }, { line: 4, character: 0 })).toEqual({ start: 2, end: 4 });
  expect(linesIn({ line: 2 }, { line: 4, character: 1 })).toEqual({ start: 2, end: 5 });
  expect(linesIn({ line: 2 }, { line: 2, character: 0 })).toEqual({ start: 2, end: 3 });
});

test('modes, links and changed types have no lines to comment on', () => {
  expect(hasLines(FILE)).toBe(true);
  expect(hasLines({ kind: 'mode', type: 'file' })).toBe(false);
  expect(hasLines({ kind: 'typechange', type: 'file' })).toBe(false);
  expect(hasLines({ kind: 'added', type: 'symlink' })).toBe(false);
});
