import { describe, expect, test } from 'vitest';
import type { PageSnapshot } from '../../../webview/late-messages.ts';
import { layoutGraph } from '../../../protocol/snapshot-lanes.ts';
import type { GraphNode } from '../../../protocol/snapshot-lanes.ts';
import { entriesOf } from '../../../protocol/snapshot-tree.ts';
import type { Entry } from '../../../protocol/snapshot-tree.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { processorMs } from '../../setup/processor-time.ts';

/** `c>a b>a a`: nodes in order, each with what it follows. */
const nodes = (text: string): GraphNode[] =>
  text.split(' ').map((one) => {
    const [id = '', parent = null] = one.split('>');
    return { id, parent };
  });

/** A row as letters per lane: `*` the node, `|` a line that passes, `\` one that joins the node, `.` nothing. */
const drawing = (text: string, maxLanes?: number): string[] => {
  const { rows, lanes } = layoutGraph(nodes(text), maxLanes);
  return rows.map(({ id, lane, passing, joining }) => {
    const cells = Array.from({ length: lanes }, (_, at) => {
      if (at === lane) return '*';
      if (joining.includes(at)) return '\\';
      return passing.includes(at) ? '|' : '.';
    });
    return `${cells.join('')} ${id}`;
  });
};

describe('the lanes of a graph', () => {
  test('a history without branches is one line', () => {
    expect(drawing('c>b b>a a')).toEqual(['* c', '* b', '* a']);
    const { rows } = layoutGraph(nodes('c>b b>a a'));
    expect(rows.map(({ fromAbove, toBelow }) => [fromAbove, toBelow])).toEqual([
      [false, true],
      [true, true],
      [true, false],
    ]);
  });

  test('a branch has a lane of its own until it joins what it began with', () => {
    expect(drawing('now>d d>a c>b b>a a')).toEqual(['*. now', '*. d', '|* c', '|* b', '*\\ a']);
  });

  test('a lane that has ended is used again', () => {
    expect(drawing('now>e e>d x>d d>b y>b b>a a')).toEqual([
      '*. now',
      '*. e',
      '|* x',
      '*\\ d',
      '|* y',
      '*\\ b',
      '*. a',
    ]);
  });

  test('several branches join in one row', () => {
    expect(drawing('now>a x>a y>a z>a a')).toEqual(['*... now', '|*.. x', '||*. y', '|||* z', '*\\\\\\ a']);
  });

  test('what follows nothing, or what is not there, ends its line', () => {
    expect(drawing('now>b b a')).toEqual(['* now', '* b', '* a']);
    expect(drawing('now>gone a')).toEqual(['* now', '* a']);
    expect(layoutGraph(nodes('now>gone a')).rows[0]?.toBelow).toBe(false);
  });

  test('more branches than lanes share the last one', () => {
    const { lanes, rows } = layoutGraph(nodes('now>a x>a y>a z>a a'), 2);
    expect(lanes).toBe(2);
    expect(rows.map(({ lane }) => lane)).toEqual([0, 1, 1, 1, 0]);
    // The line of what is above goes on behind a node that shares its lane.
    expect(rows[2]?.passing).toEqual([0, 1]);
    expect(rows[4]?.joining).toEqual([1]);
  });

  test('a node that follows itself or what is above it ends its line', () => {
    expect(drawing('a>a')).toEqual(['* a']);
    expect(drawing('b a>b')).toEqual(['* b', '* a']);
  });

  test('every line that leaves a row arrives in the next one, whatever the graph', () => {
    const random = new SeededRandom(seedOfRun('graph layout'));
    for (let run = 0; run < 300; run += 1) {
      const count = 1 + random.below(40);
      const list = Array.from({ length: count }, (_, at): GraphNode => {
        const below = count - at - 1;
        const follows = below > 0 && random.below(10) > 0;
        return { id: `n${at}`, parent: follows ? `n${at + 1 + random.below(Math.min(below, 6))}` : null };
      });
      const { rows, lanes } = layoutGraph(list, 100);
      expect(rows.map(({ id }) => id)).toEqual(list.map(({ id }) => id));
      let leaving: number[] = [];
      for (const { lane, fromAbove, toBelow, passing, joining } of rows) {
        const arriving = [...passing, ...joining, ...(fromAbove ? [lane] : [])].sort((a, b) => a - b);
        expect(arriving).toEqual(leaving);
        expect(passing).not.toContain(lane);
        leaving = [...passing, ...(toBelow ? [lane] : [])].sort((a, b) => a - b);
        expect(Math.max(lane, ...leaving)).toBeLessThan(lanes);
      }
      expect(leaving).toEqual([]);
    }
  });

  test('a thousand snapshots are laid out in a fifth of a second', async () => {
    const many = Array.from({ length: 1000 }, (_, at): GraphNode => {
      const parent = at === 999 ? null : `n${Math.min(999, at + 1 + (at % 7 === 0 ? 5 : 0))}`;
      return { id: `n${at}`, parent };
    });
    const used = await processorMs(() => expect(layoutGraph(many).rows).toHaveLength(1000));
    expect(used).toBeLessThan(200);
  });
});

describe('what a snapshot follows', () => {
  const time = (at: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, at)).toISOString();
  const snapshot = (id: string, eventSeq: number, more: Partial<PageSnapshot> = {}): PageSnapshot => ({
    ...{ id, eventSeq, createdAt: time(eventSeq), reason: 'before-turn', label: null, pinned: false },
    ...{ files: 1, bytes: 1, changedFiles: 1, newBytes: 1, turn: null, duringTurn: false, missing: 0 },
    author: null,
    ...more,
  });
  const restore = (seq: number, snapshotId: string, path: string | null = null) => ({
    ...{ seq, at: time(seq), snapshotId, path, undo: null },
  });
  const none = { origin: null, restores: [], forks: [] };
  const shown = (entries: readonly Entry[]): string[] =>
    entries.map(({ id, parent }) => (parent === null ? id : `${id}>${parent}`));
  /** Newest first. */
  const three = [snapshot('c', 5), snapshot('b', 3), snapshot('a', 1)];

  test('the one before it', () => {
    expect(shown(entriesOf(three, none, true))).toEqual(['now>c', 'c>b', 'b>a', 'a']);
    expect(shown(entriesOf([], none, true))).toEqual(['now']);
  });

  test('after a restore, the one that was restored; the snapshot before the restore ends a branch', () => {
    const [undo, after] = [snapshot('u', 7, { reason: 'before-restore' }), snapshot('d', 9)];
    const entries = entriesOf([after, undo, ...three], { ...none, restores: [restore(8, 'a')] }, true);
    expect(shown(entries)).toEqual(['now>d', 'd>a', 'u>c', 'c>b', 'b>a', 'a']);
    expect(entries[1]).toMatchObject({ restored: { snapshotId: 'a', at: time(8) } });
    expect(entries[0]).toMatchObject({ restored: null });
  });

  test('a snapshot whose last event is the restore came after it', () => {
    const entries = entriesOf([snapshot('d', 8), ...three], { ...none, restores: [restore(8, 'b')] }, true);
    expect(shown(entries).slice(0, 2)).toEqual(['now>d', 'd>b']);
  });

  test('a restore of one path changes nothing; of several the last one counts', () => {
    const restores = [restore(9, 'b'), restore(8, 'a'), restore(7, 'a', '/workspace/x')];
    const entries = entriesOf(three, { ...none, restores }, true);
    expect(shown(entries)[0]).toBe('now>b');
    expect(shown(entriesOf(three, { ...none, restores: restores.slice(2) }, true))[0]).toBe('now>c');
  });

  test('after a restore of a snapshot that was deleted, and after a reset, nothing that is known', () => {
    expect(shown(entriesOf(three, { ...none, restores: [restore(8, 'gone')] }, true))[0]).toBe('now');
    const reset = snapshot('r', 7, { reason: 'before-reset' });
    expect(shown(entriesOf([snapshot('d', 9), reset, ...three], none, true)).slice(0, 3)).toEqual([
      'now>d',
      'd',
      'r>c',
    ]);
  });

  test('the first one, and a restore of what the session was forked from, follow the origin', () => {
    const origin = { snapshotId: 'o', session: { id: 'ses-x', name: 'before' } };
    const entries = entriesOf(three, { ...none, origin, restores: [restore(8, 'o')] }, true);
    expect(shown(entries)).toEqual(['now>origin', 'c>b', 'b>a', 'a>origin', 'origin']);
    // Before the oldest ones are read, the origin is not on the page.
    expect(shown(entriesOf(three, { ...none, origin }, false))).toEqual(['now>c', 'c>b', 'b>a', 'a']);
  });

  test('forks stand above what is older than they are, and always above what they began with', () => {
    const fork = (sessionId: string, snapshotId: string, at: number) => ({
      ...{ sessionId, name: sessionId, snapshotId, at: time(at) },
    });
    const forks = [fork('f1', 'a', 6), fork('f2', 'b', 4), fork('f3', 'b', 0), fork('f4', 'gone', 9)];
    const entries = entriesOf(three, { ...none, forks }, true);
    expect(shown(entries)).toEqual(['now>c', 'f1>a', 'c>b', 'f2>b', 'f3>b', 'b>a', 'a']);
    expect(layoutGraph(entries).lanes).toBe(4);
  });
});
