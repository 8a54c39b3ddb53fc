import type { Decision, Hunk, ReviewFile, ReviewState } from '../../protocol/review.ts';
import { QUARANTINED_RISKS } from '../../protocol/risk.ts';
import type { Risk } from '../../protocol/risk.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Side } from './change-uri.ts';

/**
 * Where the view lists a change. `closely`: to review, and it may run on the person's machine or leads out of the tree. `aside`: to
 * review, and people read it last.
 */
export const REVIEW_GROUPS = {
  closely: 'To Review Closely',
  toReview: 'To Review',
  aside: 'To Review: Generated and Test Files',
  accepted: 'Accepted',
  mixed: 'Accepted in Part',
  rejected: 'Rejected',
} as const;
export type ReviewGroup = keyof typeof REVIEW_GROUPS;

const KINDS: Readonly<Record<ReviewFile['kind'], readonly [letter: string, name: string]>> = {
  added: ['A', 'Added'],
  modified: ['M', 'Modified'],
  deleted: ['D', 'Deleted'],
  renamed: ['R', 'Renamed'],
  mode: ['P', 'Permissions changed'],
  typechange: ['T', 'Type changed'],
};
const RISK_NAMES: Readonly<Record<Risk, string>> = {
  executes: 'may run on your machine',
  outside: 'leads out of the tree',
  ci: 'runs on a build server',
  dependencies: 'dependencies',
  mode: 'permissions changed',
  large: 'large',
  binary: 'binary',
  generated: 'generated',
};
const STATES: Readonly<Record<ReviewState, string>> = {
  'to-review': 'to review',
  accepted: 'accepted',
  rejected: 'rejected',
  partial: 'partly decided',
  mixed: 'accepted in part',
};

export function isUndecided({ state }: Pick<ReviewFile | Hunk, 'state'>): boolean {
  return state === 'to-review' || state === 'partial';
}

/** It may act on the person's machine, or takes along paths that the list does not have. */
export function needsCare({ risks, below }: Pick<ReviewFile, 'risks' | 'below'>): boolean {
  return below > 0 || risks.some((risk) => QUARANTINED_RISKS.has(risk));
}

/** Names that test runners look for, and folders of tests. */
const TEST =
  /\/(?:tests?|__tests__|specs?|e2e)\/|[._-](?:test|spec)s?\.[^/]+$|\/test_[^/]+\.py$|[a-z]Tests?\.(?:cs|java|kt|swift)$/;

/** What people read last: files that a tool wrote, and tests. */
function isAside({ path, risks }: Pick<ReviewFile, 'path' | 'risks'>): boolean {
  return risks.includes('generated') || TEST.test(path);
}

/** By `placeOf`. */
const OPEN_GROUPS = ['closely', 'toReview', 'aside'] as const;

/** Where a change is listed while it is undecided: first what needs care, generated files and tests last. */
export function placeOf(file: Pick<ReviewFile, 'path' | 'risks' | 'below'>): 0 | 1 | 2 {
  return needsCare(file) ? 0 : isAside(file) ? 2 : 1;
}

export function groupOf(file: Pick<ReviewFile, 'path' | 'state' | 'risks' | 'below'>): ReviewGroup {
  switch (file.state) {
    case 'to-review':
    case 'partial':
      return OPEN_GROUPS[placeOf(file)];
    case 'accepted':
    case 'rejected':
    case 'mixed':
      return file.state;
  }
}

/** The letter and the name of a kind of change. */
export function kindOf(kind: ReviewFile['kind']): readonly [letter: string, name: string] {
  return KINDS[kind];
}

/** At most two characters: the letter of the change, and a mark where it needs care. */
export function badgeOf(file: Pick<ReviewFile, 'kind' | 'risks' | 'below'>): string {
  return `${KINDS[file.kind][0]}${needsCare(file) ? '!' : ''}`;
}

/** `Modified, to review, changed again · may run on your machine, large` */
export function describeChange(file: ReviewFile): string {
  const { kind, oldPath, state, again, below, risks } = file;
  const what = [
    oldPath === undefined ? KINDS[kind][1] : `${KINDS[kind][1]} from ${oldPath}`,
    STATES[state],
    ...(again ? ['changed since you decided'] : []),
    ...(below === 0 ? [] : [`with ${below} below it`]),
  ].join(', ');
  return risks.length === 0 ? what : `${what} · ${describeRisks(risks)}`;
}

/** What the tree says beside a name, as `2 of 5 hunks accepted · large`. The checkbox says the rest. */
export function describeFlags(file: ReviewFile): string {
  const { state, hunks, again, below, risks, oldPath } = file;
  const isPlain = state === 'to-review' || state === 'accepted';
  const part = hunks === undefined ? STATES[state] : `${hunks.accepted} of ${hunks.all} hunks accepted`;
  const all = [
    ...(isPlain ? [] : [part]),
    ...(again ? ['changed since you decided'] : []),
    ...(oldPath === undefined ? [] : [`from ${oldPath.slice(oldPath.lastIndexOf('/') + 1)}`]),
    ...(below === 0 ? [] : [`with ${below} below it`]),
    ...(risks.length === 0 ? [] : [describeRisks(risks)]),
  ];
  return sanitize(all.join(' · '));
}

export function describeRisks(risks: readonly Risk[]): string {
  return risks.map((risk) => RISK_NAMES[risk]).join(', ');
}

/** The order in which a person goes through a review: what needs care first, generated files and tests last, then by
 * path, as the view lists them. */
export function inReviewOrder(files: readonly ReviewFile[]): ReviewFile[] {
  return files.filter(isUndecided).sort((a, b) => placeOf(a) - placeOf(b) || comparePaths(a.path, b.path));
}

/** The undecided change after that of `path`, or before it; the first or last one where `path` is not among them. */
export function neighbour(files: readonly ReviewFile[], path: string, step: 1 | -1): ReviewFile | undefined {
  const left = inReviewOrder(files);
  const at = left.findIndex((file) => file.path === path);
  if (at !== -1) return left[at + step];
  // It was decided a moment ago: what would have come after it.
  const own = files.find((file) => file.path === path);
  if (own === undefined) return left.at(step === 1 ? 0 : -1);
  const around = inReviewOrder([...left, { ...own, state: 'to-review' }]);
  return around[around.findIndex((file) => file.path === path) + step] ?? left[0];
}

/** Lines of a document from 0; `end` is exclusive. */
export interface Lines {
  readonly start: number;
  readonly end: number;
}

function linesOn(hunk: Hunk, side: Side): Lines {
  return side === 'base' ? hunk.removed : hunk.added;
}

/** The line of the target at which a person finds a hunk. */
export function lineOf(hunk: Hunk): number {
  return hunk.what === 'mode' ? 0 : hunk.added.start;
}

/** The undecided hunk after a line of the target, or before it. */
export function neighbourHunk(hunks: readonly Hunk[], line: number, step: 1 | -1): Hunk | undefined {
  const left = hunks.filter(isUndecided);
  return step === 1
    ? left.find((hunk) => lineOf(hunk) > line)
    : left.findLast((hunk) => Math.max(lineOf(hunk), hunk.added.end - 1) < line);
}

/** The hunk at a line of one side: a deletion is found at the line on either side of it. */
export function hunkAt(hunks: readonly Hunk[], side: Side, line: number): Hunk | undefined {
  const texts = hunks.filter(({ what }) => what === 'lines');
  const within = texts.find((hunk) => linesOn(hunk, side).start <= line && line < linesOn(hunk, side).end);
  if (within !== undefined) return within;
  const isAt = (offset: number) => (hunk: Hunk) => {
    const { start, end } = linesOn(hunk, side);
    return start === end && start === line + offset;
  };
  const mode = hunks.find(({ what }) => what === 'mode');
  return texts.find(isAt(0)) ?? texts.find(isAt(1)) ?? (line === 0 ? mode : undefined);
}

type Part = Pick<Decision, 'hunks' | 'lines'>;

/**
 * What a selection of whole lines on one side is about: hunks that it covers, and lines of those that it covers in part. A
 * selected line stands for the line that it replaces where a hunk replaces as many lines as it has; otherwise added lines
 * replace all that the hunk removes.
 */
export function partsIn(hunks: readonly Hunk[], side: Side, selected: Lines): Part[] {
  const whole: string[] = [];
  const parts: Part[] = [];
  for (const hunk of hunks) {
    if (hunk.what === 'mode') continue;
    const own = linesOn(hunk, side);
    const start = Math.max(own.start, selected.start);
    const end = Math.min(own.end, selected.end);
    if (own.start === own.end) {
      // Nothing to select on this side: between two selected lines it is selected too.
      if (selected.start < own.start && own.start < selected.end) whole.push(hunk.id);
    } else if (start === own.start && end === own.end) whole.push(hunk.id);
    else if (start < end) parts.push({ lines: linesOf(hunk, side, start, end) });
  }
  return whole.length === 0 ? parts : [{ hunks: whole }, ...parts];
}

function linesOf(hunk: Hunk, side: Side, start: number, end: number): NonNullable<Part['lines']> {
  const { id, removed, added } = hunk;
  const isLineByLine = removed.end - removed.start === added.end - added.start;
  const range = { start, end };
  if (side === 'base') {
    const offset = added.start - removed.start;
    const other = isLineByLine ? { start: start + offset, end: end + offset } : empty(added.start);
    return { hunk: id, removed: range, added: other };
  }
  const offset = removed.start - added.start;
  return {
    hunk: id,
    removed: isLineByLine ? { start: start + offset, end: end + offset } : { ...removed },
    added: range,
  };
}

function empty(at: number): Lines {
  return { start: at, end: at };
}

function comparePaths(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
