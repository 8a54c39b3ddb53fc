import { describe, expect, test } from 'vitest';
import {
  workspaceCandidates,
  pathReferences,
  spacedReferences,
} from '../../../extension/terminals/path-references.ts';

/** `path:line:column`, and the very text that is the link. */
function found(line: string): string[] {
  return pathReferences(line).map(
    ({ start, length, path, line: at, column }) =>
      `${path}|${at ?? ''}|${column ?? ''}|${line.slice(start, start + length)}`,
  );
}

describe('paths in a line of output', () => {
  test.each([
    ['src/a.ts:12:5 - error TS2304', ['src/a.ts|12|5|src/a.ts:12:5']],
    ['src/a.ts(12,5): error TS2304: x', ['src/a.ts|12|5|src/a.ts']],
    ['  File "/workspace/app/main.py", line 7, in f', ['/workspace/app/main.py|7||/workspace/app/main.py']],
    [' --> src/lib.rs:3:9', ['src/lib.rs|3|9|src/lib.rs:3:9']],
    ['    at run (/workspace/x.js:10:3)', ['/workspace/x.js|10|3|/workspace/x.js:10:3']],
    ['    at file:///workspace/a%20b.mjs:1:7', ['/workspace/a b.mjs|1|7|file:///workspace/a%20b.mjs:1:7']],
    ['tests/test_a.py::test_b FAILED', ['tests/test_a.py|||tests/test_a.py::test_b']],
    ['make: *** [Makefile:12: all] Error 2', ['Makefile|12||Makefile:12']],
    ["cannot open 'a folder/some file.txt'.", ['a folder/some file.txt|||a folder/some file.txt']],
    ['see /workspace/README.md.', ['/workspace/README.md|||/workspace/README.md']],
    ['+++ b/src/žluťoučký.ts', ['b/src/žluťoučký.ts|||b/src/žluťoučký.ts']],
    ['package.json  README.md', ['package.json|||package.json', 'README.md|||README.md']],
    ['/etc/passwd', ['/etc/passwd|||/etc/passwd']],
  ])('%s', (line, expected) => {
    expect(found(line)).toEqual(expected);
  });

  test.each([
    'https://example.com/a/b.html',
    'command:workbench.action.x',
    'vscode://x/y',
    '12/7 1.2.3 10:20:30',
    'and/or'.replace('/', ' / '),
    '~/secret',
    'plain words, and more',
    String.raw`C:\dir\file`,
  ])('none in %s', (line) => {
    expect(found(line)).toEqual([]);
  });

  test.each([
    ['src/my file.ts:12:5: error', ['src/my file.ts|12|5|src/my file.ts:12:5']],
    ['  two  spaces here.md:3', []],
    ['a b/c.ts:7: found', ['a b/c.ts|7||a b/c.ts:7']],
    [
      '    at run (/workspace/with space/x.js:10:3)',
      ['/workspace/with space/x.js|10|3|/workspace/with space/x.js:10:3'],
    ],
    ['    at run (/workspace/x.js:10:3)', []],
    ['src/a.ts:12:5', []],
    ['at 10:20:30 nothing', []],
    ['"a b.ts:3"', []],
  ])('with spaces: %s', (line, expected) => {
    const places = spacedReferences(line).map(
      ({ start, length, path, line: at, column }) =>
        `${path}|${at ?? ''}|${column ?? ''}|${line.slice(start, start + length)}`,
    );
    expect(places).toEqual(expected);
  });

  test('an endless line takes no time', () => {
    const before = process.cpuUsage();
    for (const piece of ['x', 'a/', '"', ':1', '(', 'a.b:1:1 ', './', '..', ' a', '(a ', ' ']) {
      pathReferences(piece.repeat(2 ** 20));
      spacedReferences(piece.repeat(2 ** 20));
    }
    // CPU time in µs, independent of other load.
    expect(process.cpuUsage(before).user).toBeLessThan(500_000);
    expect(pathReferences('a/b.c '.repeat(100_000))).toHaveLength(20);
  });
});

describe('the workspace paths that a path may mean', () => {
  test.each([
    ['/workspace/a.ts', ['/workspace/a.ts']],
    ['src/../a.ts', ['/workspace/a.ts']],
    ['./a.ts', ['/workspace/a.ts']],
    ['b/src/a.ts', ['/workspace/b/src/a.ts', '/workspace/src/a.ts']],
    ['/etc/passwd', []],
    ['../etc/passwd', []],
    ['/workspace/../etc/passwd', []],
    ['/workspaces/x', []],
  ])('%s', (path, expected) => {
    expect(workspaceCandidates(path)).toEqual(expected);
  });
});
