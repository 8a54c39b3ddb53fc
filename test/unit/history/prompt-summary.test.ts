import { expect, test } from 'vitest';
import { summarizePrompt } from '../../../supervisor/history/prompt-summary.ts';

const of = (text: string): string => summarizePrompt(Buffer.from(text));

test('the prompt of a turn is one short line for any input', () => {
  expect(of('fix the parser')).toBe('fix the parser');
  expect(of('  fix\n\tthe \u001b[31m\u202eparser\u0000 ')).toBe('fix the [31m parser');
  expect(of('"fix the parser"')).toBe('fix the parser');
  expect(of('{"n": 1, "prompt": "fix the parser"}')).toBe('fix the parser');
  expect(of('{"message": "fix the parser"}')).toBe('fix the parser');
  expect(of('{"n": 1}')).toBe('{"n": 1}');
  expect(of('{"prompt": "cut o')).toBe('{"prompt": "cut o');
  expect(of('{"__proto__": {"prompt": "no"}}')).toBe('{"__proto__": {"prompt": "no"}}');
  expect(of('{}')).toBe('');
  expect(of('')).toBe('');
  expect(of('x'.repeat(4_096))).toBe(`${'x'.repeat(119)}…`);
  expect(of('😀'.repeat(100))).toBe(`${'😀'.repeat(59)}…`);
  expect(summarizePrompt(Buffer.from([0xff, 0xfe, 0x41]))).toBe('��A');
});
