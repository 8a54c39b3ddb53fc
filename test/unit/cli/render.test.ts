import { describe, expect, test } from 'vitest';
import { findJsonError, formatJson, toSafeJson } from '../../../cli/render/json.ts';
import { progressText } from '../../../cli/render/progress.ts';
import {
  formatDuration,
  parseDuration,
  formatRelativeTime,
  formatSize,
} from '../../../cli/render/quantity.ts';
import { formatSessionList } from '../../../cli/render/session.ts';
import { createStyle } from '../../../cli/render/style.ts';
import { formatFields, formatTable } from '../../../cli/render/table.ts';
import { truncate, quoteForShell, textWidth, sanitizeLine, sanitizeLines } from '../../../cli/render/text.ts';
import { NOW, session } from '../../fixtures/cli/fake-supervisor.ts';

const plain = createStyle(false, {});
const same = (text: string) => text;

describe('text that others chose', () => {
  test.each([
    ['a\u001b[31mred', 'a\\e[31mred'],
    ['two\nlines\tand\ra return', 'two\\nlines\\tand\\ra return'],
    ['abc\u202etxt.exe', 'abc\\u{202e}txt.exe'],
    ['zero\u200bwidth \u2066isolate', 'zero\\u{200b}width \\u{2066}isolate'],
    ['C1 \u009b31m, DEL \u007f', 'C1 \\u{9b}31m, DEL \\u{7f}'],
    ['Zoë 漢字 🚀', 'Zoë 漢字 🚀'],
  ])('%j is shown as %s', (text, shown) => {
    expect(sanitizeLine(text)).toBe(shown);
  });

  test('a traceback keeps its lines and loses everything else that a terminal obeys', () => {
    expect(sanitizeLines('File "a.py"\r\n\tx()\u001b[2J\u202e')).toBe('File "a.py"\n\tx()\\e[2J\\u{202e}');
  });

  test('wide characters count two columns and combining ones none', () => {
    expect(textWidth('漢字')).toBe(4);
    expect(textWidth('e\u0301')).toBe(1);
    expect(truncate('漢字漢字', 5)).toBe('漢字…');
    expect(truncate('short', 5)).toBe('short');
    expect(truncate('longer', 5)).toBe('long…');
  });

  test('words are quoted as a shell wants them', () => {
    expect(quoteForShell('user-123')).toBe('user-123');
    expect(quoteForShell("it's $HOME")).toBe(`'it'\\''s $HOME'`);
  });
});

describe('times and sizes', () => {
  test.each([
    ['2026-03-01T11:59:58.000Z', 'just now'],
    ['2026-03-01T11:59:18.000Z', '42 s ago'],
    ['2026-03-01T11:57:00.000Z', '3 min ago'],
    ['2026-03-01T07:30:00.000Z', '4 h ago'],
    ['2026-02-24T12:00:00.000Z', '5 d ago'],
    ['2025-11-05T12:00:00.000Z', '2025-11-05'],
    ['2026-03-01T12:10:00.000Z', 'in 10 min'],
  ])('%s is %s', (time, said) => {
    expect(formatRelativeTime(time, NOW)).toBe(said);
  });

  test.each([
    [0.4, '0 ms'],
    [999, '999 ms'],
    [1500, '1.5 s'],
    [42_000, '42 s'],
    [200_000, '3 min 20 s'],
    [7_500_000, '2 h 5 min'],
    [270_000_000, '3 d 3 h'],
  ])('%d ms is %s', (milliseconds, said) => {
    expect(formatDuration(milliseconds)).toBe(said);
  });

  test.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1536, '1.5 KiB'],
    [1_048_575, '1.0 MiB'],
    [20 * 2 ** 20, '20 MiB'],
    [5 * 2 ** 30, '5.0 GiB'],
  ])('%d bytes are %s', (bytes, said) => {
    expect(formatSize(bytes)).toBe(said);
  });

  test.each([
    ['90', 90_000],
    ['1.5', 1500],
    ['250ms', 250],
    ['5m', 300_000],
    ['2h', 7_200_000],
    ['5 m', undefined],
    ['-1', undefined],
    ['', undefined],
  ])('the duration %j is %s ms', (text, milliseconds) => {
    expect(parseDuration(text)).toBe(milliseconds);
  });
});

describe('JSON for people', () => {
  test('has a space after colons and commas, and nothing that a terminal obeys', () => {
    expect(formatJson({ count: 1, of: [1, 'a, b: c', null, true], more: {} })).toBe(
      '{"count": 1, "of": [1, "a, b: c", null, true], "more": {}}',
    );
    const hostile = { '\u009b2J': 'a\u202eb\u001b' };
    expect(formatJson(hostile)).toBe('{"\\u009b2J": "a\\u202eb\\u001b"}');
    expect(JSON.parse(toSafeJson(hostile))).toEqual(hostile);
  });

  test.each([
    ['', 1, 1, /empty/],
    ["{'a': 1}", 1, 2, /"'" is unexpected/],
    ['{a: 1}', 1, 2, /"a" is unexpected/],
    ['{"a": 1,}', 1, 9, /"}" is unexpected/],
    ['{"a": 1', 1, 8, /too early/],
    ['[1,\n 2\n 3]', 3, 2, /"3" is unexpected/],
    ['{} x', 1, 4, /"x" is unexpected/],
    ['01', 1, 2, /"1" is unexpected/],
    ['"tab\there"', 1, 1, /is unexpected/],
    ['[1}', 1, 3, /"}" is unexpected/],
    ['hello', 1, 1, /"h" is unexpected/],
  ])('%j is not JSON at line %d, column %d', (text, line, column, why) => {
    const problem = findJsonError(text);
    expect(problem).toMatchObject({ line, column });
    expect(problem?.why).toMatch(why);
  });

  test('whatever JSON.parse takes is no problem, and the other way round', () => {
    for (const text of [
      '{}',
      ' [1, -2.5e3, "\\u00e9\u0080", {"a": [null, true, false]}] ',
      '"x"',
      '0',
      '[[],{}]',
    ]) {
      expect(findJsonError(text)).toBeUndefined();
    }
    for (const text of [
      'NaN',
      '+1',
      '.5',
      '1.',
      '"\\x"',
      '{"a" 1}',
      '[,]',
      '{,}',
      '[1 2]',
      'tru',
      '"',
      '{"a":}',
    ]) {
      expect(findJsonError(text)).toBeDefined();
    }
  });
});

describe('tables', () => {
  const rows = [
    { name: 'a', about: 'short' },
    { name: 'longer-name', about: 'a very long text that has no room on a narrow terminal' },
  ];
  const columns = [
    { title: 'NAME', value: (row: { name: string }) => row.name },
    { title: 'EMPTY', value: () => '' },
    { title: 'ABOUT', value: (row: { about: string }) => row.about, shrinkPriority: 1 },
  ];

  test('align their columns, leave out empty ones and cut what gives way to the width', () => {
    expect(formatTable(rows, columns, { width: 30, header: same })).toEqual([
      'NAME         ABOUT',
      'a            short',
      'longer-name  a very long text…',
    ]);
  });

  test('are never cut where there is no terminal', () => {
    const [, , last] = formatTable(rows, columns, { width: Number.POSITIVE_INFINITY, header: same });
    expect(last).toContain('narrow terminal');
  });

  test('show no control characters of a cell', () => {
    const hostile = [{ name: 'x\u001b[2J\ny', about: '' }];
    expect(formatTable(hostile, columns, { width: 80, header: same })[1]).toBe('x\\e[2J\\ny');
    expect(
      formatFields(
        [
          ['Name', '\u001b[2J'],
          ['Gone', null],
        ],
        same,
      ),
    ).toEqual(['Name  \\e[2J']);
  });

  test('the session list has Active above Earlier, in the same columns', () => {
    const lines = formatSessionList(
      [
        session({ name: 'old', status: 'resumable', lastActiveAt: '2026-02-20T12:00:00.000Z' }),
        session({ name: 'busy', status: 'active', pinned: true, tags: ['q3'], queuedTurns: 2 }),
      ],
      { style: plain, now: NOW, width: 200 },
    );
    expect(lines[0]).toBe('Active');
    expect(lines[2]).toMatch(/^busy +counter +active +3 min ago +1\.5 KiB +ses-a{16} +pinned #q3 2 queued$/);
    expect(lines[4]).toBe('Earlier');
    expect(lines[6]).toMatch(/^old +counter +resumable +9 d ago/);
    expect(lines[2]?.indexOf('counter')).toBe(lines[6]?.indexOf('counter'));
  });

  test('a temporary session shows its id only once', () => {
    const lines = formatSessionList([session({ name: session().id, autoRemove: true })], {
      style: plain,
      now: NOW,
      width: 200,
    });
    expect(lines[2]).toMatch(/^\(temporary\) +counter +idle .* ses-a{16}$/);
  });

  test('progress is a bar where the end is known, and fits the line', () => {
    const report = { stage: 'Pulling an-image', done: 2 ** 20, of: 2 ** 21, unit: 'bytes' };
    expect(progressText(report, 100)).toBe('Pulling an-image [############------------] 1.0 MiB of 2.0 MiB');
    expect(textWidth(progressText(report, 30))).toBeLessThanOrEqual(30);
    expect(progressText({ stage: 'Emptying', done: 1200, of: null, unit: 'files' }, 80)).toBe(
      'Emptying 1,200 files',
    );
  });

  test('colours are for terminals that want them', () => {
    expect(createStyle(true, {}).red('x')).toBe('\u001b[31mx\u001b[39m');
    expect(createStyle(true, { NO_COLOR: '1' }).red('x')).toBe('x');
    expect(createStyle(true, { TERM: 'dumb' }).red('x')).toBe('x');
    expect(createStyle(false, {}).red('x')).toBe('x');
  });
});
