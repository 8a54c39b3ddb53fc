import { performance } from 'node:perf_hooks';
import { expect, test } from 'vitest';
import { withoutEscapes } from '../../../extension/base/without-escapes.ts';

test.each([
  ['\u001b[1;31mred\u001b[0m plain', 'red plain'],
  ['\u001b]0;title\u0007text', 'text'],
  ['\u001b]8;;https://example.org\u001b\\link\u001b]8;;\u001b\\', 'link'],
  ['line\u001b[2K\u001b[1Gnext', 'linenext'],
  ['a\u001bMb', 'ab'],
  ['no escapes', 'no escapes'],
])('of %j %j is left', (text, left) => {
  expect(withoutEscapes(text)).toBe(left);
});

test.each(['\u001b]', '\u001b[', '\u001b[0;', '\u001b]8;;x'])(
  'a megabyte of unfinished %j takes no time',
  (unfinished) => {
    const start = performance.now();
    withoutEscapes(unfinished.repeat(2 ** 20 / unfinished.length));
    withoutEscapes(unfinished + '0'.repeat(2 ** 20));
    expect(performance.now() - start).toBeLessThan(2_000);
  },
);
