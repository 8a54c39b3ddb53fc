import { describe, expect, test } from 'vitest';
import { formatSnapshotGraph } from '../../../cli/render/snapshot-graph.ts';
import { formatSnapshotTable } from '../../../cli/render/snapshot.ts';
import { createStyle } from '../../../cli/render/style.ts';
import { entriesOf } from '../../../protocol/snapshot-tree.ts';
import type { Snapshot, SnapshotGraph } from '../../../protocol/snapshots.ts';

const id = (n: number): string => `snp-${'a'.repeat(15)}${String.fromCharCode(97 + n)}`;
const at = (minute: number): string => new Date(Date.UTC(2026, 0, 1, 10, minute)).toISOString();
const NOW = Date.UTC(2026, 0, 1, 11, 0);

const snapshot = (n: number, more: Partial<Snapshot> = {}): Snapshot => ({
  ...{ id: id(n), sessionId: 'ses-aaaaaaaaaaaaaaaa', createdAt: at(n), reason: 'before-turn', label: null },
  ...{ pinned: false, base: null, files: 1, directories: 1, bytes: 1, changedFiles: 1, changedBytes: 1 },
  ...{ newBytes: 1, scanMs: 1, frozenMs: 0, eventSeq: 10 * n, duringTurn: false, missing: 0 },
  ...{
    author: null,
    missingPaths: [],
    stateRoot: null,
    turn: { id: 'trn-aaaaaaaaaaaaaaaa', prompt: `Do ${n}` },
  },
  ...more,
});

const GRAPH: SnapshotGraph = {
  origin: { snapshotId: id(20), session: { id: 'ses-cccccccccccccccc', name: 'parser' } },
  restores: [{ seq: 42, at: at(4), snapshotId: id(2), path: null, undo: id(4) }],
  forks: [{ sessionId: 'ses-bbbbbbbbbbbbbbbb', name: 'another way', snapshotId: id(2), at: at(3) }],
};

const draw = (snapshots: Snapshot[], graph = GRAPH, width = 120): string[] =>
  formatSnapshotGraph(entriesOf(snapshots, graph, true), { style: createStyle(false, {}), now: NOW, width });

describe('snapshot list --graph', () => {
  test('draws the branch that a restore left, a fork, pins and what the session began with', () => {
    const drawn = draw([
      snapshot(5, { pinned: true, label: 'all tests pass', turn: null, reason: 'manual' }),
      snapshot(4, { turn: null, reason: 'before-restore' }),
      snapshot(3),
      snapshot(2),
      snapshot(1),
    ]);
    expect(drawn.map((line) => line.replace(/ \d+ min ago /, '  ').replace(/ {2,}/g, '  '))).toEqual([
      '○  now  the files as they are',
      `◉  ${id(5)}  [pinned] all tests pass (goes on from ${id(2)}, restored)`,
      `│ ●  ${id(4)}  before-restore`,
      '│ │ ■  ses-bbbbbbbbbbbbbbbb  fork “another way”',
      `│ ● │  ${id(3)}  before-turn: Do 3`,
      `●─┴─╯  ${id(2)}  before-turn: Do 2`,
      `●  ${id(1)}  before-turn: Do 1`,
      `■  ${id(20)}  what the session began with, of “parser”`,
    ]);
  });

  test('fits into the terminal, and nothing that an agent named acts', () => {
    const drawn = draw([snapshot(1, { label: `\u001b[31mred\u202e${'x'.repeat(500)}\nnext` })], GRAPH, 80);
    for (const line of drawn) expect(Array.from(line).length).toBeLessThanOrEqual(80);
    for (const bad of ['\u001b', '\u202e', '\n']) expect(drawn.join('')).not.toContain(bad);
  });
});

test('snapshot list says who asked for each snapshot', () => {
  const all = [snapshot(2, { author: 'agent' }), snapshot(1, { author: 'supervisor' }), snapshot(0)];
  const [head = '', ...rows] = formatSnapshotTable(all, {
    style: createStyle(false, {}),
    now: NOW,
    width: 160,
  });
  const column = head.indexOf('AUTHOR');
  expect(column).toBeGreaterThan(0);
  expect(rows.map((row) => row.slice(column).split(' ')[0])).toEqual(['agent', 'supervisor', '']);
});
