import { expect, test } from 'vitest';
import { hunkLabels } from '../../../extension/review/hunk-labels.ts';
import type { Hunk } from '../../../protocol/review.ts';

function hunk(removed: [number, number], added: [number, number], given: Partial<Hunk> = {}): Hunk {
  return {
    id: `h${removed[0]}`,
    what: 'lines',
    removed: { start: removed[0], end: removed[1] },
    added: { start: added[0], end: added[1] },
    state: 'to-review',
    ...given,
  };
}

const texts = (hunks: readonly Hunk[], hiding?: Parameters<typeof hunkLabels>[2]): string[] =>
  hunkLabels({ state: 'to-review', hunks }, 'target', hiding).map(({ line, text }) => `${line} ${text}`);

test('a hunk is labelled on the side that has its lines', () => {
  const hunks = [hunk([0, 1], [0, 1], { state: 'accepted' }), hunk([4, 5], [4, 4], { state: 'rejected' })];
  expect(texts(hunks)).toEqual(['0 ✓ accepted']);
  expect(hunkLabels({ state: 'partial', hunks }, 'base', undefined)).toMatchObject([
    { line: 4, text: '✗ rejected' },
  ]);
});

test('a change without hunks is labelled as a whole', () => {
  expect(texts([])).toEqual(['0 to review']);
});

test('a hunk that the diff editor hides, because only white space at the ends of lines differs, says so', () => {
  const hiding = { base: ['if x:', '  y', 'z', 'end'], target: ['if x:', '    y', 'Z', 'end', ''] };
  const hidden = 'to review: only white space at the ends of lines, which this editor hides';
  const indented = hunk([1, 2], [1, 2]);
  expect(texts([indented], hiding)).toEqual([`1 ${hidden}`]);
  expect(texts([indented])).toEqual(['1 to review']);
  expect(texts([hunk([2, 3], [2, 3])], hiding)).toEqual(['2 to review']);
  // An empty line more is shown.
  expect(texts([hunk([4, 4], [4, 5])], hiding)).toEqual(['4 to review']);
  expect(texts([hunk([1, 3], [1, 3])], hiding)).toEqual(['1 to review']);
});
