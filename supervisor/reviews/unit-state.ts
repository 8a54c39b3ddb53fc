import { createHash } from 'node:crypto';
import type { Hunk, ReviewAction, ReviewState, Verdict } from '../../protocol/review.ts';
import type { DecisionState } from '../store/reviews.ts';
import { type LineChange, lineStarts } from '../snapshots/patch/line-changes.ts';
import {
  countLines,
  decideLines,
  intersectLines,
  type LineSet,
  linesOf,
  NO_LINES,
  type TextDecisions,
  undecidedText,
  unionLines,
} from './line-decisions.ts';
import type { ReviewUnit } from './review-units.ts';

/** The two sides of a text that is decided by hunks. */
export interface UnitText {
  readonly base: Buffer;
  readonly target: Buffer;
  readonly changes: readonly LineChange[];
}

/** What a decision is about: everything, or parts of a text. */
export type DecidedPart = 'whole' | { readonly lines: LineSet; readonly mode: boolean };

export function wholeState(verdict: Verdict): DecisionState {
  return { whole: verdict, mode: null, text: null, again: false };
}

export function stateOf(unit: ReviewUnit, state: DecisionState | null): ReviewState {
  if (state === null) return 'to-review';
  if (state.whole !== null) return state.whole === 'accept' ? 'accepted' : 'rejected';
  const { text, mode } = state;
  const isAttributes = hasModePart(unit);
  const all = (text === null ? 0 : countLines(linesOf(text.changes))) + (isAttributes ? 1 : 0);
  const accepted = (text === null ? 0 : countLines(text.accepted)) + (mode === 'accept' ? 1 : 0);
  const rejected = (text === null ? 0 : countLines(text.rejected)) + (mode === 'reject' ? 1 : 0);
  return summary(all, accepted, rejected);
}

function summary(all: number, accepted: number, rejected: number): ReviewState {
  if (accepted + rejected === 0) return 'to-review';
  if (accepted === all) return 'accepted';
  if (rejected === all) return 'rejected';
  return accepted + rejected < all ? 'partial' : 'mixed';
}

/** Whether permission bits or extended attributes of a file changed that is decided by hunks. */
export function hasModePart({ kind, before, after }: ReviewUnit): boolean {
  if (kind !== 'modified' || before === null || after === null) return false;
  return before.mode !== after.mode || JSON.stringify(before.xattrs) !== JSON.stringify(after.xattrs);
}

/** The decisions about a text as sets of lines, however they are stored. */
export function textDecisions(
  state: DecisionState | null,
  changes: readonly LineChange[],
): TextDecisions & { readonly mode: Verdict | null } {
  const whole = state?.whole ?? null;
  if (whole !== null) {
    const all = linesOf(changes);
    const isAccepted = whole === 'accept';
    return {
      changes,
      accepted: isAccepted ? all : NO_LINES,
      rejected: isAccepted ? NO_LINES : all,
      mode: whole,
    };
  }
  const mode = state?.mode ?? null;
  return { ...(state?.text ?? undecidedText(changes)), mode };
}

/** The decisions of a path after another one; null where nothing is decided any more. */
export function decidePart(
  unit: ReviewUnit,
  state: DecisionState | null,
  part: DecidedPart,
  action: ReviewAction,
  changes: readonly LineChange[],
): DecisionState | null {
  const verdict = action === 'withdraw' ? null : action;
  if (part === 'whole') return verdict === null ? null : wholeState(verdict);
  const before = textDecisions(state, changes);
  const { accepted, rejected } = decideLines(before, part.lines, verdict);
  const mode = part.mode ? verdict : before.mode;
  const after = normalized(unit, {
    whole: null,
    mode: hasModePart(unit) ? mode : null,
    text: textOf({ changes: before.changes, accepted, rejected }),
    again: false,
  });
  return stateOf(unit, after) === 'to-review' ? null : after;
}

/** How many hunks of a path that is decided in part are accepted as a whole; null for any other. */
export function countHunks(
  unit: ReviewUnit,
  state: DecisionState | null,
): { readonly accepted: number; readonly all: number } | null {
  if (!state?.text) return null;
  const summarized = stateOf(unit, state);
  if (summarized !== 'partial' && summarized !== 'mixed') return null;
  const { changes, accepted } = state.text;
  const taken = changes.filter((change) => {
    const lines = linesOf([change]);
    return countLines(intersectLines(accepted, lines)) === countLines(lines);
  });
  const isAttributes = hasModePart(unit);
  return {
    accepted: taken.length + (isAttributes && state.mode === 'accept' ? 1 : 0),
    all: changes.length + (isAttributes ? 1 : 0),
  };
}

/** Where all parts have the same verdict, the path has it as a whole. */
export function normalized(unit: ReviewUnit, state: DecisionState): DecisionState {
  const summarized = stateOf(unit, state);
  if (summarized === 'accepted') return { ...wholeState('accept'), again: state.again };
  if (summarized === 'rejected') return { ...wholeState('reject'), again: state.again };
  return state;
}

export function textOf({ changes, accepted, rejected }: TextDecisions): NonNullable<DecisionState['text']> {
  const copy = ({ removed, added }: LineSet) => ({
    removed: removed.map(([start, end]): [number, number] => [start, end]),
    added: added.map(([start, end]): [number, number] => [start, end]),
  });
  return { changes: [...changes], accepted: copy(accepted), rejected: copy(rejected) };
}

/** A hunk, and the lines that it is about. */
export interface UnitHunk extends Hunk {
  readonly lines: LineSet;
}

/** The hunks of a text in order, the change of its mode first. */
export function hunksOf(unit: ReviewUnit, text: UnitText, state: DecisionState | null): UnitHunk[] {
  const decided = textDecisions(state, text.changes);
  const hunks: UnitHunk[] = [];
  if (hasModePart(unit)) {
    const verdict = decided.mode;
    hunks.push({
      id: digest(unit.key, 'mode', String(unit.before?.mode), String(unit.after?.mode)),
      what: 'mode',
      removed: { start: 0, end: 0 },
      added: { start: 0, end: 0 },
      state: summary(1, verdict === 'accept' ? 1 : 0, verdict === 'reject' ? 1 : 0),
      lines: NO_LINES,
    });
  }
  const old = lineStarts(text.base);
  const now = lineStarts(text.target);
  const seen = new Map<string, number>();
  for (const change of decided.changes) {
    const { beforeStart, beforeEnd, afterStart, afterEnd } = change;
    const removed = text.base.subarray(old[beforeStart], old[beforeEnd]);
    const added = text.target.subarray(now[afterStart], now[afterEnd]);
    const plain = digest(unit.key, 'lines', removed, added);
    // Two hunks of the same text differ by their order.
    const times = seen.get(plain) ?? 0;
    seen.set(plain, times + 1);
    const lines = linesOf([change]);
    const accepted = intersectLines(decided.accepted, lines);
    const rejected = intersectLines(decided.rejected, lines);
    const state = summary(countLines(lines), countLines(accepted), countLines(rejected));
    const isInPart = state === 'partial' || state === 'mixed';
    hunks.push({
      id: times === 0 ? plain : digest(plain, String(times)),
      what: 'lines',
      removed: { start: beforeStart, end: beforeEnd },
      added: { start: afterStart, end: afterEnd },
      state,
      ...(isInPart ? { decided: { accepted: rangesOf(accepted), rejected: rangesOf(rejected) } } : {}),
      lines,
    });
  }
  return hunks;
}

function rangesOf({ removed, added }: LineSet): NonNullable<Hunk['decided']>['accepted'] {
  const copy = (set: LineSet['added']) => set.map(([start, end]) => ({ start, end }));
  return { removed: copy(removed), added: copy(added) };
}

/** The parts that these hunks stand for. Null if one of them is not there. */
export function partOf(hunks: readonly UnitHunk[], ids: readonly string[]): DecidedPart | null {
  const byId = new Map(hunks.map((hunk) => [hunk.id, hunk]));
  let lines = NO_LINES;
  let mode = false;
  for (const id of ids) {
    const hunk = byId.get(id);
    if (hunk === undefined) return null;
    if (hunk.what === 'mode') mode = true;
    else lines = unionLines(lines, hunk.lines);
  }
  return { lines, mode };
}

function digest(...parts: (string | Uint8Array)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) {
    const bytes = typeof part === 'string' ? Buffer.from(part) : part;
    hash.update(`${bytes.length}:`).update(bytes);
  }
  return hash.digest('hex').slice(0, 8);
}
