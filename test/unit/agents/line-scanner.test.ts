import { expect, test } from 'vitest';
import {
  LINE_LIMITS,
  LineScanner,
  type ScannedLine,
  excessOf,
} from '../../../supervisor/agents/acp/line-scanner.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';

const textOf = (one: ScannedLine): string => ('line' in one ? one.line.toString() : `(${one.skipped})`);

test('lines come whole, however the output is cut, with the offsets behind them', () => {
  const random = new SeededRandom(seedOfRun('lines of an agent'));
  const output = Buffer.from('one\n\n{"two":2}\r\nthree\nrest');
  for (let round = 0; round < 200; round++) {
    const scanner = new LineScanner(100);
    const lines: ScannedLine[] = [];
    for (let at = 0; at < output.length;) {
      const end = Math.min(output.length, at + 1 + random.below(9));
      lines.push(...scanner.push(output.subarray(at, end)));
      at = end;
    }
    expect(lines.map((one) => [textOf(one), one.end - 100])).toEqual([
      ['one', 4],
      ['{"two":2}', 16],
      ['three', 22],
    ]);
    expect(scanner.resumeAt).toEqual({ offset: 122, isSkipping: false });
  }
});

test('a line that is too long is counted and not kept; the next one is read, also after a restart in the middle', () => {
  const scanner = new LineScanner(0);
  const piece = Buffer.alloc(2 ** 20, 'x');
  for (let nth = 0; nth < 5; nth++) expect([...scanner.push(piece)]).toEqual([]);
  const { offset, isSkipping } = scanner.resumeAt;
  expect({ offset, isSkipping }).toEqual({ offset: 5 * 2 ** 20, isSkipping: true });
  const next = new LineScanner(offset, isSkipping);
  const lines = [...next.push(Buffer.from('end\nwell\n'))];
  expect(lines.map(textOf)).toEqual(['(too_long)', 'well']);
  expect(next.resumeAt.offset).toBe(offset + 9);
});

test('a line of exactly the limit is whole, one byte more is not', () => {
  for (const [size, expected] of [
    [LINE_LIMITS.bytes, true],
    [LINE_LIMITS.bytes + 1, false],
  ] as const) {
    const [line] = [...new LineScanner(0).push(Buffer.concat([Buffer.alloc(size, 'x'), Buffer.from('\n')]))];
    expect(line !== undefined && 'line' in line).toBe(expected);
  }
});

test('what would cost too much to parse is found before it is parsed', () => {
  const nested = (depth: number) => Buffer.from('['.repeat(depth) + ']'.repeat(depth));
  expect(excessOf(nested(LINE_LIMITS.depth))).toBeNull();
  expect(excessOf(nested(LINE_LIMITS.depth + 1))).toBe('too_deep');
  expect(excessOf(Buffer.from(`["${'['.repeat(1000)}\\"${','.repeat(200_000)}"]`))).toBeNull();
  expect(excessOf(Buffer.from(`[${'0,'.repeat(LINE_LIMITS.values + 1)}0]`))).toBe('too_many_values');
  expect(excessOf(Buffer.from(`[${'{},'.repeat(60_000)}0]`))).toBe('too_many_values');
});
