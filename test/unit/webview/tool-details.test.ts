import { describe, expect, test } from 'vitest';
import { plain } from '../../../webview/format.ts';
import { planEntries, toolParts } from '../../../webview/tool-details.ts';

describe('the details of a tool call', () => {
  test('are its input, its diffs and its output', () => {
    const json = JSON.stringify({
      rawInput: { command: ['npm', 'test'] },
      content: [
        { type: 'diff', path: '/workspace/a', oldText: null, newText: 'b' },
        { type: 'content', content: { type: 'text', text: 'ok' } },
        { type: 'terminal', terminalId: 't' },
      ],
      rawOutput: 'not shown, because there is an output',
    });
    expect(toolParts(json)).toEqual([
      { kind: 'text', label: 'Input', text: 'npm test', language: 'bash' },
      { kind: 'diff', path: '/workspace/a', before: '', after: 'b' },
      { kind: 'text', label: 'Output', text: 'ok' },
      {
        ...{ kind: 'text', label: 'Details', language: 'json' },
        text: '{\n  "type": "terminal",\n  "terminalId": "t"\n}',
      },
    ]);
  });

  test.each(['', 'no JSON', 'null', '[]', '7', '{"content": 3}', '{"content": [null, 1, {"type": "diff"}]}'])(
    '%s is shown as it is or as nothing, and never fails',
    (json) => {
      for (const part of toolParts(json)) expect(part.kind).toBe('text');
    },
  );

  test('a plan is a list of entries, or nothing', () => {
    const entry = { content: 'a', status: 'completed', priority: 'high' };
    expect(planEntries(JSON.stringify([entry, { content: 'b', status: 'new' }]))).toEqual([
      { content: 'a', status: 'completed' },
      { content: 'b', status: 'pending' },
    ]);
    for (const text of [null, '', '{}', '[1]']) expect(planEntries(text)).toEqual([]);
  });
});

test('text loses what acts on a terminal, hides or reorders, and nothing else', () => {
  expect(plain('a\u001b[31mred\u001b[0m\tb\r\nc\rd')).toBe('ared\tb\nc\nd');
  expect(plain('\u001b]8;;http://evil/\u0007link\u001b]8;;\u0007')).toBe('link');
  expect(plain('safe\u202etxt.exe\u200b\0')).toBe('safe\u{FFFD}txt.exe\u{FFFD}\u{FFFD}');
  expect(plain('Grüße 世界 😀')).toBe('Grüße 世界 😀');
});
