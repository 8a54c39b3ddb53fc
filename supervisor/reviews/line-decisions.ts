import { type LineChange, lineStarts } from '../snapshots/patch/line-changes.ts';
import {
  intersection,
  NOTHING,
  type RangeSet,
  rangeOf,
  shift,
  sizeOf,
  subtract,
  union,
} from './range-set.ts';

/**
 * Lines of the changes between a base and a target: lines of the base that are removed, and lines of the target that are
 * added. Every line of a change is decided by itself, so that the order of decisions cannot matter.
 */
export interface LineSet {
  readonly removed: RangeSet;
  readonly added: RangeSet;
}

/** The changes of one text and what was decided about them. A line is in at most one of the two sets. */
export interface TextDecisions {
  readonly changes: readonly LineChange[];
  readonly accepted: LineSet;
  readonly rejected: LineSet;
}

export const NO_LINES: LineSet = { removed: NOTHING, added: NOTHING };

export function undecidedText(changes: readonly LineChange[]): TextDecisions {
  return { changes, accepted: NO_LINES, rejected: NO_LINES };
}

/** All lines of these changes. */
export function linesOf(changes: readonly LineChange[]): LineSet {
  return {
    removed: changes.flatMap(({ beforeStart, beforeEnd }) => rangeOf(beforeStart, beforeEnd)),
    added: changes.flatMap(({ afterStart, afterEnd }) => rangeOf(afterStart, afterEnd)),
  };
}

export function unionLines(one: LineSet, other: LineSet): LineSet {
  return { removed: union(one.removed, other.removed), added: union(one.added, other.added) };
}

export function subtractLines(from: LineSet, taken: LineSet): LineSet {
  return { removed: subtract(from.removed, taken.removed), added: subtract(from.added, taken.added) };
}

export function intersectLines(one: LineSet, other: LineSet): LineSet {
  return { removed: intersection(one.removed, other.removed), added: intersection(one.added, other.added) };
}

export function countLines({ removed, added }: LineSet): number {
  return sizeOf(removed) + sizeOf(added);
}

/** The lines that are neither accepted nor rejected. */
export function undecidedLines({ changes, accepted, rejected }: TextDecisions): LineSet {
  return subtractLines(subtractLines(linesOf(changes), accepted), rejected);
}

/** Decides lines; those that are in no change are ignored, an earlier decision about them is replaced. */
export function decideLines(
  text: TextDecisions,
  lines: LineSet,
  verdict: 'accept' | 'reject' | null,
): TextDecisions {
  const chosen = intersectLines(lines, linesOf(text.changes));
  const accepted = subtractLines(text.accepted, chosen);
  const rejected = subtractLines(text.rejected, chosen);
  return {
    changes: text.changes,
    accepted: verdict === 'accept' ? unionLines(accepted, chosen) : accepted,
    rejected: verdict === 'reject' ? unionLines(rejected, chosen) : rejected,
  };
}

/**
 * The base with some of its changes: those lines of `take` removed and added. In a change of which only a part is taken,
 * the lines that stay come before those that are added. All lines give the target, none the base.
 */
export function applyLines(
  base: Buffer,
  target: Buffer,
  changes: readonly LineChange[],
  take: LineSet,
): Buffer {
  const old = { text: base, starts: lineStarts(base) };
  const now = { text: target, starts: lineStarts(target) };
  const out: Buffer[] = [];
  const put = ({ text, starts }: typeof old, lines: RangeSet): void => {
    for (const [start, end] of lines) {
      const bytes = text.subarray(starts[start], starts[end]);
      if (bytes.length === 0) continue;
      // A last line without an end is no longer the last one.
      const last = out.at(-1);
      if (last !== undefined && last.at(-1) !== NEWLINE) out.push(LINE_END);
      out.push(bytes);
    }
  };
  let at = 0;
  for (const { beforeStart, beforeEnd, afterStart, afterEnd } of changes) {
    put(old, rangeOf(at, beforeStart));
    put(old, subtract(rangeOf(beforeStart, beforeEnd), take.removed));
    put(now, intersection(rangeOf(afterStart, afterEnd), take.added));
    at = beforeEnd;
  }
  put(old, rangeOf(at, old.starts.length - 1));
  return Buffer.concat(out);
}

const NEWLINE = 0x0a;
const LINE_END = Buffer.from('\n');

/** The text that acceptance leads to. */
export function acceptedText(base: Buffer, target: Buffer, { changes, accepted }: TextDecisions): Buffer {
  return applyLines(base, target, changes, accepted);
}

/** The text that the workspace has: the target without what was rejected. */
export function workspaceText(base: Buffer, target: Buffer, { changes, rejected }: TextDecisions): Buffer {
  return applyLines(base, target, changes, subtractLines(linesOf(changes), rejected));
}

/** The two sides of a text and the changes between them. */
export interface ComparedText {
  readonly base: Buffer;
  readonly target: Buffer;
  readonly changes: readonly LineChange[];
}

/**
 * Carries accepted lines over to a newer target of the same base. They stay accepted where the text of their whole change
 * is still there on both sides: the same lines of the base are removed, and the same lines are added in their place. The
 * newer change may be larger; what it has besides is not decided. Rejected lines are not carried: the workspace had lost
 * them, so where they are back, somebody put them there.
 */
export function carryLines(decided: TextDecisions, target: Buffer, newer: ComparedText): TextDecisions {
  let accepted = NO_LINES;
  const old = new Lines(target);
  const now = new Lines(newer.target);
  const search = { bytesLeft: MAX_SEARCHED_BYTES };
  let first = 0;
  for (const change of decided.changes) {
    const lines = intersectLines(decided.accepted, linesOf([change]));
    if (countLines(lines) === 0) continue;
    while ((newer.changes[first]?.beforeEnd ?? Infinity) < change.beforeStart) first += 1;
    const at = placeOf(change, old, newer.changes.slice(first, first + 2), now, search);
    if (at === null) continue;
    accepted = unionLines(accepted, {
      removed: lines.removed,
      added: shift(lines.added, at - change.afterStart),
    });
  }
  return { changes: newer.changes, accepted, rejected: NO_LINES };
}

/** A text of equal lines would be compared at each of them; beyond this nothing more is carried. */
const MAX_SEARCHED_BYTES = 64 * 2 ** 20;

/** Where the added lines of a change begin in the newer target; null if the change is not there any more. */
function placeOf(
  change: LineChange,
  old: Lines,
  candidates: readonly LineChange[],
  now: Lines,
  search: { bytesLeft: number },
): number | null {
  const length = change.afterEnd - change.afterStart;
  for (const { beforeStart, beforeEnd, afterStart, afterEnd } of candidates) {
    const isSame = beforeStart === change.beforeStart && beforeEnd === change.beforeEnd;
    const isInside = beforeStart <= change.beforeStart && change.beforeEnd <= beforeEnd;
    if (!isInside) continue;
    if (isSame && afterEnd - afterStart === length && old.equal(change.afterStart, now, afterStart, length)) {
      return afterStart;
    }
    // Without added lines there is nothing to find again: something else is in their place now.
    if (length === 0) continue;
    const places: number[] = [];
    for (let at = afterStart; at + length <= afterEnd && places.length < 2; at += 1) {
      search.bytesLeft -= now.bytesOf(at, length);
      if (search.bytesLeft < 0) return null;
      if (old.equal(change.afterStart, now, at, length)) places.push(at);
    }
    const [place] = places;
    if (place !== undefined && places.length === 1) return place;
  }
  return null;
}

/** Compares lines of two texts. */
class Lines {
  readonly #text: Buffer;
  readonly #starts: readonly number[];

  constructor(text: Buffer) {
    this.#text = text;
    this.#starts = lineStarts(text);
  }

  bytesOf(from: number, count: number): number {
    return (this.#starts[from + count] ?? 0) - (this.#starts[from] ?? 0);
  }

  equal(from: number, other: Lines, otherFrom: number, count: number): boolean {
    const mine = this.#text.subarray(this.#starts[from], this.#starts[from + count]);
    const theirs = other.#text.subarray(other.#starts[otherFrom], other.#starts[otherFrom + count]);
    return mine.equals(theirs);
  }
}
