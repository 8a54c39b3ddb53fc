import { expect, test } from 'vitest';
import type { BlameOrigin } from '../../../protocol/blame.ts';
import { formatBlame, formatOrigin } from '../../../cli/render/blame.ts';
import { createStyle } from '../../../cli/render/style.ts';
import { NOW } from '../../fixtures/cli/fake-supervisor.ts';

const view = { style: createStyle(false, {}), now: NOW };
const state = { snapshotId: 'snp-aaaaaaaaaaaaaaaa', at: '2026-03-01T10:00:00.000Z' };
const turn = {
  id: 'turn-aaaaaaaaaaaaaaaa',
  prompt: 'fix the \u001b[2Jparser',
  at: '2026-03-01T11:57:00.000Z',
};
const origin = (changes: Partial<BlameOrigin>): BlameOrigin => ({
  ...{ kind: 'turn', isExact: true, turns: [turn], turnCount: 1, from: state, to: null },
  ...changes,
});
const ORIGINS = [
  origin({}),
  origin({ kind: 'person', turns: [], turnCount: 0 }),
  origin({ kind: 'unknown', isExact: false, turns: [turn, turn, turn], turnCount: 7 }),
];

test('each group of lines begins with what changed it; nothing in it moves the cursor', () => {
  const ranges = [
    { start: 0, end: 2, origin: 0 },
    { start: 2, end: 3, origin: 1 },
    { start: 3, end: 4, origin: 2 },
  ];
  expect(formatBlame({ ranges, origins: ORIGINS, lines: 10 }, ['a', '\u001b[31mb', 'c', 'd'], view)).toEqual([
    '3 min ago fix the \\e[2Jparser     1│ a',
    '                                  2│ \\e[31mb',
    'you                               3│ c',
    'one of 7 turns, or you            4│ d',
  ]);
});

test('a line is shown with its turn and the snapshots around it', () => {
  const place = { path: '/workspace/src/a.ts', start: 11, end: 12 };
  const [exact, person, unknown] = ORIGINS.map((one) => formatOrigin(place, one, view));
  expect(exact).toEqual([
    'src/a.ts:12  turn-aaaaaaaaaaaaaaaa',
    '  fix the \\e[2Jparser  turn-aaaaaaaaaaaaaaaa, 3 min ago',
    '  between snp-aaaaaaaaaaaaaaaa and now',
  ]);
  expect(person).toEqual(['src/a.ts:12  you, while no turn ran', '  between snp-aaaaaaaaaaaaaaaa and now']);
  expect(unknown?.at(-2)).toBe('  and 4 more turns');
  expect(formatOrigin(place, origin({ isExact: false }), view)[0]).toBe(
    'src/a.ts:12  turn-aaaaaaaaaaaaaaaa, or you before or after it',
  );
});
