import { expect, test } from 'vitest';
import { originText } from '../../../extension/review/origin-text.ts';
import type { BlameOrigin } from '../../../protocol/blame.ts';

const NOW = Date.parse('2026-03-01T12:00:00.000Z');
const turn = { id: 'turn-aaaaaaaaaaaaaaaa', prompt: 'fix [it](command:x)', at: '2026-03-01T11:18:00.000Z' };
const origin = (changes: Partial<BlameOrigin>): BlameOrigin => ({
  ...{ kind: 'turn', isExact: true, turns: [turn], turnCount: 1, from: null, to: null },
  ...changes,
});
const none = { turns: [], turnCount: 0 };

test.each([
  [origin({}), 'Changed by “fix [it] (command:x)”, 42 min ago.'],
  [
    origin({ isExact: false, turns: [{ ...turn, prompt: '', at: '2025-03-01T00:00:00.000Z' }] }),
    'Changed by a turn, on 2025-03-01, or by you before or after it.',
  ],
  [origin({ kind: 'person', ...none }), 'Changed by you, while no turn ran.'],
  [
    origin({ kind: 'unknown', isExact: false, turnCount: 4 }),
    'Changed by one of 4 turns, or by you: no snapshot between them is kept.',
  ],
  [
    origin({ kind: 'unknown', isExact: false, ...none }),
    'It is not known what changed this line: the history does not go back that far.',
  ],
  [origin({ kind: 'start', ...none }), undefined],
])('an origin is told in one line (%#)', (of, words) => {
  expect(originText(of, NOW)).toBe(words);
});
