import { describe, expect, test } from 'vitest';
import { mergeLines, applyEdits } from '../../../extension/files/merge-lines.ts';
import { soakCount } from '../../setup/run-length.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';

/** Small texts may take as long as a busy machine needs. */
function merged(base: string, mine: string, theirs: string): string | undefined {
  const edits = mergeLines(base, mine, theirs, 60_000);
  return edits === undefined ? undefined : applyEdits(mine, edits);
}

const BASE = 'a\nb\nc\nd\ne\n';

describe('a merge by lines', () => {
  test.each([
    ['different lines', 'A\nb\nc\nd\ne\n', 'a\nb\nc\nd\nE\n', 'A\nb\nc\nd\nE\n'],
    ['an insertion above', 'new\na\nb\nc\nd\ne\n', 'a\nb\nc\nD\ne\n', 'new\na\nb\nc\nD\ne\n'],
    ['a deletion above', 'c\nd\ne\n', 'a\nb\nc\nd\nE\n', 'c\nd\nE\n'],
    ['an append below', 'A\nb\nc\nd\ne\n', 'a\nb\nc\nd\ne\nf\n', 'A\nb\nc\nd\ne\nf\n'],
    ['a lost last line end', 'A\nb\nc\nd\ne\n', 'a\nb\nc\nd\ne', 'A\nb\nc\nd\ne'],
    ['the same change twice', 'a\nB\nc\nd\ne\n', 'a\nB\nc\nd\nE\n', 'a\nB\nc\nd\nE\n'],
    ['nothing of mine', BASE, 'x\n', 'x\n'],
    ['nothing of theirs', 'x\n', BASE, 'x\n'],
    ['all of it deleted by them', BASE, '', ''],
  ])('takes in %s', (_, mine, theirs, expected) => {
    expect(merged(BASE, mine, theirs)).toBe(expected);
  });

  test.each([
    ['the same line', 'a\nmine\nc\nd\ne\n', 'a\ntheirs\nc\nd\ne\n'],
    ['touching lines', 'a\nB\nc\nd\ne\n', 'a\nb\nC\nd\ne\n'],
    ['two insertions at one place', 'a\nmine\nb\nc\nd\ne\n', 'a\ntheirs\nb\nc\nd\ne\n'],
    ['a line that the other one deleted', 'a\nB\nc\nd\ne\n', 'a\nd\ne\n'],
    ['two appends', `${BASE}mine\n`, `${BASE}theirs\n`],
    ['one of two inside a larger change', 'x\ny\n', 'a\nb\nC\nd\ne\n'],
  ])('leaves %s to a person', (_, mine, theirs) => {
    expect(merged(BASE, mine, theirs)).toBeUndefined();
    expect(merged(BASE, theirs, mine)).toBeUndefined();
  });

  test('of texts without common lines is quickly left to a person', () => {
    const numbered = (word: string): string =>
      Array.from({ length: 20_000 }, (_, n) => `${word} ${String(n)}`).join('\n');
    const begun = performance.now();
    expect(mergeLines(numbered('base'), numbered('mine'), numbered('theirs'))).toBeUndefined();
    expect(performance.now() - begun).toBeLessThan(10_000);
  });

  test('of changes that are far enough apart contains all of them, from either side', () => {
    const seed = seedOfRun('merges');
    for (let round = 0; round < soakCount(150, 20_000); round += 1) {
      const random = new SeededRandom(seed + round);
      const base = Array.from({ length: 5 + random.below(60) }, (_, n) => `line ${String(n)}`);
      const sides = { mine: [...base], theirs: [...base], both: [...base] };
      // From the bottom up, so that the places above stay where they are.
      for (let at = base.length - 1 - random.below(3); at >= 0; at -= 3 + random.below(6)) {
        const lines = Array.from(
          { length: random.below(4) },
          (_, n) => `${String(round)}/${String(at)}/${String(n)}`,
        );
        const removed = lines.length === 0 ? 1 : random.below(2);
        const side = random.below(2) === 0 ? sides.mine : sides.theirs;
        side.splice(at, removed, ...lines);
        sides.both.splice(at, removed, ...lines);
      }
      const [old, mine, theirs, both] = [base, sides.mine, sides.theirs, sides.both].map((one) =>
        one.join('\n'),
      );
      if (old === undefined || mine === undefined || theirs === undefined) throw new Error('four texts');
      expect(merged(old, mine, theirs), `HOLDFAST_SEED=${String(seed + round)}`).toBe(both);
      expect(merged(old, theirs, mine), `HOLDFAST_SEED=${String(seed + round)}`).toBe(both);
    }
  });

  test('never loses a line that only one side added', () => {
    const seed = seedOfRun('lines');
    let merges = 0;
    for (let round = 0; round < soakCount(200, 20_000); round += 1) {
      const random = new SeededRandom(seed + round);
      const base = Array.from({ length: random.below(30) }, () => `w${String(random.below(8))}`);
      const changed = (who: string): string[] => {
        const lines = [...base];
        for (let times = random.below(3); times >= 0; times -= 1) {
          const at = random.below(lines.length + 1);
          lines.splice(at, random.below(3), `${who} ${String(round)}.${String(times)}`);
        }
        return lines;
      };
      const [mine, theirs] = [changed('mine'), changed('theirs')];
      const result = merged(base.join('\n'), mine.join('\n'), theirs.join('\n'));
      if (result === undefined) continue;
      merges += 1;
      const lines = result.split('\n');
      for (const line of [...mine, ...theirs]) {
        if (/^(mine|theirs)/.test(line)) expect(lines).toContain(line);
      }
    }
    expect(merges).toBeGreaterThan(20);
  });
});
