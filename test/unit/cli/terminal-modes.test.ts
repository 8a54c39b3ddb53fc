import { describe, expect, test } from 'vitest';
import { OutputSanitizer } from '../../../cli/terminal/output-sanitizer.ts';

/** What gives a terminal back after a program has shown this. */
function restored(text: string): string {
  const output = new OutputSanitizer();
  // One byte at a time: sequences are found whatever pieces they come in.
  for (const byte of Buffer.from(text)) output.sanitize(Buffer.from([byte]));
  return output.modes.restoreSequence();
}

function isFullScreen(text: string): boolean {
  const output = new OutputSanitizer();
  output.sanitize(Buffer.from(text));
  return output.modes.isFullScreen;
}

describe('what a program has switched on is switched off when it is left', () => {
  test.each([
    ['nothing', 'text\r\n\x1b[1;31mred\x1b[0m \x1b[2J\x1b[H', ''],
    ['attributes', '\x1b[1;31mred', '\x1b[0m'],
    ['the other screen', '\x1b[?1049h', '\x1b[?1049l'],
    ['the other screen, left by another mode', '\x1b[?1049h\x1b[?47l', ''],
    ['the cursor', '\x1b[?25l', '\x1b[?25h'],
    ['mouse', '\x1b[?1000;1002;1003;1006h', '\x1b[?1006l\x1b[?1000l\x1b[?1002l\x1b[?1003l'],
    ['focus, paste, cursor keys', '\x1b[?1004h\x1b[?2004h\x1b[?1h', '\x1b[?1l\x1b[?2004l\x1b[?1004l'],
    [
      'reports of colours and size, win32-input-mode',
      '\x1b[?2031;2048;9001h',
      '\x1b[?2031l\x1b[?2048l\x1b[?9001l',
    ],
    ['kitty keys, pushed twice', '\x1b[>1u\x1b[>31u', '\x1b[<2u'],
    ['kitty keys, pushed and popped', '\x1b[>1u\x1b[<u', ''],
    ['kitty keys, set', '\x1b[=1;1u', '\x1b[=0u'],
    [
      'kitty keys of both screens',
      '\x1b[>1u\x1b[?1049h\x1b[>3u\x1b[>5u',
      // Each screen has its own.
      '\x1b[<2u\x1b[?1049l\x1b[<1u',
    ],
    ['modifyOtherKeys', '\x1b[>4;2m', '\x1b[>4m'],
    ['modifyOtherKeys, and back', '\x1b[>4;2m\x1b[>4m\x1b[>4;2m\x1b[>4;0m\x1b[>4;1m\x1b[>4n', ''],
    ['the keypad', '\x1b=', '\x1b>'],
    ['scrolling region', '\x1b[3;10r', '\x1b7\x1b[r\x1b8'],
    ['the form of the cursor', '\x1b[5 q', '\x1b[0 q'],
    ['line drawing', '\x1b(0', '\x1b(B\x1b)B\x0f'],
    ['insert mode, no line breaks', '\x1b[4h\x1b[?7l', '\x1b[?7h\x1b[4l'],
    ['colours of the terminal', '\x1b]11;#ffffff\x07', '\x1b]104\x07\x1b]110\x07\x1b]111\x07\x1b]112\x07'],
    ['asking for a colour', '\x1b]11;?\x07', ''],
    ['all, and a reset', '\x1b[?1049h\x1b[?25l\x1b[>1u\x1b[31m\x1b=\x1bc', ''],
    ['a soft reset', '\x1b[?25l\x1b[4h\x1b[3;4r\x1b[?1000h\x1b[!p', '\x1b[?1000l'],
    ['modes that nobody knows', '\x1b[?7777h\x1b[?12h', ''],
  ])('%s', (_what, text, wanted) => {
    expect(restored(text)).toBe(wanted);
  });

  test('once', () => {
    const output = new OutputSanitizer();
    output.sanitize(Buffer.from('\x1b[?1049h'));
    expect(output.modes.restoreSequence()).toBe('\x1b[?1049l');
    expect(output.modes.restoreSequence()).toBe('');
  });

  test('it takes no memory, whatever a program pushes', () => {
    const output = new OutputSanitizer();
    output.sanitize(Buffer.from('\x1b[>1u'.repeat(100_000)));
    expect(output.modes.restoreSequence()).toBe('\x1b[<64u');
  });
});

describe('whether lines of ours would spoil what a program shows', () => {
  test.each([
    ['a shell', '\x1b[?2004h\x1b[?1h$ ls --color\r\n\x1b[34mdir\x1b[0m', false],
    ['the other screen', '\x1b[?1049h', true],
    ['a program that drew on the other screen', '\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l$ ', false],
    ['an agent that draws in lines, without a cursor', '\x1b[?25l', true],
    ['one that wants to know of the mouse', '\x1b[?1003h', true],
    ['one that wants to know of focus', '\x1b[?1004h', true],
    ['one with kitty keys', '\x1b[>1u', true],
  ])('%s', (_what, text, wanted) => {
    expect(isFullScreen(text)).toBe(wanted);
  });

  test('the title is remembered', () => {
    const output = new OutputSanitizer();
    expect(output.modes.title).toBe(null);
    output.sanitize(Buffer.from('\x1b]0;one\x07\x1b]2;two;three\x1b\\'));
    expect(output.modes.title).toBe('two;three');
  });
});
