import { describe, expect, test } from 'vitest';
import {
  DEFAULT_DETACH_KEYS,
  DetachKeyFilter,
  formatDetachKeys,
  parseDetachKeys,
} from '../../../cli/terminal/detach-keys.ts';
import { soakCount } from '../../setup/run-length.ts';

interface Outcome {
  readonly passed: string;
  readonly leaves: boolean;
}

/** What comes of it in these pieces; after each one, and at the end, what is held back is flushed where a moment would do so. */
function typedIn(pieces: readonly Buffer[], keys = DEFAULT_DETACH_KEYS, pauses = false): Outcome {
  const filter = new DetachKeyFilter(parseDetachKeys(keys));
  let passed = '';
  for (const piece of pieces) {
    const typed = filter.filter(piece);
    passed += typed.forwarded.toString('latin1');
    if (typed.detaches) return { passed, leaves: true };
    if (!pauses || !filter.isAmbiguous) continue;
    passed += filter.flush().forwarded.toString('latin1');
  }
  if (filter.isAmbiguous) passed += filter.flush().forwarded.toString('latin1');
  return { passed, leaves: false };
}

/** The outcome, which must not depend on the pieces in which the bytes come. */
function typed(text: string | Buffer, keys?: string): [string, boolean] {
  const bytes = Buffer.from(text);
  const whole = typedIn([bytes], keys);
  for (const size of [1, 2, 3, 5]) {
    const pieces: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
    expect(typedIn(pieces, keys), `in pieces of ${String(size)}`).toEqual(whole);
  }
  return [Buffer.from(whole.passed, 'latin1').toString('utf8'), whole.leaves];
}

/** The prefix, as terminals send it. */
const PREFIXES: readonly (readonly [string, string])[] = [
  ['a control character', '\x1d'],
  ['kitty', '\x1b[93;5u'],
  ['kitty with the kind of event', '\x1b[93;5:1u'],
  ['kitty with alternates', '\x1b[93:125;5u'],
  // Terminals send the same control character for it.
  ['kitty with Shift', '\x1b[93;6u'],
  ['kitty with Caps Lock and Num Lock', '\x1b[93;197u'],
  ['kitty with the text of the key', '\x1b[93;5;93u'],
  ['kitty on a keyboard without Latin letters', '\x1b[1098:1066:93;5u'],
  ['modifyOtherKeys', '\x1b[27;5;93~'],
  ['win32-input-mode', '\x1b[221;27;29;1;8;1_'],
];
const LEAVES: readonly (readonly [string, string])[] = [
  ['d', 'd'],
  ['D', 'D'],
  ['Ctrl+d', '\x04'],
  ['d of kitty', '\x1b[100u'],
  ['D of kitty', '\x1b[100:68;2;68u'],
  ['d of kitty with the kind of event', '\x1b[100;1:1u'],
  ['Ctrl+d of kitty', '\x1b[100;5u'],
  ['d of a keyboard without Latin letters', '\x1b[1074::100u'],
  ['d of modifyOtherKeys', '\x1b[27;1;100~'],
  ['d of win32-input-mode', '\x1b[68;32;100;1;0;1_'],
];
/** What terminals send by themselves. */
const REPORTS: readonly (readonly [string, string])[] = [
  ['device attributes', '\x1b[?62;22c\x1b[>1;4000;15c'],
  ['focus', '\x1b[O\x1b[I'],
  ['mouse', '\x1b[<0;12;7M\x1b[<0;12;7m\x1b[<35;1;1M'],
  ['mouse of the oldest form', '\x1b[M !d'],
  ['mouse of urxvt', '\x1b[32;12;7M'],
  ['cursor position', '\x1b[12;40R\x1b[?12;40R'],
  ['modes', '\x1b[?2026;2$y\x1b[4;1$y'],
  ['state of the kitty keys', '\x1b[?0u'],
  ['size of the window', '\x1b[8;24;80t\x1b[48;24;80;480;800t'],
  ['colours', '\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\\x1b]10;rgb:ffff/ffff/ffff\x07'],
  ['versions', '\x1bP>|xterm(390)\x1b\\\x1bP1+r524742=38\x1b\\'],
  ['graphics', '\x1b_Gi=31;OK\x1b\\'],
  ['colour scheme', '\x1b[?997;1n\x1b[0n'],
  ['modifier keys of kitty', '\x1b[57442;5u\x1b[57442;1:3u\x1b[57358;65u'],
  ['modifier keys of win32-input-mode', '\x1b[17;29;0;1;8;1_\x1b[17;29;0;0;0;1_'],
];

describe('the keys that leave a terminal', () => {
  const pairs = PREFIXES.flatMap(([how, prefix]) =>
    LEAVES.map(([what, leave]) => [how, what, prefix, leave] as const),
  );
  test.each(pairs)(
    '%s, then %s: no byte of them, or after them, reaches the program',
    (_how, _what, prefix, leave) => {
      expect(typed(`ls\r${prefix}${leave}\rrm -rf /\r`)).toEqual(['ls\r', true]);
    },
  );

  test.each(REPORTS)('are found with reports before, between and after: %s', (_what, report) => {
    for (const [, prefix] of PREFIXES) {
      expect(typed(`${report}${prefix}${report}d${report}`)).toEqual([`${report}${report}`, true]);
      expect(typed(`${prefix}${report}${prefix}`)).toEqual([`${report}${prefix}`, false]);
      expect(typed(`${report}x${report}`)).toEqual([`${report}x${report}`, false]);
    }
  });

  test.each(PREFIXES)('twice the prefix is one for the program: %s', (_how, prefix) => {
    expect(typed(`a${prefix}${prefix}d\r`)).toEqual([`a${prefix}d\r`, false]);
    expect(typed(`${prefix}${prefix}${prefix}d`)).toEqual([prefix, true]);
  });

  test.each([
    ['Enter', '\r'],
    ['Space', ' '],
    ['a letter', 'x'],
    ['a letter outside of ASCII', 'ž'],
    ['an emoji', '🐎'],
    ['an arrow', '\x1b[A'],
    ['an arrow in application mode', '\x1bOA'],
    ['F1 of the Linux console', '\x1b[[A'],
    ['F5', '\x1b[15~'],
    ['Alt and a key', '\x1bd'],
    ['^C', '\x03'],
    ['Enter of kitty', '\x1b[13u'],
    ['Alt+d of kitty', '\x1b[100;3u'],
    ['Delete', '\x7f'],
  ])('the prefix and another key are dropped together, and what follows is as ever: %s', (_what, key) => {
    for (const [, prefix] of PREFIXES) expect(typed(`${prefix}${key}d${key}`)).toEqual([`d${key}`, false]);
  });

  test('pasted text goes through as it is, and a prefix before it is forgotten', () => {
    const paste = '\x1b[200~\x1dd \x1b[93;5ud\x1b[20\x1b[201\x1b[201~';
    expect(typed(paste)).toEqual([paste, false]);
    expect(typed(`\x1d${paste}d`)).toEqual([`${paste}d`, false]);
    expect(typed(`${paste}\x1dd`)).toEqual([paste, true]);
  });

  test('releases and repeats of keys that were kept from the program are kept from it too; those of others are not', () => {
    expect(typed('\x1b[93;5:1u\x1b[93;5:2u\x1b[93;5:3u\x1b[100;1:1u')).toEqual(['', true]);
    expect(typed('\x1b[93;5:1u\x1b[93;5:3u\x1b[120;1:1u\x1b[120;1:3u\x1b[120;1:1u\x1b[120;1:3u')).toEqual([
      '\x1b[120;1:1u\x1b[120;1:3u',
      false,
    ]);
    // The key before the prefix is let go after it.
    expect(typed('\x1b[97;1:1u\x1b[93;5:1u\x1b[97;1:3u\x1b[93;5:3u\x1b[100u')).toEqual([
      '\x1b[97;1:1u\x1b[97;1:3u',
      true,
    ]);
    const literal = '\x1b[93;5:1u\x1b[93;5:2u\x1b[93;5:3u';
    expect(typed(`\x1b[93;5:1u\x1b[93;5:3u${literal}d`)).toEqual([`${literal}d`, false]);
  });

  test.each([
    ['text', 'ls ~. žluť 日本 🐎\r'],
    ['the keys of ssh', '\r~.'],
    ['keys', '\x1b[A\x1bOP\x1b[3;5~\x1b[1;5C\x1b[Z\x1bb\x7f\t\x00\x1c\x1e\x1f'],
    ['other keys of kitty', '\x1b[93;7u\x1b[93;3u\x1b[93u\x1b[125;5u\x1b[97;5u\x1b[13;2u'],
    ['other keys of modifyOtherKeys', '\x1b[27;7;93~\x1b[27;3;93~\x1b[27;5;92~'],
    ['an answer that was cut off', '\x1b]11;rgb:1\r'],
    ['Alt and keys that begin answers', '\x1b]x\x1bPx\x1b_x'],
    ['bytes that are no text', Buffer.from('80ff00c3c328', 'hex').toString('latin1')],
  ])('%s goes through', (_what, text) => {
    expect(typed(text)).toEqual([text, false]);
  });

  test('answers that were cut off hide no prefix', () => {
    expect(typed('\x1b]11;rgb:1\x1dd')).toEqual(['\x1b]11;rgb:1', true]);
    expect(typed('\x1bP1+r\x1b[93;5ud')).toEqual(['\x1bP1+r', true]);
    expect(typed('\x1b[12;\x1dd')).toEqual(['\x1b[12;', true]);
    expect(typed('\x1b\x1dd')).toEqual(['\x1b', true]);
    expect(typed('\x1b[M\x1dd')).toEqual(['\x1b[M', true]);
  });

  test('Escape is a key once nothing follows it for a moment, and sequences that only terminals send wait longer', () => {
    const filter = new DetachKeyFilter(parseDetachKeys(DEFAULT_DETACH_KEYS));
    expect(filter.filter(Buffer.from('\x1b')).forwarded.toString()).toBe('');
    expect(filter.isAmbiguous).toBe(true);
    expect(filter.flush().forwarded.toString()).toBe('\x1b');
    expect(filter.isAmbiguous).toBe(false);
    filter.filter(Buffer.from('\x1b[93'));
    expect(filter.isAmbiguous).toBe(false);
    expect(filter.filter(Buffer.from(';5u')).forwarded.toString()).toBe('');
    expect(filter.filter(Buffer.from('d')).detaches).toBe(true);
  });

  test('a sequence without an end takes no memory', () => {
    const filter = new DetachKeyFilter(parseDetachKeys(DEFAULT_DETACH_KEYS));
    const input = `\x1b[${'1;'.repeat(100_000)}`;
    let passed = filter.filter(Buffer.from(input)).forwarded.length;
    expect(passed).toBeGreaterThan(input.length - 300);
    passed += filter.filter(Buffer.from('\x1dd')).forwarded.length;
    expect(passed).toBe(input.length);
  });

  test('^C is recognized in every encoding', () => {
    const interrupts = (text: string): boolean =>
      new DetachKeyFilter(parseDetachKeys('none')).filter(Buffer.from(text)).interrupts;
    for (const key of ['\x03', '\x1b[99;5u', '\x1b[99;5:1u', '\x1b[27;5;99~', '\x1b[67;46;3;1;8;1_'])
      expect([key, interrupts(key)]).toEqual([key, true]);
    for (const key of ['c', '\x1b[99;5:3u', '\x1b[99u', '\x1b[200~\x03\x1b[201~'])
      expect([key, interrupts(key)]).toEqual([key, false]);
  });

  test('reports of the terminal are not typed by anybody', () => {
    const isTyped = (text: string): boolean =>
      new DetachKeyFilter(null).filter(Buffer.from(text)).isUserInput;
    for (const [, report] of REPORTS) expect([report, isTyped(report)]).toEqual([report, false]);
    for (const key of ['x', '\r', '\x1b[A', '\x1b[200~x\x1b[201~'])
      expect([key, isTyped(key)]).toEqual([key, true]);
  });
});

describe('random input in random pieces', () => {
  const seed = Number(process.env['HOLDFAST_SEED'] ?? Date.now() % 2 ** 31);
  // A linear congruential generator: the same numbers for the same seed.
  let state = seed;
  const random = (below: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const oneOf = <T>(list: readonly T[]): T => {
    const one = list[random(list.length)];
    if (one === undefined) throw new Error('an empty list');
    return one;
  };
  const pieces = (bytes: Buffer): Buffer[] => {
    const all: Buffer[] = [];
    for (let at = 0; at < bytes.length;) {
      const end = at + 1 + random(6);
      all.push(bytes.subarray(at, end));
      at = end;
    }
    return all;
  };
  const harmless = [
    'ls\r',
    'ž',
    '\x1b[A',
    '\x1bOB',
    '\x1b[3~',
    '\x04',
    'd',
    '\x1b[100u',
    '\x1b[200~\x1dd\x1b[201~',
  ];
  const reports = REPORTS.map(([, report]) => report);

  test(`without a prefix all of it goes through; with one nothing after it does (seed ${String(seed)})`, () => {
    for (let n = 0; n < soakCount(1000, 100_000); n += 1) {
      const before = Array.from({ length: random(8) }, () => oneOf([...harmless, ...reports])).join('');
      expect(typedIn(pieces(Buffer.from(before))).passed).toBe(Buffer.from(before).toString('latin1'));
      const between = Array.from({ length: random(4) }, () => oneOf(reports)).join('');
      const [, prefix] = oneOf(PREFIXES);
      const [, leave] = oneOf(LEAVES);
      const input = Buffer.from(`${before}${prefix}${between}${leave}\r1\r`);
      expect(typedIn(pieces(input))).toEqual({
        passed: Buffer.from(before + between).toString('latin1'),
        leaves: true,
      });
    }
  });

  test(`any bytes go through without the prefix, and none is lost or doubled (seed ${String(seed)})`, () => {
    const bytes = [
      0x1b, 0x5b, 0x5d, 0x4f, 0x4d, 0x50, 0x31, 0x3b, 0x7e, 0x07, 0x0d, 0x61, 0xc5, 0xbe, 0x80, 0xff,
    ];
    for (let n = 0; n < soakCount(1000, 100_000); n += 1) {
      const input = Buffer.from(Array.from({ length: random(40) }, () => oneOf(bytes)));
      const outcome = typedIn(pieces(input), DEFAULT_DETACH_KEYS, random(2) === 0);
      // A sequence that only a terminal sends may still wait for its end.
      expect(outcome.leaves).toBe(false);
      const all = input.toString('latin1');
      expect(all.startsWith(outcome.passed)).toBe(true);
      expect(all.slice(outcome.passed.length).replace('\x1b[', '')).toMatch(/^[1;]*$/);
    }
  });
});

describe('which keys they are', () => {
  test.each([
    ['ctrl-],d', 'Ctrl+] d'],
    ['ctrl-a', 'Ctrl+A d'],
    ['CTRL-A,K', 'Ctrl+A k'],
    ['ctrl-p,ctrl-q', 'Ctrl+P Ctrl+Q'],
    ['ctrl-\\,.', 'Ctrl+\\ .'],
    ['ctrl-^', 'Ctrl+^ d'],
  ])('%s', (text, name) => {
    const keys = parseDetachKeys(text);
    expect(keys === null ? null : formatDetachKeys(keys)).toBe(name);
  });

  test('those that were chosen leave, and the others do not', () => {
    expect(typed('\x1dd\x10\x11', 'ctrl-p,ctrl-q')).toEqual(['\x1dd', true]);
    expect(typed('\x10q\x11', 'ctrl-p,ctrl-q')).toEqual(['\x11', false]);
    for (const prefix of ['\x1e', '\x1b[54;6u', '\x1b[54:94;6u', '\x1b[94;5u', '\x1b[27;6;94~'])
      expect([prefix, typed(`${prefix}.`, 'ctrl-^,.')]).toEqual([prefix, ['', true]]);
    expect(typed('\x1dd\x1b[93;5ud', 'none')).toEqual(['\x1dd\x1b[93;5ud', false]);
  });

  test.each([
    '',
    'd',
    'ctrl-',
    'ctrl-m,d',
    'ctrl-[,d',
    'ctrl-1,d',
    'ctrl-a,ctrl-a',
    'ctrl-a,dd',
    'ctrl-a,',
    'alt-a,d',
    'ctrl-a,\x1b[31m',
  ])('%j is refused with valid examples', (text) => {
    expect(() => parseDetachKeys(text)).toThrow(/are not valid detach keys: .*; use for example ctrl-\],d, /);
  });
});
