import { diffArrays } from 'diff';
import { describe, expect, test } from 'vitest';
import { type GutterChange, partsOfChange, reviewedText } from '../../../extension/review/gutter-change.ts';
import type { Verdict } from '../../../protocol/review.ts';
import {
  acceptedText,
  decideLines,
  type LineSet,
  linesOf,
  type TextDecisions,
  undecidedText,
  workspaceText,
} from '../../../supervisor/reviews/line-decisions.ts';
import { hunkView } from '../../../supervisor/reviews/review-views.ts';
import type { ReviewUnit } from '../../../supervisor/reviews/review-units.ts';
import { hunksOf, partOf } from '../../../supervisor/reviews/unit-state.ts';
import { lineChanges } from '../../../supervisor/snapshots/patch/line-changes.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

/** The parts of a unit that its hunks need: a file without a change of its mode. */
const UNIT = { key: '/workspace/a', kind: 'modified', before: null, after: null } as ReviewUnit;

class ReviewedFile {
  readonly #base: Buffer;
  readonly #target: Buffer;
  #decided: TextDecisions;

  constructor(base: string, target: string) {
    this.#base = Buffer.from(base);
    this.#target = Buffer.from(target);
    this.#decided = undecidedText(lineChanges(this.#base, this.#target, { ms: Infinity, edits: 2000 }));
  }

  get allLines(): LineSet {
    return linesOf(this.#decided.changes);
  }

  get accepted(): string {
    return acceptedText(this.#base, this.#target, this.#decided).toString();
  }

  get workspace(): string {
    return workspaceText(this.#base, this.#target, this.#decided).toString();
  }

  /** As a client gets it. */
  get reviewed() {
    return { base: this.#base.toString(), target: this.#target.toString(), hunks: this.#hunks.map(hunkView) };
  }

  decide(lines: LineSet, verdict: Verdict): void {
    this.#decided = decideLines(this.#decided, lines, verdict);
  }

  /** What the supervisor does with the decisions of a client. */
  decideParts(parts: NonNullable<ReturnType<typeof partsOfChange>>, verdict: Verdict): void {
    for (const { hunks, lines } of parts) {
      const part = partOf(this.#hunks, hunks ?? [lines?.hunk ?? '']);
      if (part === null || part === 'whole') throw new Error('there is no such hunk');
      const range = ({ start, end }: { start: number; end: number }): LineSet['added'] =>
        start < end ? [[start, end]] : [];
      const chosen =
        lines === undefined ? part.lines : { removed: range(lines.removed), added: range(lines.added) };
      this.decide(chosen, verdict);
    }
  }

  get #hunks() {
    const text = { base: this.#base, target: this.#target, changes: this.#decided.changes };
    const state = { whole: null, mode: null, again: false, text: null };
    const { changes, accepted, rejected } = this.#decided;
    const copy = ({ removed, added }: LineSet) => ({
      removed: removed.map(([start, end]): [number, number] => [start, end]),
      added: added.map(([start, end]): [number, number] => [start, end]),
    });
    const decided = { changes: [...changes], accepted: copy(accepted), rejected: copy(rejected) };
    return hunksOf(UNIT, text, { ...state, text: decided });
  }
}

/** The changes between two texts as an editor marks them. */
function gutter(accepted: string, workspace: string): GutterChange[] {
  const changes: GutterChange[] = [];
  let [old, now] = [0, 0];
  const parts = diffArrays(accepted.split('\n'), workspace.split('\n'));
  for (let at = 0; at < parts.length; at += 1) {
    const { added = false, removed = false, count = 0 } = parts[at] ?? {};
    if (!added && !removed) {
      old += count;
      now += count;
      continue;
    }
    const isPair = removed && parts[at + 1]?.added === true;
    const gone = removed ? count : 0;
    const come = isPair ? (parts[at + 1]?.count ?? 0) : added ? count : 0;
    if (isPair) at += 1;
    changes.push({
      originalStartLineNumber: gone === 0 ? old : old + 1,
      originalEndLineNumber: gone === 0 ? 0 : old + gone,
      modifiedStartLineNumber: come === 0 ? now : now + 1,
      modifiedEndLineNumber: come === 0 ? 0 : now + come,
    });
    old += gone;
    now += come;
  }
  return changes;
}

/** The text after a change: lines of `from` in the place of lines of `text`. */
function after(text: string, from: string, change: GutterChange, verdict: Verdict): string {
  const original = [change.originalStartLineNumber, change.originalEndLineNumber] as const;
  const modified = [change.modifiedStartLineNumber, change.modifiedEndLineNumber] as const;
  const [place, taken] = verdict === 'accept' ? [original, modified] : [modified, original];
  const first = ([start, end]: readonly [number, number]): number => (end === 0 ? start : start - 1);
  const lines = text.split('\n');
  const size = place[1] === 0 ? 0 : place[1] - place[0] + 1;
  const others = taken[1] === 0 ? [] : from.split('\n').slice(first(taken), taken[1]);
  lines.splice(first(place), size, ...others);
  return lines.join('\n');
}

const BASE = 'a\nb\nc\nd\ne\nf\ng\n';

describe('a change of the gutter', () => {
  test('leaves the gutter when it is accepted, and the workspace when it is rejected', () => {
    const file = new ReviewedFile(BASE, 'a\nB\nc\nd\nE\nE2\nf\n');
    const [first, second, third] = gutter(file.accepted, file.workspace);
    expect([first, second, third].every((change) => change !== undefined)).toBe(true);
    if (first === undefined || second === undefined) return;
    const accepted = partsOfChange(file.reviewed, second, 'accept');
    expect(accepted).toHaveLength(1);
    file.decideParts(accepted ?? [], 'accept');
    expect(file.accepted).toBe('a\nb\nc\nd\nE\nE2\nf\ng\n');
    file.decideParts(partsOfChange(file.reviewed, first, 'reject') ?? [], 'reject');
    expect(file.workspace).toBe('a\nb\nc\nd\nE\nE2\nf\n');
    expect(gutter(file.accepted, file.workspace)).toEqual([
      {
        originalStartLineNumber: 8,
        originalEndLineNumber: 8,
        modifiedStartLineNumber: 7,
        modifiedEndLineNumber: 0,
      },
    ]);
  });

  test('is only what is not decided, where lines of a hunk are', () => {
    const file = new ReviewedFile(BASE, 'a\nB\nC\nd\ne\nf\ng\n');
    file.decide({ removed: [[1, 2]], added: [[1, 2]] }, 'accept');
    const { hunks } = file.reviewed;
    expect(hunks).toMatchObject([
      {
        state: 'partial',
        decided: { accepted: { removed: [{ start: 1, end: 2 }], added: [{ start: 1, end: 2 }] } },
      },
    ]);
    const { accepted, workspace } = file;
    expect(reviewedText(file.reviewed, 'accepted')).toBe(accepted);
    const all = gutter(accepted, workspace);
    const decided = all.map((change) => partsOfChange(file.reviewed, change, 'reject'));
    for (const parts of decided)
      expect(parts?.every(({ hunks: whole }) => whole === undefined) ?? true).toBe(true);
  });

  test('is refused where the review divides its lines in another way', () => {
    const file = new ReviewedFile(BASE, 'a\nB\nC\nd\ne\nf\ng\n');
    const half = { originalStartLineNumber: 2, originalEndLineNumber: 2 };
    const change = { ...half, modifiedStartLineNumber: 2, modifiedEndLineNumber: 2 };
    expect(partsOfChange(file.reviewed, change, 'accept')).toBeUndefined();
    expect(
      partsOfChange(
        file.reviewed,
        { ...change, originalStartLineNumber: 6, originalEndLineNumber: 6 },
        'accept',
      ),
    ).toBeUndefined();
  });

  test('does in the accepted tree and the workspace exactly what it shows, whatever was decided before', () => {
    const random = new SeededRandom(seedOfRun('gutter-changes'));
    const pick = (): string => ['', '}', '\u00e9'][random.below(12)] ?? `line ${random.below(30)}`;
    const end = (lines: readonly string[]): string => lines.join('\n') + (random.below(4) === 0 ? '' : '\n');
    const some = (set: LineSet['added']): LineSet['added'] => set.filter(() => random.below(3) === 0);
    let decided = 0;
    let fresh = 0;
    let wholes = 0;
    for (let round = 0; round < soakCount(600, 50_000); round += 1) {
      const lines = Array.from({ length: 3 + random.below(14) }, pick);
      const base = end(lines);
      for (let edits = random.below(5); edits >= 0; edits -= 1) {
        const added = Array.from({ length: random.below(3) }, pick);
        lines.splice(random.below(lines.length + 1), random.below(3), ...added);
      }
      const file = new ReviewedFile(base, end(lines));
      const isFresh = random.below(2) === 0;
      if (!isFresh) {
        const { removed, added } = file.allLines;
        file.decide(
          { removed: some(removed), added: some(added) },
          random.below(2) === 0 ? 'accept' : 'reject',
        );
      }
      const { accepted, workspace } = file;
      expect(reviewedText(file.reviewed, 'accepted')).toBe(accepted);
      expect(reviewedText(file.reviewed, 'workspace')).toBe(workspace);
      const changes = gutter(accepted, workspace);
      const change = changes[random.below(Math.max(1, changes.length))];
      if (change === undefined) continue;
      const verdict: Verdict = random.below(2) === 0 ? 'accept' : 'reject';
      const parts = partsOfChange(file.reviewed, change, verdict);
      if (isFresh) {
        fresh += 1;
        wholes += parts === undefined ? 0 : 1;
      }
      if (parts === undefined) continue;
      decided += 1;
      file.decideParts(parts, verdict);
      if (verdict === 'accept') {
        expect(file.accepted).toBe(after(accepted, workspace, change, verdict));
        expect(file.workspace).toBe(workspace);
      } else {
        expect(file.workspace).toBe(after(workspace, accepted, change, verdict));
        expect(file.accepted).toBe(accepted);
      }
    }
    expect(decided).toBeGreaterThan(500);
    // Where lines repeat, two comparisons may divide a text in different ways.
    expect(wholes / fresh).toBeGreaterThan(0.8);
  });
});
