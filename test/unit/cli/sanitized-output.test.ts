import { describe, expect, test } from 'vitest';
import { OutputSanitizer } from '../../../cli/terminal/output-sanitizer.ts';

/** In pieces of every size: what comes out must not depend on them. */
function pass(text: string | Buffer, replayed = false): string {
  const bytes = Buffer.from(text);
  const whole = new OutputSanitizer().sanitize(bytes, replayed).toString('latin1');
  for (const size of [1, 2, 3, 7]) {
    const inert = new OutputSanitizer();
    let parts = '';
    for (let at = 0; at < bytes.length; at += size)
      parts += inert.sanitize(bytes.subarray(at, at + size), replayed).toString('latin1');
    expect(parts).toBe(whole);
  }
  return Buffer.from(whole, 'latin1').toString('utf8');
}

describe('what a sandboxed program writes, on its way to a terminal', () => {
  test.each([
    ['text', 'plain text\r\n'],
    ['Unicode', 'žluťoučký 🐎 日本語 Â£ \u00a0'],
    ['colours, cursor, screens, mouse', '\x1b[1;38;2;1;2;3mx\x1b[0m\x1b[2J\x1b[10;5H\x1b[?1049h\x1b[?1006h'],
    ['bracketed paste, questions', '\x1b[?2004h\x1b[6n\x1b[c\x1b[?u'],
    ['character sets, save, reset', '\x1b(B\x1b)0\x1b7\x1b8\x1bM\x1bc\x1b=\x1b>'],
    ['a line break in a sequence', '\x1b[3\n1m'],
  ])('%s goes through', (_, text) => {
    expect(pass(text).replace('\x1b[31m', '')).toBe(text === '\x1b[3\n1m' ? '\n' : text);
  });

  test('titles and colours go through, ended one way', () => {
    expect(pass('\x1b]0;a title\x1b\\x')).toBe('\x1b]0;a title\x07x');
    expect(pass('\x1b]11;?\x07')).toBe('\x1b]11;?\x07');
    expect(pass('\u009d2;t\u009cx')).toBe('\x1b]2;t\x07x');
  });

  test.each([
    ['a link', '\x1b]8;;command:workbench.action.terminal.new\x1b\\here\x1b]8;;\x1b\\', 'here'],
    ['a link, ended by BEL', '\x1b]8;;file:///etc/passwd\x07here\x1b]8;;\x07', 'here'],
    ['a link as one-character controls', '\u009d8;;https://a.example\u009chere', 'here'],
    ['the clipboard', 'a\x1b]52;c;ZXZpbA==\x07b', 'ab'],
    ['reading the clipboard', 'a\x1b]52;c;?\x07b', 'ab'],
    ['shell integration', '\x1b]633;E;rm -rf ~;nonce\x07\x1b]633;P;Cwd=/etc\x07\x1b]133;A\x07$ ', '$ '],
    ['where a shell says it is', '\x1b]7;file:///etc\x07x\x1b]1337;CurrentDir=/etc\x07', 'x'],
    ['notifications', '\x1b]9;hello\x07\x1b]777;notify;a;b\x07x', 'x'],
    ['device strings', '\x1bP+q544e\x1b\\a\x1b_Gi=1;AAAA\x1b\\b\x1bXs\x1b\\c\x1b^p\x1b\\d', 'abcd'],
    ['device strings as one-character controls', '\u0090q\u009ca\u009fx\u009cb', 'ab'],
    ['a link that a new sequence breaks off', '\x1b]8;;x\x1b[31mred', '\x1b[31mred'],
    ['a string that is cancelled', '\x1b]8;;x\x18text', 'text'],
    ['a command without a number', '\x1b];x\x07y', 'y'],
    ['numbers that are written otherwise', '\x1b]08;;x\x07\x1b]8 ;;x\x07y', 'y'],
    ['control characters in a title', '\x1b]0;a\nb\x07y', 'y'],
    ['asking for the title', '\x1b[21ty', 'y'],
    ['locking the keyboard', '\x1b[2hy\x1b[4;2hz', 'yz'],
    ['one-character controls from the terminal', '\x1b Gy\x1b F', 'y\x1b F'],
    [
      'UTF-8 that is broken off before one',
      Buffer.from('e2c29d383b3b78c29c79', 'hex'),
      Buffer.from('e279', 'hex').toString('utf8'),
    ],
  ])('%s is left out', (_, text, left) => {
    expect(Buffer.from(pass(text))).toEqual(Buffer.from(left));
  });

  test('a string without an end holds back nothing more than itself, and takes no memory', () => {
    const inert = new OutputSanitizer();
    let out = inert.sanitize(Buffer.from('\x1b]8;;')).length;
    const piece = Buffer.alloc(2 ** 20, 'x');
    for (let n = 0; n < 16; n += 1) out += inert.sanitize(piece).length;
    expect(out).toBe(0);
    expect(inert.sanitize(Buffer.from('\x07after')).toString()).toBe('after');
    inert.sanitize(Buffer.from(`\x1b]0;${'t'.repeat(10_000)}`));
    expect(inert.sanitize(Buffer.from('\u009cafter')).toString()).toBe('after');
    inert.sanitize(Buffer.from(`\x1b[${'1;'.repeat(10_000)}`));
    expect(inert.sanitize(Buffer.from('mafter')).toString()).toBe('after');
  });

  test('what is shown again asks nothing', () => {
    expect(pass('a\x1b[6n\x1b[c\x1b[>c\x1b[?25$p\x1b[>q\x1b]11;?\x07\x1b[18tb\x1b[31mc', true)).toBe(
      'ab\x1b[31mc',
    );
  });
});
