import { expect, test } from 'vitest';
import { LineOrigins } from '../../../supervisor/reviews/blame/line-origins.ts';
import { type LineChange, lineChanges } from '../../../supervisor/snapshots/patch/line-changes.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';

const LIMITS = { ms: 10_000, edits: 10_000 };
const text = (lines: readonly string[]): Buffer => Buffer.from(lines.map((line) => `${line}\n`).join(''));

/** The origins of the last of `versions`, by version; -1 for lines of the first one. */
function originsOf(versions: readonly (readonly string[])[]): number[] {
  const last = versions.at(-1) ?? [];
  const origins = new LineOrigins<number>(last.length);
  for (let at = versions.length - 1; at > 0; at -= 1)
    origins.stepBack(lineChanges(text(versions[at - 1] ?? []), text(versions[at] ?? []), LIMITS), at);
  origins.finish(-1);
  return origins
    .ranges()
    .flatMap(({ start, end, origin }) => Array.from({ length: end - start }, () => origin));
}

test('each line has the version that brought it', () => {
  expect(originsOf([['a', 'b', 'c']])).toEqual([-1, -1, -1]);
  expect(
    originsOf([
      ['a', 'b', 'c'],
      ['a', 'B', 'c'],
      ['a', 'B', 'c', 'd'],
    ]),
  ).toEqual([-1, 1, -1, 2]);
  expect(originsOf([[], ['a'], ['b', 'a'], ['b', 'x', 'a']])).toEqual([2, 3, 1]);
  expect(originsOf([['a', 'b', 'c', 'd'], ['d'], ['a', 'd']])).toEqual([2, -1]);
  expect(originsOf([['a', 'b'], []])).toEqual([]);
  expect(originsOf([['a'], ['b'], ['a']])).toEqual([2]);
});

test('neighbours with one origin are one range, and what is not known yet is none', () => {
  const origins = new LineOrigins<string>(5);
  expect([origins.open, origins.ranges()]).toEqual([5, []]);
  origins.stepBack([{ beforeStart: 1, beforeEnd: 1, afterStart: 1, afterEnd: 3 }], 'second');
  expect([origins.open, origins.ranges()]).toEqual([3, [{ start: 1, end: 3, origin: 'second' }]]);
  origins.finish('first');
  expect(origins.ranges()).toEqual([
    { start: 0, end: 1, origin: 'first' },
    { start: 1, end: 3, origin: 'second' },
    { start: 3, end: 5, origin: 'first' },
  ]);
  origins.stepBack([{ beforeStart: 0, beforeEnd: 0, afterStart: 0, afterEnd: 5 }], 'too late');
  expect(origins.ranges()).toHaveLength(3);
});

/** A line that carries the version that wrote it. */
interface Written {
  readonly by: number;
}

test('random histories agree with lines that remember who wrote them', () => {
  const random = new SeededRandom(seedOfRun('origins of lines'));
  const below = (limit: number): number => random.below(limit);
  for (let history = 0; history < 300; history += 1) {
    let lines: Written[] = Array.from({ length: below(20) }, () => ({ by: -1 }));
    const steps: LineChange[][] = [];
    for (let by = 0; by < 1 + below(12); by += 1) {
      const changes: LineChange[] = [];
      const after: Written[] = [];
      let at = 0;
      while (at < lines.length || below(4) === 0) {
        const kept = Math.min(lines.length - at, below(5));
        after.push(...lines.slice(at, at + kept));
        at += kept;
        const removed = Math.min(lines.length - at, below(4));
        const added = below(4);
        if (removed + added > 0) {
          const afterStart = after.length;
          changes.push({
            beforeStart: at,
            beforeEnd: at + removed,
            afterStart,
            afterEnd: afterStart + added,
          });
        }
        after.push(...Array.from({ length: added }, () => ({ by })));
        at += removed;
      }
      steps.push(changes);
      lines = after;
    }
    const origins = new LineOrigins<number>(lines.length);
    for (const [by, changes] of [...steps.entries()].reverse()) origins.stepBack(changes, by);
    origins.finish(-1);
    const found = origins
      .ranges()
      .flatMap(({ start, end, origin }) => Array.from({ length: end - start }, () => origin));
    expect(found).toEqual(lines.map(({ by }) => by));
  }
});
