import MarkdownIt from 'markdown-it';
import { describe, expect, test } from 'vitest';
import { GrowingMarkdown } from '../../../webview/markdown-parts.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

const parser = new MarkdownIt({ html: false });
const PIECES = [
  ...['A word, ', '**bold**', '\n', '\n\n', '# Head', '***', 'a**', '- one\n', '  more\n', '1. two\n'],
  ...[
    '```ts\n',
    '```',
    '``x`',
    '> quote\n',
    'lazy\n',
    '| a | b |\n',
    '|---|---|\n',
    '    code\n',
    '===\n',
    '---\n',
  ],
  ...[
    '[f]: src/a.ts "It"\n',
    '[f]',
    '[f]: other',
    '\r\n',
    '\u001b[31m',
    '\u001b]0;t',
    '\u0007',
    '😀',
    '\u202e',
    '\ue000',
  ],
  ...['A longer sentence that fills the part in which it stands. '.repeat(30), '\n\nWords. '.repeat(40)],
];

describe('a Markdown text that grows', () => {
  test.each(Array.from({ length: soakCount(40, 2000) }, (_, n) => n))(
    'has the parts that it would have if it were whole (%d)',
    (seed) => {
      const random = seededRandom(seed);
      const growing = new GrowingMarkdown(parser);
      let text = '';
      for (let step = 0; step < 60; step += 1) {
        text += PIECES[Math.floor(random() * PIECES.length)] ?? '';
        if (random() < 0.3) continue;
        const whole = new GrowingMarkdown(parser).parts(text);
        expect(growing.parts(text), JSON.stringify(text)).toEqual(whole);
      }
    },
  );

  test('takes back a part whose first line becomes another one', () => {
    const growing = new GrowingMarkdown(parser);
    const long = 'Words of a paragraph. '.repeat(200).trim();
    const cutOf = (text: string): number[] => growing.parts(text).map(({ source }) => source.length);
    expect(cutOf(`${long}\n***`)).toEqual([long.length, 3]);
    expect(cutOf(`${long}\n***bold**`)).toEqual([long.length + 10]);
  });

  test('is parsed only at its end', () => {
    const parsed: number[] = [];
    const counting = new MarkdownIt({ html: false });
    const { parse } = counting.block;
    counting.block.parse = (source, ...rest) => {
      parsed.push(source.length);
      parse.call(counting.block, source, ...rest);
    };
    const growing = new GrowingMarkdown(counting);
    let text = 'A paragraph of some words.\n\n'.repeat(4000);
    growing.parts(text);
    parsed.length = 0;
    for (let word = 0; word < 300; word += 1) growing.parts((text += 'and so on, '));
    // The last parts, and the words that came.
    expect(Math.max(...parsed)).toBeLessThan(3 * 2000 + 300 * 11);
    // Another text begins from nothing.
    expect(growing.parts('Another one')).toEqual([{ source: 'Another one', references: '{}' }]);
  });

  test('is shown as it is when it is very long, in parts of whole lines', () => {
    const lines = Array.from({ length: 30_000 }, (_, n) => `Line **${n}**`);
    const parts = new GrowingMarkdown(parser).parts(lines.join('\n'));
    expect(parts.map(({ source }) => source).join('\n')).toBe(lines.join('\n'));
    expect(Math.max(...parts.map(({ source }) => source.length))).toBeLessThan(20_100);
    expect(parts.every(({ references }) => references === null)).toBe(true);
  });
});
