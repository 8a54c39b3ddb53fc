import { describe, expect, test } from 'vitest';
import { insertMention, isMentionable, mentionAt, promptParts } from '../../../webview/mentions.ts';

describe('the mention that a person is writing', () => {
  test.each([
    ['@', { start: 0, query: '' }],
    ['look at @src/pa', { start: 8, query: 'src/pa' }],
    ['first line\n(@a', { start: 12, query: 'a' }],
    ['see @"my fi', { start: 4, query: 'my fi' }],
    ['me@example.org', null],
    ['@a b', null],
    ['@"a b" ', null],
    ['', null],
  ])('%j', (text, mention) => {
    expect(mentionAt(text, text.length)).toEqual(mention);
  });

  test('is the one before the caret, not the last one of the text', () => {
    expect(mentionAt('@a and @b', 2)).toEqual({ start: 0, query: 'a' });
  });

  test.each([
    ['look at @pa', 'src/parser.ts', 'look at @src/parser.ts '],
    ['@', 'a b.txt', '@"a b.txt" '],
    ['@"a', 'a b.txt', '@"a b.txt" '],
  ])('%j is written out with %s', (text, path, whole) => {
    const mention = mentionAt(text, text.length);
    if (mention === null) throw new Error('there is no mention');
    expect(insertMention(text, mention, path)).toEqual({ text: whole, caret: whole.length });
  });

  test('leaves what is behind it alone', () => {
    const mention = mentionAt('@a is wrong', 2);
    if (mention === null) throw new Error('there is no mention');
    expect(insertMention('@a is wrong', mention, 'a.ts')).toEqual({ text: '@a.ts is wrong', caret: 6 });
  });
});

describe('the files that a prompt mentions', () => {
  const files = (prompt: string): string[] =>
    promptParts(prompt).flatMap((part) => (part.kind === 'file' ? [part.path] : []));

  test('are links; addresses and names are text', () => {
    expect(promptParts('Fix @src/a.ts, and ask @anna (me@x.org).')).toEqual([
      { kind: 'text', text: 'Fix ' },
      { kind: 'file', text: '@src/a.ts', path: 'src/a.ts' },
      { kind: 'text', text: ', and ask @anna (me@x.org).' },
    ]);
    expect(files('@"a b.txt" @c/ @d.')).toEqual(['a b.txt', 'c/']);
  });

  test('give the whole prompt again, whatever is in it', () => {
    for (const prompt of ['', '@', '@@a.b', '@"', '@"a"b', 'a\n@b.c\n', '@a.b@c.d', ' @/ '.repeat(500)]) {
      const whole = promptParts(prompt).map(({ text }) => text);
      expect(whole.join('')).toBe(prompt);
    }
  });
});

test('a name that hides or reorders text, or ends the line, is not offered', () => {
  for (const path of ['a"b', 'a\nb', 'a\u202eb', 'a\u0000b', '']) expect(isMentionable(path)).toBe(false);
  for (const path of ['a b.txt', 'Grüße/世界.md']) expect(isMentionable(path)).toBe(true);
});
