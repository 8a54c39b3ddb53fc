import { describe, expect, test } from 'vitest';
import { linkProblem, localNameProblem } from '../../../../extension/transfer/local-names.ts';

const name = (text: string): Buffer => Buffer.from(text);

describe('a name from a workspace on this machine', () => {
  test.each(['a', 'a b', '-rf', 'a\nb', '.gitignore', 'git', '.git-x', 'CON', 'a:b', 'a\\b', 'x.', '...'])(
    'may be %j on Linux',
    (text) => {
      expect(localNameProblem(name(text), 'linux')).toBeUndefined();
    },
  );

  test.each(['', '.', '..', 'a/b', 'a\0b', '/'])('is never %j', (text) => {
    for (const platform of ['linux', 'darwin', 'win32'] as const)
      expect(localNameProblem(name(text), platform)).toBeDefined();
  });

  test.each([
    '.git',
    '.GIT',
    '.Git',
    '.git.',
    '.git ',
    '.g\u200cit',
    '.ｇit',
    'GIT~1',
    '.git::$INDEX_ALLOCATION',
  ])('is not %j, which is a git folder somewhere', (text) => {
    for (const platform of ['linux', 'darwin', 'win32'] as const)
      expect(localNameProblem(name(text), platform)).toMatch(/git/);
  });

  test.each([
    'con',
    'NUL',
    'nul.txt',
    'COM1',
    'lpt9.log',
    'aux .c',
    'a:b',
    'a\\b',
    'a?',
    'a*',
    'x.',
    'x ',
    'a\u0001',
  ])('is not %j on Windows', (text) => {
    expect(localNameProblem(name(text), 'win32')).toBeDefined();
  });

  test('may be any bytes only on Linux', () => {
    expect(localNameProblem(Buffer.from('caf\xe9', 'latin1'), 'linux')).toBeUndefined();
    expect(localNameProblem(Buffer.from('caf\xe9', 'latin1'), 'darwin')).toBeDefined();
  });
});

test.each(['.vscode', '.VSCode', '.mcp.json', '.claude', 'x.code-workspace'])(
  'a name of a workspace on this machine is not %j, which would configure something there',
  (text) => {
    for (const platform of ['linux', 'darwin', 'win32'] as const)
      expect(localNameProblem(name(text), platform)).toMatch(/configuration/);
  },
);

describe('a link from a workspace on this machine', () => {
  test.each([
    ['a', 0],
    ['./a/b', 0],
    ['a/', 0],
    ['../a', 1],
    ['../../a/b', 2],
    ['..', 1],
    ['.', 0],
  ])('may lead to %s from %i folders down', (target, depth) => {
    expect(linkProblem(target, depth, 'linux')).toBeUndefined();
  });

  test.each([
    ['/etc/passwd', 5],
    ['/workspace/a', 5],
    ['', 5],
    ['..', 0],
    ['../a', 0],
    ['../../../a', 2],
    ['./../../a', 1],
    // Behind a link to a folder higher up this is further up than it looks.
    ['a/../b', 5],
    ['a/..', 5],
    ['.git/hooks', 0],
    ['../.GIT', 1],
  ])('must not lead to %j from %i folders down', (target, depth) => {
    expect(linkProblem(target, depth, 'linux')).toBeDefined();
  });

  test('must not use Windows separators on Windows', () => {
    expect(linkProblem('..\\..\\a', 0, 'win32')).toBeDefined();
    expect(linkProblem('C:a', 0, 'win32')).toBeDefined();
  });
});
