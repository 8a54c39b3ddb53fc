import { describe, expect, test } from 'vitest';
import type { Hunk } from '../../../protocol/review.ts';
import { textsOf } from '../../../extension/review/change-texts.ts';
import {
  badgeOf,
  describeChange,
  groupOf,
  hunkAt,
  inReviewOrder,
  neighbour,
  neighbourHunk,
  partsIn,
} from '../../../extension/review/review-model.ts';
import { reviewFile } from '../../fixtures/reviews/review-file.ts';

function hunk(
  id: string,
  removed: [number, number],
  added: [number, number],
  given: Partial<Hunk> = {},
): Hunk {
  const [removedStart, removedEnd] = removed;
  const [addedStart, addedEnd] = added;
  return {
    id,
    what: 'lines',
    removed: { start: removedStart, end: removedEnd },
    added: { start: addedStart, end: addedEnd },
    state: 'to-review',
    ...given,
  };
}

describe('the order of a review', () => {
  const files = [
    reviewFile('/workspace/a'),
    reviewFile('/workspace/b', { state: 'accepted' }),
    reviewFile('/workspace/c', { state: 'partial' }),
    reviewFile('/workspace/z', { risks: ['executes', 'large'] }),
    reviewFile('/workspace/y', { risks: ['ci'] }),
  ];

  test('begins with what may run on the machine, and leaves out what is decided', () => {
    expect(inReviewOrder(files).map(({ path }) => path)).toEqual([
      '/workspace/y',
      '/workspace/z',
      '/workspace/a',
      '/workspace/c',
    ]);
  });

  test('each change is in one group', () => {
    expect(files.map(groupOf)).toEqual(['toReview', 'accepted', 'toReview', 'closely', 'closely']);
    expect(groupOf(reviewFile('/workspace/m', { state: 'mixed', risks: ['executes'] }))).toBe('mixed');
  });

  test('generated files and tests come last, in a group of their own, unless they need care', () => {
    const tests = [
      'test/a.ts',
      'src/__tests__/a.ts',
      'a.test.ts',
      'a_spec.rb',
      'test_a.py',
      'src/ParserTest.java',
    ];
    const plain = ['latest.ts', 'contest/a.ts', 'testing.md', 'attest.py', 'protest_a.py', 'Test.java/a'];
    for (const path of tests)
      expect([path, groupOf(reviewFile(`/workspace/${path}`))]).toEqual([path, 'aside']);
    for (const path of plain)
      expect([path, groupOf(reviewFile(`/workspace/${path}`))]).toEqual([path, 'toReview']);
    const generated = reviewFile('/workspace/a.min.js', { risks: ['generated'] });
    const hook = reviewFile('/workspace/test/hook', { risks: ['executes', 'generated'] });
    expect([generated, hook].map(groupOf)).toEqual(['aside', 'closely']);
    expect(groupOf({ ...generated, state: 'accepted' })).toBe('accepted');
    expect(inReviewOrder([generated, ...files, hook]).map(({ path }) => path)).toEqual([
      ...['/workspace/test/hook', '/workspace/y', '/workspace/z'],
      ...['/workspace/a', '/workspace/c', '/workspace/a.min.js'],
    ]);
  });

  test('continues after the change that is shown, decided or not', () => {
    expect(neighbour(files, '/workspace/z', 1)?.path).toBe('/workspace/a');
    expect(neighbour(files, '/workspace/z', -1)?.path).toBe('/workspace/y');
    expect(neighbour(files, '/workspace/b', 1)?.path).toBe('/workspace/c');
    expect(neighbour(files, '/workspace/b', -1)?.path).toBe('/workspace/a');
    expect(neighbour(files, '/workspace/c', 1)).toBeUndefined();
    expect(neighbour(files, '', 1)?.path).toBe('/workspace/y');
    expect(neighbour([reviewFile('/workspace/b', { state: 'accepted' })], '/workspace/b', 1)).toBeUndefined();
  });

  test('what was decided last leads back to the first that is left', () => {
    const decided = [reviewFile('/workspace/a'), reviewFile('/workspace/b', { state: 'accepted' })];
    expect(neighbour(decided, '/workspace/b', 1)?.path).toBe('/workspace/a');
  });
});

test('a badge has two characters at most, and the tooltip says what they mean', () => {
  const risky = reviewFile('/workspace/x', { kind: 'added', again: true, risks: ['executes', 'large'] });
  expect(badgeOf(risky)).toBe('A!');
  expect(badgeOf(reviewFile('/workspace/x', { kind: 'renamed', risks: ['large'] }))).toBe('R');
  expect(describeChange(risky)).toBe(
    'Added, to review, changed since you decided · may run on your machine, large',
  );
});

describe('hunks', () => {
  const replaced = hunk('11111111', [2, 4], [2, 4]);
  const removal = hunk('22222222', [6, 8], [6, 6]);
  const addition = hunk('33333333', [12, 12], [10, 13]);
  const uneven = hunk('44444444', [20, 21], [21, 24]);
  const hunks = [replaced, removal, addition, uneven];

  test('are found at the cursor on either side', () => {
    expect(hunkAt(hunks, 'target', 3)).toBe(replaced);
    expect(hunkAt(hunks, 'target', 4)).toBeUndefined();
    expect(hunkAt(hunks, 'base', 7)).toBe(removal);
    expect(hunkAt(hunks, 'target', 6)).toBe(removal);
    expect(hunkAt(hunks, 'target', 5)).toBe(removal);
    expect(hunkAt(hunks, 'base', 12)).toBe(addition);
  });

  test('a change of the mode is found at the first line, if no text has changed there', () => {
    const mode = hunk('55555555', [0, 0], [0, 0], { what: 'mode' });
    expect(hunkAt([mode, replaced], 'target', 0)).toBe(mode);
    expect(hunkAt([mode, hunk('66666666', [0, 1], [0, 1])], 'target', 0)?.id).toBe('66666666');
    expect(hunkAt([mode], 'target', 1)).toBeUndefined();
  });

  test('the next one is the next that is not decided', () => {
    const some = [replaced, { ...removal, state: 'accepted' as const }, addition];
    expect(neighbourHunk(some, 2, 1)).toBe(addition);
    expect(neighbourHunk(some, 10, 1)).toBeUndefined();
    expect(neighbourHunk(some, 10, -1)).toBe(replaced);
    expect(neighbourHunk(some, 2, -1)).toBeUndefined();
  });

  test('a selection takes hunks that it covers as a whole', () => {
    expect(partsIn(hunks, 'target', { start: 0, end: 9 })).toEqual([{ hunks: ['11111111', '22222222'] }]);
    expect(partsIn(hunks, 'base', { start: 6, end: 8 })).toEqual([{ hunks: ['22222222'] }]);
    expect(partsIn(hunks, 'target', { start: 7, end: 9 })).toEqual([]);
  });

  test('a selected line of as many goes with the line that it replaces', () => {
    expect(partsIn(hunks, 'target', { start: 3, end: 5 })).toEqual([
      { lines: { hunk: '11111111', removed: { start: 3, end: 4 }, added: { start: 3, end: 4 } } },
    ]);
    expect(partsIn(hunks, 'base', { start: 2, end: 3 })).toEqual([
      { lines: { hunk: '11111111', removed: { start: 2, end: 3 }, added: { start: 2, end: 3 } } },
    ]);
  });

  test('some of more lines replace all that the hunk removes', () => {
    expect(partsIn(hunks, 'target', { start: 22, end: 23 })).toEqual([
      { lines: { hunk: '44444444', removed: { start: 20, end: 21 }, added: { start: 22, end: 23 } } },
    ]);
  });
});

describe('the texts of a change', () => {
  const bytes = (text: string) => ({ size: Buffer.byteLength(text), bytes: Buffer.from(text) });
  const modified = reviewFile('/workspace/a');

  test('show a return that the editor would hide or take for a line of its own', () => {
    expect(textsOf(modified, bytes('a\nb\n'), bytes('a\r\nb\r\n'))).toEqual({
      base: 'a\nb\n',
      target: 'a\u240d\nb\u240d\n',
    });
    expect(textsOf(modified, bytes('a\n'), bytes('a\rexit 1\n')).target).toBe('a\u240dexit 1\n');
    expect(textsOf(modified, bytes('a\r\n'), bytes('b\r\n')).target).toBe('b\r\n');
  });

  test('say what cannot be shown', () => {
    expect(textsOf(modified, null, bytes('\0')).target).toContain('Binary file of 1 bytes');
    const large = { size: 5 * 2 ** 20, bytes: Buffer.alloc(4 * 2 ** 20, 'a') };
    expect(textsOf(modified, null, large).target).toContain('File of 5.0 MB');
    expect(textsOf(reviewFile('/workspace/a', { kind: 'mode', newMode: 0o755 }), null, null)).toEqual({
      base: 'File mode rw-r--r-- (644)\n',
      target: 'File mode rwxr-xr-x (755)\n',
    });
  });
});
