import type { Decision, Hunk, Verdict } from '../../protocol/review.ts';

/**
 * A change between the accepted text and the workspace, as the gutter shows it. Lines count from 1, and ends are inclusive;
 * an end of 0 is an empty side behind the line `start`.
 */
export interface GutterChange {
  readonly originalStartLineNumber: number;
  readonly originalEndLineNumber: number;
  readonly modifiedStartLineNumber: number;
  readonly modifiedEndLineNumber: number;
}

/** Both sides of a reviewed text, with line feeds at the ends of lines, and its hunks. */
export interface ReviewedText {
  readonly base: string;
  readonly target: string;
  readonly hunks: readonly Hunk[];
}

type Part = Pick<Decision, 'hunks' | 'lines'>;

/** What was decided about single lines: of the base that are removed, of the target that are added. */
interface Verdicts {
  readonly removed: ReadonlyMap<number, Verdict>;
  readonly added: ReadonlyMap<number, Verdict>;
}

/** Lines from 0; `end` is exclusive. */
interface Span {
  readonly start: number;
  readonly end: number;
}

interface Projection {
  readonly text: string;
  /** The lines that each hunk has in the text, in the order of the hunks. */
  readonly spans: readonly Span[];
}

/** The text of `accepted`: the base with what was accepted. Of `workspace`: the target without what was rejected. */
export function reviewedText(reviewed: ReviewedText, side: 'accepted' | 'workspace'): string {
  return project(reviewed, verdictsOf(reviewed.hunks), side).text;
}

/**
 * The decisions that do exactly what a change of the gutter shows: accepted, the accepted text has these lines as the
 * workspace has them; rejected, the workspace has them as the accepted text. Undefined where no hunks and no lines do.
 */
export function partsOfChange(
  reviewed: ReviewedText,
  change: GutterChange,
  verdict: Verdict,
): Part[] | undefined {
  const verdicts = verdictsOf(reviewed.hunks);
  const accepted = project(reviewed, verdicts, 'accepted');
  const workspace = project(reviewed, verdicts, 'workspace');
  const original = spanOf(change.originalStartLineNumber, change.originalEndLineNumber);
  const modified = spanOf(change.modifiedStartLineNumber, change.modifiedEndLineNumber);
  const wanted =
    verdict === 'accept'
      ? replaced(accepted.text, original, workspace.text, modified)
      : replaced(workspace.text, modified, accepted.text, original);
  const own = reviewed.hunks
    .filter(({ what }) => what === 'lines')
    .filter((hunk, at) => {
      const [before, after] = [accepted.spans[at], workspace.spans[at]];
      if (before === undefined || after === undefined || !hasUndecided(hunk)) return false;
      return touches(before, original) && touches(after, modified);
    });
  // The editor may find other equal lines around a change than the supervisor did: what counts is the text in the end.
  const candidates = [own, ...(own.length > 1 ? own.map((hunk) => [hunk]) : [])];
  for (const hunks of candidates) {
    const parts = hunks.flatMap((hunk) => undecidedParts(hunk, verdicts));
    if (parts.length > 0 && resultOf(reviewed, verdicts, parts, verdict) === wanted) return parts;
  }
  return undefined;
}

function resultOf(reviewed: ReviewedText, known: Verdicts, parts: readonly Part[], verdict: Verdict): string {
  const removed = new Map(known.removed);
  const added = new Map(known.added);
  const byId = new Map(reviewed.hunks.map((hunk) => [hunk.id, hunk]));
  for (const { hunks, lines } of parts) {
    for (const part of [...(hunks ?? []).map((id) => byId.get(id)), lines]) {
      if (part === undefined) continue;
      setAll(removed, [part.removed], verdict);
      setAll(added, [part.added], verdict);
    }
  }
  return project(reviewed, { removed, added }, verdict === 'accept' ? 'accepted' : 'workspace').text;
}

function verdictsOf(hunks: readonly Hunk[]): Verdicts {
  const removed = new Map<number, Verdict>();
  const added = new Map<number, Verdict>();
  for (const hunk of hunks) {
    if (hunk.what !== 'lines') continue;
    const whole = hunk.state === 'accepted' ? 'accept' : hunk.state === 'rejected' ? 'reject' : undefined;
    if (whole !== undefined) {
      setAll(removed, [hunk.removed], whole);
      setAll(added, [hunk.added], whole);
    }
    setAll(removed, hunk.decided?.accepted.removed ?? [], 'accept');
    setAll(added, hunk.decided?.accepted.added ?? [], 'accept');
    setAll(removed, hunk.decided?.rejected.removed ?? [], 'reject');
    setAll(added, hunk.decided?.rejected.added ?? [], 'reject');
  }
  return { removed, added };
}

function setAll(map: Map<number, Verdict>, spans: readonly Span[], verdict: Verdict): void {
  for (const { start, end } of spans) for (let line = start; line < end; line += 1) map.set(line, verdict);
}

function hasUndecided({ state }: Hunk): boolean {
  return state === 'to-review' || state === 'partial';
}

/** As the supervisor builds both texts: in a hunk, the lines of the base that stay come before those of the target. */
function project(
  { base, target, hunks }: ReviewedText,
  { removed, added }: Verdicts,
  side: 'accepted' | 'workspace',
): Projection {
  const [old, now] = [linesWithEnds(base), linesWithEnds(target)];
  const lines: string[] = [];
  const put = (line: string | undefined): void => {
    if (line === undefined) return;
    const last = lines.at(-1);
    // A last line without an end is no longer the last one.
    if (last !== undefined && !last.endsWith('\n')) lines[lines.length - 1] = `${last}\n`;
    lines.push(line);
  };
  const spans: Span[] = [];
  let at = 0;
  for (const hunk of hunks) {
    if (hunk.what !== 'lines') continue;
    for (; at < hunk.removed.start; at += 1) put(old[at]);
    const start = lines.length;
    for (; at < hunk.removed.end; at += 1) {
      const verdict = removed.get(at);
      if (side === 'accepted' ? verdict !== 'accept' : verdict === 'reject') put(old[at]);
    }
    for (let line = hunk.added.start; line < hunk.added.end; line += 1) {
      const verdict = added.get(line);
      if (side === 'accepted' ? verdict === 'accept' : verdict !== 'reject') put(now[line]);
    }
    spans.push({ start, end: lines.length });
  }
  for (; at < old.length; at += 1) put(old[at]);
  return { text: lines.join(''), spans };
}

/** What is not decided of a hunk: the hunk itself, or lines of it. */
function undecidedParts({ id, state, removed, added }: Hunk, verdicts: Verdicts): Part[] {
  if (state === 'to-review') return [{ hunks: [id] }];
  const nothing = (at: Span): Span => ({ start: at.start, end: at.start });
  return [
    ...spansWithout(removed, verdicts.removed).map((span) => ({
      lines: { hunk: id, removed: span, added: nothing(added) },
    })),
    ...spansWithout(added, verdicts.added).map((span) => ({
      lines: { hunk: id, removed: nothing(removed), added: span },
    })),
  ];
}

function spansWithout({ start, end }: Span, decided: ReadonlyMap<number, Verdict>): Span[] {
  const spans: { start: number; end: number }[] = [];
  for (let line = start; line < end; line += 1) {
    if (decided.has(line)) continue;
    const last = spans.at(-1);
    if (last?.end === line) last.end = line + 1;
    else spans.push({ start: line, end: line + 1 });
  }
  return spans;
}

function spanOf(start: number, end: number): Span {
  return end === 0 ? { start, end: start } : { start: start - 1, end };
}

function touches(one: Span, other: Span): boolean {
  return one.start <= other.end && other.start <= one.end;
}

/** Lines of one text in the place of lines of another one; the last line of a text has no end. */
function replaced(text: string, place: Span, from: string, taken: Span): string {
  const lines = text.split('\n');
  lines.splice(place.start, place.end - place.start, ...from.split('\n').slice(taken.start, taken.end));
  return lines.join('\n');
}

function linesWithEnds(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}
