import { describe, expect, test } from 'vitest';
import { isQuickOpenPrefix, parseFileQuery } from '../../../extension/search/file-query.ts';
import { Replacement } from '../../../extension/search/replacement.ts';
import {
  DEFAULT_OPTIONS,
  formatOptions,
  parseGlobs,
  searchParams,
  formatSummary,
} from '../../../extension/search/search-query.ts';
import type { SearchOptions } from '../../../extension/search/search-query.ts';
import { SearchResults, comparePaths, resultLabel } from '../../../extension/search/search-results.ts';
import type { SearchLine } from '../../../protocol/search.ts';
import { SearchParamsSchema } from '../../../protocol/search.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';

describe('text typed into Go to File', () => {
  test('opens Quick Open if it starts with one of its prefixes', () => {
    for (const value of ['>reload', '@', '@:sym', ':12', '#Class', '?', 'term ', 'task build']) {
      expect(isQuickOpenPrefix(value)).toBe(true);
    }
    for (const value of ['', 'a>b', 'terminal', 'a@b', 'file:12', 'C#', '%'])
      expect(isQuickOpenPrefix(value)).toBe(false);
  });

  test('contains a file name and a position', () => {
    const at = (line: number, column: number) => ({ line, column });
    expect(parseFileQuery('main.py')).toEqual({ query: 'main.py', position: undefined });
    expect(parseFileQuery('main.py:')).toEqual({ query: 'main.py', position: undefined });
    expect(parseFileQuery('main.py:12')).toEqual({ query: 'main.py', position: at(12, 1) });
    expect(parseFileQuery('main.py:12:')).toEqual({ query: 'main.py', position: at(12, 1) });
    expect(parseFileQuery('src/main.py:12:3')).toEqual({ query: 'src/main.py', position: at(12, 3) });
    expect(parseFileQuery('main.py(12,3)')).toEqual({ query: 'main.py', position: at(12, 3) });
    expect(parseFileQuery('main.py(12')).toEqual({ query: 'main.py', position: at(12, 1) });
    expect(parseFileQuery('main.py#7')).toEqual({ query: 'main.py', position: at(7, 1) });
    expect(parseFileQuery('main.py:0')).toEqual({ query: 'main.py', position: undefined });
    expect(parseFileQuery('notes (copy).md')).toEqual({ query: 'notes (copy).md', position: undefined });
    expect(parseFileQuery('')).toEqual({ query: '', position: undefined });
  });
});

describe('file patterns', () => {
  test('mean what they mean in VS Code: a name at any depth, with all of its content', () => {
    expect(parseGlobs('')).toEqual([]);
    expect(parseGlobs(' , ./ , / ')).toEqual([]);
    expect(parseGlobs('src')).toEqual(['**/src', '**/src/**']);
    expect(parseGlobs('*.ts, *.{js,jsx}')).toEqual([
      '**/*.ts',
      '**/*.ts/**',
      '**/*.{js,jsx}',
      '**/*.{js,jsx}/**',
    ]);
    expect(parseGlobs('./src/')).toEqual(['/src', '/src/**']);
    expect(parseGlobs('**/test/**')).toEqual(['**/test/**']);
  });

  test('are refused before they are sent if they are too long or too many', () => {
    expect(() => parseGlobs('x'.repeat(901))).toThrow(/too many file patterns/);
    expect(() => parseGlobs(Array.from({ length: 101 }, (_, at) => `a${at}`).join(','))).toThrow(
      /too many file patterns/,
    );
    const most = Array.from({ length: 98 }, (_, at) => `${at}${'y'.repeat(880)}`).join(',');
    const params = searchParams({
      ...DEFAULT_OPTIONS,
      pattern: 'x',
      include: most,
      exclude: most.slice(0, 9_000),
    });
    expect(SearchParamsSchema.safeParse(params).success).toBe(true);
  });
});

describe('a search', () => {
  test('has the parameters of its options', () => {
    expect(searchParams({ ...DEFAULT_OPTIONS, pattern: 'a.b' })).toMatchObject({
      syntax: 'fixed',
      letterCase: 'ignore',
      word: false,
      sort: 'path',
      exclude: ['**/.git', '**/.hg', '**/.svn'],
    });
    const options: SearchOptions = {
      matchCase: true,
      wholeWord: true,
      regex: true,
      include: 'src',
      exclude: '*.min.js',
    };
    expect(searchParams({ ...options, pattern: 'a.b' })).toMatchObject({
      syntax: 'regex',
      letterCase: 'exact',
      word: true,
      include: ['**/src', '**/src/**'],
      exclude: ['**/.git', '**/.hg', '**/.svn', '**/*.min.js', '**/*.min.js/**'],
    });
    expect(formatOptions(options)).toBe(
      'match case, whole word, regular expression, in src, not in *.min.js',
    );
    expect(formatOptions(DEFAULT_OPTIONS)).toBe('');
  });

  test('reports how much it found, and why there may be more', () => {
    expect(formatSummary({ matches: 0, files: 0, stopped: null, skipped: 0 })).toBe('No results found.');
    expect(formatSummary({ matches: 1, files: 1, stopped: null, skipped: 0 })).toBe('1 line in 1 file.');
    expect(formatSummary({ matches: 5000, files: 20, stopped: 'limit', skipped: 1 })).toBe(
      '5,000 lines in 20 files. The results are truncated: narrow the search to see the rest. 1 line skipped: too long, or changed during the search.',
    );
    expect(formatSummary({ matches: 0, files: 0, stopped: 'time', skipped: 0 })).toMatch(/took too long/);
  });
});

function line(path: string, number: number, preview: string, ...ranges: [number, number][]): SearchLine {
  return {
    path,
    kind: 'match',
    line: number,
    preview,
    previewStart: 0,
    ranges: ranges.map(([start, end]) => ({ start, end })),
  };
}

describe('results', () => {
  test('are grouped by file and sorted, whatever the order of arrival', () => {
    const random = new SeededRandom(seedOfRun('search results'));
    const paths = [
      '/workspace/a/b.txt',
      '/workspace/a/b2.txt',
      '/workspace/a/b10.txt',
      '/workspace/ä',
      '/workspace/a.txt',
    ];
    const all = paths.flatMap((path) => [1, 2, 10, 11].map((number) => line(path, number, 'x', [0, 1])));
    const orders = Array.from({ length: 20 }, () => {
      const results = new SearchResults();
      const waiting = [...all];
      while (waiting.length > 0) results.add(waiting.splice(random.below(waiting.length), 1));
      return results.files.map(({ path, lines }) => [path, ...lines.map((one) => one.line)]);
    });
    expect(orders[0]?.map(([path]) => path)).toEqual([...paths].sort(comparePaths));
    expect(orders[0]?.map(([path]) => path).slice(0, 3)).toEqual(paths.slice(0, 3));
    for (const order of orders) expect(order).toEqual(orders[0]);
    expect(orders[0]?.[0]?.slice(1)).toEqual([1, 2, 10, 11]);
  });

  test('show the line number, then the line with its matches', () => {
    const found = line('/workspace/f', 12, '  find me and find me', [2, 6], [14, 18]);
    const { label, highlights } = resultLabel(found, (text) => text);
    expect(label).toBe('12: find me and find me');
    expect(highlights.map(([from, to]) => label.slice(from, to))).toEqual(['find', 'find']);
    expect(resultLabel(found, (text) => `\\${text}`).highlights).toEqual([]);
    const cut = { ...found, preview: 'me and find', previewStart: 7 };
    expect(resultLabel(cut, (text) => text)).toEqual({ label: '12: me and find', highlights: [[11, 15]] });
  });
});

describe('a replacement', () => {
  const query = { ...DEFAULT_OPTIONS, pattern: '(\\w+)@(?P<host>\\w+)', regex: true };
  const made = (
    text: string,
    file: string,
    found: SearchLine[],
    pattern: Parameters<typeof searchParams>[0] = query,
    timeoutMs?: number,
  ) => {
    const lines = file.split('\n');
    const outcome = new Replacement(pattern, text, timeoutMs).editsFor(found, (at) => lines[at]);
    if ('leftOut' in outcome) return outcome.leftOut;
    for (const { line: at, start, end, text: put } of outcome.edits.toReversed()) {
      lines[at] = (lines[at] ?? '').slice(0, start) + put + (lines[at] ?? '').slice(end);
    }
    return lines.join('\n');
  };
  const found = [line('/f', 2, 'to a@b, c@d', [3, 6], [8, 11])];

  test('inserts groups for a regular expression, and the literal text otherwise', () => {
    expect(made('$2 at $1$$ $& $<host>\\n', 'x\nto a@b, c@d\ny', found)).toBe(
      'x\nto b at a$ a@b b\n, d at c$ c@d d\n\ny',
    );
    expect(made('$1\\n', 'x\nto a@b, c@d', found, { ...DEFAULT_OPTIONS, pattern: '@' })).toBe(
      'x\nto $1\\n, $1\\n',
    );
    expect(made('', 'x\nto a@b, c@d', found)).toBe('x\nto , ');
  });

  test('uses the match of ripgrep if JavaScript would match less', () => {
    const words = { ...DEFAULT_OPTIONS, pattern: '(a|ab)', regex: true, wholeWord: true };
    expect(made('<$1>', 'ab', [line('/f', 1, 'ab', [0, 2])], words)).toBe('<ab>');
  });

  test('skips a file that has changed since the search', () => {
    expect(made('x', 'x\nto a@b', found)).toBe('changed');
    expect(made('x', 'x', found)).toBe('changed');
    expect(made('x', 'x\nto a@b, \uFFFD', [line('/f', 2, 'to a@b, \uFFFD', [3, 6])])).toBe('not UTF-8');
    const cut = { ...line('/f', 1, 'abc', [0, 1], [5, 6]), previewStart: 0 };
    expect(made('x', 'abcdefg', [cut])).toBe('line too long');
    const many = Array.from({ length: 200 }, (_, at): [number, number] => [at, at + 1]);
    expect(made('x', 'x'.repeat(200), [line('/f', 1, 'x'.repeat(200), ...many)])).toBe(
      'too many matches in a line',
    );
    expect(made('$1', 'xyz', [line('/f', 1, 'xyz', [0, 2])])).toBe('ambiguous groups');
  });

  test('corrects columns for a byte order mark, which the editor does not show', () => {
    expect(made('z', 'a@b', [line('/f', 1, '\uFEFFa@b', [1, 4])])).toBe('z');
  });

  test('fails if finding the groups in hostile text takes too long', () => {
    const slow = { ...DEFAULT_OPTIONS, pattern: '(x+x+)+y', regex: true };
    const text = 'x'.repeat(60);
    const started = performance.now();
    expect(() => made('$1', text, [line('/f', 1, text, [0, 60])], slow, 100)).toThrow(/takes too long/);
    expect(performance.now() - started).toBeLessThan(10_000);
    expect(() => made('$1', 'a', [line('/f', 1, 'a', [0, 1])], { ...slow, pattern: '(?x) (a)' })).toThrow(
      /cannot be used/,
    );
  });
});
