import { expect, test } from 'vitest';
import { countLines } from '../../../extension/page/turn-lines.ts';

const lines = (...all: string[]): Buffer => Buffer.from(`${all.join('\n')}\n`);

test('the lines of a patch are counted, and nothing else that begins like one', () => {
  const patch = lines(
    'diff --git a/a.txt b/a.txt',
    '--- a/a.txt',
    '+++ b/a.txt',
    '@@ -1,3 +1,4 @@ @@ -9,9 +9,9 @@',
    ' kept',
    '--- a list item that was removed',
    '+++ counter;',
    '+@@ -1,5 +1,5 @@',
    ' kept',
    '\\ No newline at end of file',
    'diff --git a/one b/one',
    '@@ -1 +1 @@',
    '-one',
    '+two',
    'diff --git a/p.png b/p.png',
    'GIT binary patch',
    'literal 12',
    '+zcmV-not-a-line',
    '-zcmV-not-a-line',
  );
  expect(countLines(patch)).toEqual({ added: 3, removed: 2 });
  expect(countLines(Buffer.alloc(0))).toEqual({ added: 0, removed: 0 });
});

test('a patch that ends in the middle of a hunk, or lies about its length, ends the count', () => {
  expect(countLines(lines('@@ -0,0 +1,900000000 @@', '+a', '+b'))).toEqual({ added: 2, removed: 0 });
  expect(countLines(Buffer.from('@@ -1,2 +1,2 @@\n+a'))).toEqual({ added: 1, removed: 0 });
});
