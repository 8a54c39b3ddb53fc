import type { Hunk, ReviewState } from '../../protocol/review.ts';
import type { Side } from './change-uri.ts';
import { lineOf } from './review-model.ts';

const TEXTS: Readonly<Record<ReviewState, string>> = {
  'to-review': 'to review',
  accepted: '✓ accepted',
  rejected: '✗ rejected',
  partial: '◐ some lines decided',
  mixed: '◐ some lines accepted, some rejected',
};
const COLORS: Readonly<Record<ReviewState, string>> = {
  'to-review': 'descriptionForeground',
  accepted: 'gitDecoration.addedResourceForeground',
  rejected: 'gitDecoration.deletedResourceForeground',
  partial: 'gitDecoration.modifiedResourceForeground',
  mixed: 'gitDecoration.modifiedResourceForeground',
};
const WHITE_SPACE = 'only white space at the ends of lines, which this editor hides';

export interface HunkLabel {
  /** From 0. */
  readonly line: number;
  readonly text: string;
  /** The id of a theme colour. */
  readonly color: string;
}

export interface LabelledHunks {
  /** Of the whole change. */
  readonly state: ReviewState;
  readonly hunks: readonly Hunk[];
}

/** The lines of both sides, where the diff editor shows both and hides changes of white space. */
export type HidingSides = Readonly<Record<Side, readonly string[]>>;

/** What is said behind the first line of each hunk that belongs to this side. */
export function hunkLabels(
  { state, hunks }: LabelledHunks,
  side: Side,
  hiding: HidingSides | undefined,
): HunkLabel[] {
  if (hunks.length === 0) return side === 'target' ? [label(0, state)] : [];
  return hunks.flatMap((hunk) => {
    const isRemoval = hunk.what === 'lines' && hunk.added.start === hunk.added.end;
    if (isRemoval !== (side === 'base')) return [];
    const line = isRemoval ? hunk.removed.start : lineOf(hunk);
    const { text, ...rest } = label(line, hunk.state);
    if (hunk.what === 'mode') return [{ ...rest, text: `mode ${text}` }];
    const isHidden = hiding !== undefined && differsInWhiteSpace(hunk, hiding);
    return [{ ...rest, text: isHidden ? `${text}: ${WHITE_SPACE}` : text }];
  });
}

/** As the diff editor compares lines that it shows as equal: without white space at their ends. */
function differsInWhiteSpace({ removed, added }: Hunk, { base, target }: HidingSides): boolean {
  const before = base.slice(removed.start, removed.end);
  const after = target.slice(added.start, added.end);
  return before.length === after.length && before.every((line, n) => line.trim() === after[n]?.trim());
}

function label(line: number, state: ReviewState): HunkLabel {
  return { line, text: TEXTS[state], color: COLORS[state] };
}
