import { expect, test } from 'vitest';
import { PlainIgnoreRules } from '../../../protocol/plain-ignore.ts';
import { findCollisions, whyRefused } from '../../../handoff/path-check.ts';
import { matchesPattern } from '../../../protocol/path-patterns.ts';

const utf8 = (text: string): string => Buffer.from(text).toString('latin1');

test.each([
  '.git/config',
  'a/.GIT/x',
  'a/git~1',
  '.git.',
  '.git /x',
  '.g\u200cit/x',
  '.git::$INDEX_ALLOCATION',
  'a\\.git\\x',
])('no repository gets %j', (path) => {
  expect(whyRefused(utf8(path))).toBe('its path names a part of a git repository');
});

test.each(['../a', 'a/../b', 'a//b', './a', '/a', 'a/', 'a\0b', `${'x/'.repeat(300)}x`])(
  '%j is no path of a repository',
  (path) => {
    expect(whyRefused(path)).not.toBeNull();
  },
);

test('ordinary and odd names may travel', () => {
  for (const path of ['.gitignore', 'a b/\xff', '.github/x', 'git', utf8('é')])
    expect(whyRefused(path)).toBeNull();
});

test('paths that some file system takes for one collide, and many of them take no longer', () => {
  const composed = utf8('\u00e9');
  const collisions = findCollisions(
    ['Readme', 'readme', composed, utf8('e\u0301'), 'a', 'a/b'],
    new Set(['readme', utf8('e\u0301'), 'a/b']),
  );
  expect([...collisions.keys()].sort()).toEqual(['a/b', utf8('e\u0301'), 'readme'].sort());
  const many = Array.from({ length: 50_000 }, (_, at) => `folder/file-${at}`);
  const began = performance.now();
  expect(findCollisions(many, new Set(many)).size).toBe(0);
  expect(performance.now() - began).toBeLessThan(3000);
});

test('a file does not replace a folder in which something stays', () => {
  const added = new Set(['lib', 'gone', 'new/deep']);
  const collisions = findCollisions(['lib/kept', 'lib/more/kept', 'gone', 'new/deep', 'new/deep/x'], added);
  expect([...collisions.keys()]).toEqual(['new/deep']);
  expect([...findCollisions(['lib/kept', 'lib', 'gone'], added).keys()]).toEqual(['lib']);
});

test('a pattern names files, folders and stars; an empty one nothing', () => {
  expect(matchesPattern('', 'a')).toBe(false);
  expect(matchesPattern('/', 'a')).toBe(false);
  expect(matchesPattern('src', 'src/a/b')).toBe(true);
  expect(matchesPattern('src', 'src2')).toBe(false);
  expect(matchesPattern('**/*.ts', 'a/b/c.ts')).toBe(true);
  expect(matchesPattern('*.ts', 'a/c.ts')).toBe(false);
  expect(matchesPattern('**', 'a/b')).toBe(true);
  expect(matchesPattern(String.raw`\*.ts`, '*.ts')).toBe(true);
  expect(matchesPattern(String.raw`\*.ts`, 'a.ts')).toBe(false);
  expect(matchesPattern(String.raw`d\*/*.ts`, 'd*/a.ts')).toBe(true);
  // A backslash before any other character is one.
  expect(matchesPattern(String.raw`a\b*`, String.raw`a\bc`)).toBe(true);
  expect(matchesPattern(`${'*a'.repeat(60)}b`, 'a'.repeat(250))).toBe(false);
});

test('plain rules of ignore files; the deepest file decides, and others are left out', () => {
  const rules = new PlainIgnoreRules();
  rules.add('', 'node_modules/\n*.log\n/build\n# note\n(a+)+$\n');
  rules.add('kept', '!*.log\n');
  for (const path of ['node_modules/x/y', 'a/node_modules/z', 'a/b.log', 'build/out'])
    expect(rules.ignores(path), path).toBe(true);
  for (const path of ['a/build/out', 'kept/b.log', 'src/a.ts']) expect(rules.ignores(path), path).toBe(false);
});
