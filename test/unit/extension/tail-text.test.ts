import { expect, test } from 'vitest';
import { tailText } from '../../../extension/files/tail-text.ts';

const file = { path: '/workspace/big.log', size: 60 * 2 ** 20 };

test('the end of a file starts with a heading and a whole line', () => {
  const text = tailText(Buffer.from('of a line\nthe next\nthe last'), file);
  expect(text).toMatch(
    /^\[Holdfast: the last 0\.0 MB of \/workspace\/big\.log, which has 60\.0 MB\..*\]\nthe next\nthe last$/,
  );
});

test('the text starts with a whole character if a line is longer than what is shown', () => {
  const bytes = Buffer.concat([Buffer.from('é').subarray(1), Buffer.from('x'.repeat(100_000))]);
  const text = tailText(bytes, file) ?? '';
  expect(text.split('\n')[1]).toBe('x'.repeat(100_000));
});

test('a file that has shrunk meanwhile is shown from its start', () => {
  expect(tailText(Buffer.from('one\ntwo\n'), { path: '/workspace/a', size: 8 })).toMatch(/\]\none\ntwo\n$/);
});

test('binary content is not shown, and a file name adds no line to the heading', () => {
  expect(tailText(Buffer.from('a\0b'), file)).toBeUndefined();
  expect(tailText(Buffer.from('a'), { path: '/workspace/x\ny', size: 1 })?.split('\n')).toHaveLength(2);
});
