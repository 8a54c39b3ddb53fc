import { describe, expect, test } from 'vitest';
import { type Problem, ProblemReader } from '../../../extension/checks/problem-reader.ts';

function problemsIn(text: string, piece = text.length): string[] {
  const found: Problem[] = [];
  const reader = new ProblemReader((problem) => found.push(problem));
  for (let at = 0; at < text.length; at += Math.max(1, piece)) reader.read(text.slice(at, at + piece));
  reader.end();
  return found.map(
    ({ path, line, column, severity, message }) => `${path}|${line}|${column ?? ''}|${severity}|${message}`,
  );
}

describe('the problems in the output of a check', () => {
  test.each<[string, string, string[]]>([
    [
      'tsc',
      'src/a.ts(3,7): error TS2322: Type is wrong.\r\nFound 1 error.\r\n',
      ['src/a.ts|3|7|error|error TS2322: Type is wrong.'],
    ],
    [
      'tsc, pretty',
      '\u001b[96msrc/a.ts\u001b[0m:\u001b[93m3\u001b[0m:\u001b[93m7\u001b[0m - \u001b[91merror\u001b[0m TS1: No.\n\n3 let x\n',
      ['src/a.ts|3|7|error|error TS1: No.'],
    ],
    [
      'gcc',
      'main.c: In function main:\nmain.c:4:3: warning: unused\nmain.c:9:1: error: expected ;\n',
      ['main.c|4|3|warning|warning: unused', 'main.c|9|1|error|error: expected ;'],
    ],
    [
      'eslint',
      '\n/workspace/src/a.js\n  3:5  error    no-var is on  no-var\n  9:1  warning  long line  max-len\n\n✖ 2 problems\n',
      [
        '/workspace/src/a.js|3|5|error|no-var is on  no-var',
        '/workspace/src/a.js|9|1|warning|long line  max-len',
      ],
    ],
    [
      'python',
      'Traceback (most recent call last):\n  File "/usr/lib/python3/x.py", line 9, in <module>\n  File "/workspace/app.py", line 3, in f\n    raise ValueError("no")\nValueError: no\n',
      ['/workspace/app.py|3||error|ValueError: no'],
    ],
    [
      'pytest',
      'E       assert 1 == 2\n\ntests/test_a.py:4: AssertionError\n',
      ['tests/test_a.py|4||error|AssertionError'],
    ],
    [
      'rustc',
      'error[E0308]: mismatched types\n --> src/lib.rs:3:9\n  |\n3 | let x\n',
      ['src/lib.rs|3|9|error|error[E0308]: mismatched types'],
    ],
    [
      'node',
      'AssertionError [ERR_ASSERTION]: not so\n    at f (/workspace/t.js:10:3)\n    at node:internal/main:1:2\n',
      ['/workspace/t.js|10|3|error|AssertionError [ERR_ASSERTION]: not so'],
    ],
    ['go', '    a_test.go:12: got 1\n', ['a_test.go|12||error|got 1']],
    ['grep and prose', 'see src/a.ts:3 for more\nall of 12 tests passed in 1:20\n', []],
  ])('%s', (_, text, expected) => {
    expect(problemsIn(text)).toEqual(expected);
    expect(problemsIn(text, 3)).toEqual(expected);
  });

  test('a line of a hundred megabytes takes no memory and little time', () => {
    const found: Problem[] = [];
    const reader = new ProblemReader((problem) => found.push(problem));
    const began = performance.now();
    for (let n = 0; n < 1600; n += 1) reader.read('a.ts:1:1: x '.repeat(5461));
    reader.read('\na.ts:2:1: y\n');
    reader.end();
    expect(performance.now() - began).toBeLessThan(5000);
    expect(found.at(-1)).toMatchObject({ line: 2 });
  });

  test('stop after a thousand', () => {
    expect(problemsIn('a.ts:1:1: x\n'.repeat(5000))).toHaveLength(1000);
  });
});
