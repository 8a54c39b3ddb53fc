import { expect, test } from 'vitest';
import { type LineChange, lineStarts, oneChange } from '../../../supervisor/snapshots/patch/line-changes.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';

const linesOf = (text: string): string[] => {
  const starts = lineStarts(Buffer.from(text));
  return starts.slice(0, -1).map((start, at) => text.slice(start, starts[at + 1]));
};
const changed = (before: string, after: string): LineChange[] =>
  oneChange(Buffer.from(before), Buffer.from(after));

test.each([
  ['a\nb\nc\n', 'a\nB\nc\n', [1, 2, 1, 2]],
  ['a\nc\n', 'a\nb\nc\n', [1, 1, 1, 2]],
  ['', 'a', [0, 0, 0, 1]],
  ['x\nb', 'y\nb', [0, 1, 0, 1]],
  ['a\nb', 'a\nb\n', [1, 2, 1, 2]],
])('one change from the first to the last difference: %j to %j', (before, after, expected) => {
  expect(changed(before, after).flatMap((one) => Object.values(one) as number[])).toEqual(expected);
});

test('one change turns any text into any other', () => {
  const random = seededRandom(3);
  const text = (): string =>
    Array.from({ length: Math.floor(random() * 12) }, () => 'a\n'.charAt(Math.floor(random() * 2))).join('');
  for (let round = 0; round < 2000; round += 1) {
    const [before, after] = [text(), text()];
    const lines = linesOf(before);
    for (const { beforeStart, beforeEnd, afterStart, afterEnd } of changed(before, after))
      lines.splice(beforeStart, beforeEnd - beforeStart, ...linesOf(after).slice(afterStart, afterEnd));
    expect(lines.join(''), JSON.stringify([before, after])).toBe(after);
  }
});
