import { describe, expect, test } from 'vitest';
import {
  acceptedText,
  applyLines,
  carryLines,
  countLines,
  decideLines,
  intersectLines,
  type LineSet,
  linesOf,
  type TextDecisions,
  undecidedLines,
  undecidedText,
  unionLines,
  workspaceText,
} from '../../../supervisor/reviews/line-decisions.ts';
import { lineChanges } from '../../../supervisor/snapshots/patch/line-changes.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

const LIMITS = { ms: Infinity, edits: 2000 };
const text = (...lines: string[]): Buffer => Buffer.from(lines.map((line) => `${line}\n`).join(''));
const compare = (base: Buffer, target: Buffer): TextDecisions =>
  undecidedText(lineChanges(base, target, LIMITS));

/** Texts of few different lines, so that lines repeat; some do not end with a newline. */
class RandomTexts {
  readonly random: SeededRandom;
  constructor(seed: number) {
    this.random = new SeededRandom(seed);
  }
  line(): string {
    return ['a', 'b', 'c', '', 'd\r', '}', '\u00e9'][this.random.below(7)] ?? '';
  }
  text(): Buffer {
    return this.#end(Array.from({ length: this.random.below(14) }, () => this.line()));
  }
  edited(from: Buffer): Buffer {
    const lines = from.toString().replace(/\n$/, '').split('\n');
    for (let edits = this.random.below(6); edits >= 0; edits -= 1) {
      const at = this.random.below(lines.length + 1);
      const added = Array.from({ length: this.random.below(3) }, () => this.line());
      lines.splice(at, this.random.below(3), ...added);
    }
    return this.#end(lines);
  }
  lines(of: LineSet): LineSet {
    const some = (set: LineSet['removed']): LineSet['removed'] =>
      set.flatMap(([start, end]) => {
        const from = start + this.random.below(end - start);
        const to = from + 1 + this.random.below(end - from);
        return this.random.below(2) === 0 ? [[from, to] as const] : [];
      });
    return { removed: some(of.removed), added: some(of.added) };
  }
  #end(lines: readonly string[]): Buffer {
    return Buffer.from(lines.join('\n') + (this.random.below(4) === 0 ? '' : '\n'));
  }
}

describe('deciding lines', () => {
  test('all lines give the target, none the base', () => {
    const texts = new RandomTexts(seedOfRun('review-lines'));
    for (let round = 0; round < soakCount(800, 100_000); round += 1) {
      const base = texts.text();
      const target = texts.edited(base);
      const decided = compare(base, target);
      const { changes } = decided;
      expect(applyLines(base, target, changes, linesOf(changes)).toString()).toBe(target.toString());
      expect(acceptedText(base, target, decided).toString()).toBe(base.toString());
      expect(workspaceText(base, target, decided).toString()).toBe(target.toString());
      const rejected = decideLines(decided, linesOf(changes), 'reject');
      expect(workspaceText(base, target, rejected).toString()).toBe(base.toString());
    }
  });

  test('accepted, rejected and undecided lines partition the changes, in any order of decisions', () => {
    const texts = new RandomTexts(seedOfRun('review-partition'));
    for (let round = 0; round < soakCount(400, 50_000); round += 1) {
      const base = texts.text();
      const target = texts.edited(base);
      const fresh = compare(base, target);
      const all = linesOf(fresh.changes);
      const toAccept = texts.lines(all);
      const toReject = ((lines: LineSet): LineSet => ({
        removed: lines.removed.filter(
          ([at]) => !toAccept.removed.some(([from, to]) => at >= from && at < to),
        ),
        added: lines.added.filter(([at]) => !toAccept.added.some(([from, to]) => at >= from && at < to)),
      }))(texts.lines(all));
      const one = decideLines(decideLines(fresh, toReject, 'reject'), toAccept, 'accept');
      // The same lines one by one, the last first.
      let other = fresh;
      for (const side of ['added', 'removed'] as const) {
        for (const range of [...toAccept[side]].reverse()) {
          for (let line = range[1] - 1; line >= range[0]; line -= 1) {
            const single = { removed: [], added: [], [side]: [[line, line + 1]] } as LineSet;
            other = decideLines(other, single, 'accept');
          }
        }
      }
      other = decideLines(other, one.rejected, 'reject');
      expect(other).toEqual(one);
      const parts = [one.accepted, one.rejected, undecidedLines(one)] as const;
      expect(parts.reduce((sum, part) => sum + countLines(part), 0)).toBe(countLines(all));
      expect(parts.reduce(unionLines)).toEqual(unionLines(all, all));
      expect(countLines(intersectLines(one.accepted, one.rejected))).toBe(0);
      expect(acceptedText(base, target, other)).toEqual(acceptedText(base, target, one));
    }
  });

  test('a line without an end gets one when another line follows it', () => {
    const base = Buffer.from('a\nb');
    const target = Buffer.from('a\nb\nc');
    const fresh = compare(base, target);
    const [, last] = [0, 2];
    const decided = decideLines(fresh, { removed: [], added: [[last, last + 1]] }, 'accept');
    expect(acceptedText(base, target, decided).toString()).toBe('a\nb\nc');
  });
});

describe('carrying decisions to a newer target', () => {
  const carried = (base: Buffer, target: Buffer, newer: Buffer): TextDecisions => {
    const fresh = compare(base, target);
    const decided = decideLines(fresh, linesOf(fresh.changes), 'accept');
    return carryLines(decided, target, {
      base,
      target: newer,
      changes: lineChanges(base, newer, LIMITS),
    });
  };
  const accepted = (base: Buffer, target: Buffer, newer: Buffer): string =>
    acceptedText(base, newer, carried(base, target, newer)).toString();

  test('what did not change stays accepted, wherever it moved to', () => {
    const base = text('1', '2', '3', '4', '5', '6');
    const target = text('1', 'two', '3', '4', '5', '6');
    expect(accepted(base, target, target)).toBe(target.toString());
    const newer = text('0', '1', 'two', '3', '4', '5', '6', '7');
    expect(accepted(base, target, newer)).toBe(target.toString());
    expect(countLines(undecidedLines(carried(base, target, newer)))).toBe(2);
  });

  test('a change that grew keeps what was accepted, and the rest is to be reviewed', () => {
    const base = text('1', '2', '3');
    const target = text('1', 'two', '3');
    const newer = text('1', 'two', 'and a half', '3');
    expect(accepted(base, target, newer)).toBe(target.toString());
    expect(undecidedLines(carried(base, target, newer))).toEqual({ removed: [], added: [[2, 3]] });
  });

  test('a removal whose lines came back, or came back changed, is not accepted any more', () => {
    const base = text('1', 'check()', '3');
    const target = text('1', '3');
    expect(accepted(base, target, target)).toBe(target.toString());
    expect(accepted(base, target, base)).toBe(base.toString());
    const changed = text('1', 'check(false)', '3');
    expect(accepted(base, target, changed)).toBe(base.toString());
    expect(countLines(undecidedLines(carried(base, target, changed)))).toBe(2);
  });

  test('a replacement whose new text changed leaves neither half accepted', () => {
    const base = text('1', 'old', '3');
    const target = text('1', 'new', '3');
    const newer = text('1', 'newer', '3');
    expect(accepted(base, target, newer)).toBe(base.toString());
    expect(carried(base, target, newer).accepted).toEqual({ removed: [], added: [] });
  });

  test('of a text that is there twice nobody knows which one was accepted', () => {
    const base = text('1', '3');
    const target = text('1', 'x', '3');
    expect(accepted(base, target, text('1', 'x', 'x', '3'))).toBe(base.toString());
  });

  test('what was rejected and is back is to be reviewed', () => {
    const base = text('1', '3');
    const target = text('1', 'x', '3');
    const fresh = compare(base, target);
    const decided = decideLines(fresh, linesOf(fresh.changes), 'reject');
    const newer = carryLines(decided, target, { base, target, changes: fresh.changes });
    expect(countLines(undecidedLines(newer))).toBe(1);
  });

  test('random edits: nothing is accepted that was not, and unchanged changes stay', () => {
    const texts = new RandomTexts(seedOfRun('review-carry'));
    for (let round = 0; round < soakCount(800, 100_000); round += 1) {
      const base = texts.text();
      const target = texts.edited(base);
      const newerTarget = texts.random.below(5) === 0 ? target : texts.edited(target);
      const fresh = compare(base, target);
      const decided = decideLines(fresh, texts.lines(linesOf(fresh.changes)), 'accept');
      const changes = lineChanges(base, newerTarget, LIMITS);
      const newer = carryLines(decided, target, { base, target: newerTarget, changes });
      if (newerTarget === target) expect(newer.accepted).toEqual(decided.accepted);
      // Each removed line was accepted as removed, and there are no more added lines than accepted ones.
      expect(countLines(newer.accepted)).toBeLessThanOrEqual(countLines(decided.accepted));
      expect(intersectLines(newer.accepted, decided.accepted).removed).toEqual(newer.accepted.removed);
      expect(intersectLines(newer.accepted, linesOf(changes))).toEqual(newer.accepted);
      const linesIn = (bytes: Buffer, { added }: LineSet): string[] => {
        const all = bytes.toString('latin1').split(/(?<=\n)/);
        return added.flatMap(([start, end]) => all.slice(start, end));
      };
      const before = linesIn(target, decided.accepted);
      for (const line of linesIn(newerTarget, newer.accepted)) {
        const at = before.indexOf(line);
        expect(at).not.toBe(-1);
        before.splice(at, 1);
      }
    }
  });
});
