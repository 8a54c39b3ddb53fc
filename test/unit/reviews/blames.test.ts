import { createHash } from 'node:crypto';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Blame } from '../../../protocol/blame.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { Blames } from '../../../supervisor/reviews/blame/blames.ts';
import {
  causeBetween,
  type StoredState,
  type TurnSpan,
} from '../../../supervisor/reviews/blame/intervals.ts';
import { SPANS } from '../../../supervisor/reviews/blame/session-states.ts';
import { ReviewTrees } from '../../../supervisor/reviews/review-trees.ts';
import { TextComparison } from '../../../supervisor/snapshots/patch/text-comparison.ts';
import { WorkspaceBases } from '../../../supervisor/store/workspace-bases.ts';
import { SESSION, snapshotFixture } from '../../fixtures/snapshots/snapshot-fixture.ts';
import type { SmallTree } from '../../fixtures/snapshots/small-tree.ts';
import { rejectedError, turnId } from '../../fixtures/store/temporary-home.ts';

const lines = (...all: string[]): string => all.map((line) => `${line}\n`).join('');

function fixture() {
  const base = snapshotFixture();
  const texts = new TextComparison('/nonexistent/worker');
  onTestFinished(() => texts.close());
  const compared: string[] = [];
  const bases = new WorkspaceBases(base.database);
  const blames = new Blames({
    ...base,
    bases,
    trees: new ReviewTrees(base),
    texts: {
      changes: (id, ...both) => {
        compared.push(id);
        return texts.changes(id, ...both);
      },
    },
    readLive: (_session, path) => {
      const found = (base.sidecar.tree as Record<string, string | Buffer | undefined>)[
        path.slice('/workspace/'.length)
      ];
      if (found === undefined) return Promise.reject(new HoldfastError('file_not_found', 'gone'));
      const bytes = Buffer.isBuffer(found) ? found : Buffer.from(found);
      const version = createHash('sha256').update(bytes).digest('hex');
      return Promise.resolve({ bytes, version, size: bytes.length });
    },
  });
  const event = (type: 'turn.started' | 'turn.ended', n: number): void => {
    base.events.append(SESSION, [{ type, data: { turnId: turnId(n) } } as never]);
  };
  const start = async (n: number): Promise<void> => {
    await base.before(n);
    event('turn.started', n);
  };
  const write = (tree: SmallTree): void => {
    base.sidecar.tree = tree;
  };
  const blame = (asked: Partial<Parameters<Blames['blame']>[1]> = {}): Promise<Blame> =>
    blames.blame(base.session(), { path: '/workspace/a', ...asked });
  return {
    ...base,
    bases,
    compared,
    write,
    blame,
    start,
    end: (n: number) => event('turn.ended', n),
    /** What follows the end of a turn: the snapshot after it. */
    storeChanges: (n: number) => base.end(n),
    /** A turn that leaves the workspace like this. */
    turn: async (n: number, tree: SmallTree): Promise<void> => {
      await start(n);
      write(tree);
      event('turn.ended', n);
    },
    /** What each line says about itself. */
    origins: async (asked: { readonly path?: string } = {}): Promise<string[]> => {
      const { ranges, origins } = await blame(asked);
      return ranges.flatMap(({ start: from, end, origin }) => {
        const { kind, isExact, turns } = origins[origin] ?? { kind: 'none', isExact: false, turns: [] };
        const of = turns.map(({ id }) => [0, 1, 2].find((n) => turnId(n) === id) ?? '?').join('');
        return Array.from({ length: end - from }, () => `${kind}${of}${isExact ? '' : '?'}`);
      });
    },
  };
}

describe('the origin of lines', () => {
  test('is the turn that changed them last, through its shell too, or the person where no turn ran', async () => {
    const at = fixture();
    at.write({ a: lines('one', 'two', 'three') });
    await at.turn(0, { a: lines('one', 'TWO', 'three') });
    await at.take();
    expect(await at.origins()).toEqual(['start', 'turn0?', 'start']);
    at.write({ a: lines('one', 'TWO', 'mine') });
    await at.start(1);
    expect(await at.origins()).toEqual(['start', 'turn0?', 'person']);
    at.write({ a: lines('one', 'TWO', 'mine', 'four') });
    // It still runs: nobody but it is at work.
    expect(await at.origins()).toEqual(['start', 'turn0?', 'person', 'turn1']);
    at.end(1);
    expect(await at.origins()).toEqual(['start', 'turn0?', 'person', 'turn1?']);
  });

  test('is exactly the turn where a snapshot shows what it left, and the person after it', async () => {
    const { write, start, end, storeChanges, turns, origins } = fixture();
    for (const n of [1, 2]) turns.update(turnId(n), { status: 'succeeded' });
    write({ a: lines('first') });
    await start(0);
    turns.update(turnId(0), { status: 'running', startedAt: 1 });
    write({ a: lines('first', 'of the turn') });
    end(0);
    expect(await storeChanges(0)).toMatchObject({ state: 'known', lines: { added: 1, removed: 0 } });
    write({ a: lines('first', 'of the turn', 'of the person') });
    expect(await origins()).toEqual(['start', 'turn0', 'person']);
  });

  test('is perhaps the turn where the next one waited already: a person can have changed files before its snapshot', async () => {
    const { write, start, end, storeChanges, turns, origins } = fixture();
    write({ a: lines('first') });
    await start(0);
    turns.update(turnId(0), { status: 'running', startedAt: 1 });
    write({ a: lines('first', 'of the turn') });
    end(0);
    const stored = storeChanges(0);
    write({ a: lines('first', 'of the turn', 'of the person') });
    await start(1);
    expect(await stored).toMatchObject({ state: 'known', lines: { added: 2, removed: 0 } });
    expect(await origins()).toEqual(['start', 'turn0?', 'turn0?']);
  });

  test('is unknown between two snapshots where the one between them was thinned out', async () => {
    const at = fixture();
    at.write({ a: lines('one') });
    await at.turn(0, { a: lines('one', 'two') });
    await at.turn(1, { a: lines('one', 'two', 'three') });
    const between = at.turnSnapshot(1)?.snapshotId ?? '';
    await at.take({ label: 'after both' });
    expect(await at.origins()).toEqual(['start', 'turn0?', 'turn1?']);
    at.snapshots.remove(between);
    expect(await at.origins()).toEqual(['start', 'unknown01?', 'unknown01?']);
    const { origins } = await at.blame();
    const unknown = origins.find(({ kind }) => kind === 'unknown');
    expect(unknown).toMatchObject({
      turnCount: 2,
      from: { snapshotId: at.turnSnapshot(0)?.snapshotId },
      to: { snapshotId: at.snapshots.newest(SESSION)?.id },
    });
    expect(unknown?.turns[0]).toMatchObject({ id: turnId(0), prompt: 'hello' });
    at.snapshots.remove(at.turnSnapshot(0)?.snapshotId ?? '');
    expect(await at.origins()).toEqual(['unknown01?', 'unknown01?', 'unknown01?']);
  });

  test('of a new file, and of one that was no text before, is what made it', async () => {
    const at = fixture();
    at.write({ b: 'other' });
    await at.turn(0, { a: 'a\0b', b: 'other' });
    await at.turn(1, { a: lines('text'), b: 'other' });
    expect(await at.origins()).toEqual(['turn1?']);
    at.write({ a: lines('text', 'more') });
    expect(await at.origins()).toEqual(['turn1?', 'turn1?']);
    at.write({ b: lines('x'), a: '' });
    expect(await at.blame()).toMatchObject({ lines: 0, ranges: [], origins: [], nextLine: null });
  });

  test('is remembered by contents: a repeated question compares nothing, a later one only what is new', async () => {
    const at = fixture();
    at.write({ a: lines('one') });
    await at.turn(0, { a: lines('one', 'two') });
    await at.turn(1, { a: lines('one', 'two', 'three') });
    await at.take();
    const first = await at.blame();
    expect(at.compared).toHaveLength(2);
    expect(await at.blame()).toEqual(first);
    await at.turn(2, { a: lines('one', 'two', 'three', 'four') });
    await at.take();
    await at.blame();
    expect(at.compared).toHaveLength(3);
  });

  test('is reported for the requested lines, of the version that was named', async () => {
    const at = fixture();
    at.write({ a: lines('one', 'two', 'three') });
    await at.turn(0, { a: lines('ONE', 'two', 'THREE') });
    const { version } = await at.blame();
    expect(await at.blame({ start: 1, end: 3, ifVersion: version })).toMatchObject({
      lines: 3,
      ranges: [
        { start: 1, end: 2, origin: 0 },
        { start: 2, end: 3, origin: 1 },
      ],
      origins: [{ kind: 'start' }, { kind: 'turn' }],
    });
    const refused = await rejectedError(at.blame({ ifVersion: 'another' }));
    expect(refused).toMatchObject({ code: 'conflict', details: { version } });
  });

  test('is not asked for in what is no text, or too much of it', async () => {
    const at = fixture();
    await at.take();
    at.write({ a: 'a\0b' });
    expect((await rejectedError(at.blame())).code).toBe('not_supported');
    at.write({ a: '\n'.repeat(100_001) });
    expect((await rejectedError(at.blame())).code).toBe('file_too_large');
    at.write({ a: 'a'.repeat(4 * 2 ** 20 + 1) });
    expect((await rejectedError(at.blame())).code).toBe('file_too_large');
  });

  test('is unknown over a version with too many lines, which is not compared', async () => {
    const at = fixture();
    at.write({ a: lines('one') });
    await at.turn(0, { a: 'one\n'.repeat(100_001) });
    await at.turn(1, { a: lines('one', 'two') });
    expect(await at.origins()).toEqual(['start', 'unknown01?']);
    expect(at.compared).toHaveLength(1);
  });

  test('reads when turns ran, and not the whole history', () => {
    const { database } = fixture();
    const plan = database.all(`EXPLAIN QUERY PLAN ${SPANS}`, SESSION);
    expect(plan).toMatchObject([{ detail: 'SEARCH events USING INDEX events_about_spans (sessionId=?)' }]);
  });
});

describe('what ran between two states', () => {
  const state = (
    seq: number,
    snapshotId: string | null = null,
    endOf: string | null = null,
  ): StoredState => ({
    root: '',
    at: 0,
    seq,
    snapshotId,
    endOf,
  });
  const turn = (id: string, startSeq: number, endSeq: number, before: string | null = null): TurnSpan => ({
    ...{ id, startSeq, endSeq, before },
  });
  const ONE = turn('one', 10, 20, 'A');
  const TWO = turn('two', 30, 40, 'B');
  const RUNNING = turn('runs', 30, Infinity, 'B');
  const cases: [string, StoredState | null, StoredState | null, TurnSpan[], string][] = [
    ['nothing before the first state', null, state(5), [ONE], 'start'],
    ['nothing at all', null, null, [], 'start'],
    ['a person after the last turn', state(20), null, [ONE], 'person'],
    ['a turn and what came after it', state(9, 'A'), state(25), [ONE], 'turn? one'],
    ['a turn up to its end', state(9, 'A'), state(20, null, 'one'), [ONE], 'turn one'],
    ['a person after the end of a turn', state(20, null, 'one'), state(29, 'B'), [ONE, TWO], 'person'],
    ['a part of a turn', state(12), state(15), [ONE], 'turn one'],
    ['what came before a turn as well', state(5, 'X'), state(15), [ONE], 'turn? one'],
    ['a turn that runs', state(29, 'B'), null, [ONE, RUNNING], 'turn runs'],
    ['two turns', state(9, 'A'), state(45), [ONE, TWO], 'unknown? one two'],
    [
      'a turn after one that changed nothing',
      state(9, 'A'),
      state(45),
      [ONE, turn('two', 30, 40, 'A')],
      'turn? two',
    ],
    ['a turn before the first state', null, state(25), [ONE], 'turn? one'],
  ];
  test.each(cases)('%s', (_title, from, to, turns, expected) => {
    const { kind, isExact, turns: ids } = causeBetween(from, to, turns);
    expect([`${kind}${isExact ? '' : '?'}`, ...ids].join(' ')).toBe(expected);
  });
});

describe('a renamed file', () => {
  const OLD = lines('one', 'two', 'three', 'four', 'five', 'six');

  test('keeps the origins of its lines, as it is and with an edit, and its new lines are of the turn that renamed it', async () => {
    const at = fixture();
    at.write({ 'was.ts': OLD, other: 'other\n' });
    await at.turn(0, { 'was.ts': OLD.replace('two', 'TWO'), other: 'other\n' });
    await at.turn(1, { 'now.ts': OLD.replace('two', 'TWO'), other: 'other\n' });
    // Nothing is stored after the rename yet.
    const here = { path: '/workspace/now.ts' };
    expect(await at.origins(here)).toEqual(['start', 'turn0?', 'start', 'start', 'start', 'start']);
    await at.take();
    expect(await at.origins(here)).toEqual(['start', 'turn0?', 'start', 'start', 'start', 'start']);
    await at.turn(2, { a: OLD.replace('two', 'TWO').replace('six', 'SIX'), other: 'other\n' });
    expect(await at.origins()).toEqual(['start', 'turn0?', 'start', 'start', 'start', 'turn2?']);
    await at.take({ label: 'after the edit' });
    expect(await at.origins()).toEqual(['start', 'turn0?', 'start', 'start', 'start', 'turn2?']);
  });

  test('is one that went: a copy is new, and so is a file that only looks a little like another', async () => {
    const at = fixture();
    at.write({ was: OLD, small: lines('one', 'x', 'y', 'z', 'w', 'v') });
    await at.turn(0, { was: OLD, a: OLD });
    expect(new Set(await at.origins())).toEqual(new Set(['turn0?']));
    await at.take();
    expect(new Set(await at.origins())).toEqual(new Set(['turn0?']));
  });
});
