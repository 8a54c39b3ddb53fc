import { diffArrays } from 'diff';

/** Lines that may differ between two texts; more than that is for a person to merge. */
const MOST_EDITS = 5_000;
const MOST_MS = 200;

/** Lines `start…end` (exclusive) become `lines`. */
export interface LineEdit {
  readonly start: number;
  readonly end: number;
  readonly lines: readonly string[];
}

/**
 * A three-way merge: the edits of `mine` that take in what `theirs` changed since `base`. Undefined where both sides changed the same or
 * touching lines, or where the texts differ too much. All texts have `\n` as their line end. A change that both made is made once.
 */
export function mergeLines(base: string, mine: string, theirs: string): LineEdit[] | undefined {
  const [old, own, other] = [linesOf(base), linesOf(mine), linesOf(theirs)];
  const ours = changes(old, own);
  const incoming = changes(old, other);
  if (ours === undefined || incoming === undefined) return undefined;
  const edits: LineEdit[] = [];
  let next = 0;
  /** How many lines further down a line of `base` is in `mine`. */
  let shift = 0;
  for (const change of incoming) {
    let own = ours[next];
    while (own !== undefined && own.end < change.start) {
      shift += own.lines.length - (own.end - own.start);
      next += 1;
      own = ours[next];
    }
    // Changes that touch are told apart by nobody: an insertion beside a changed line may belong before or after it.
    if (own === undefined || change.end < own.start) {
      edits.push({ start: change.start + shift, end: change.end + shift, lines: change.lines });
    } else if (!isSame(own, change)) return undefined;
  }
  return edits;
}

/** The text with the edits made. */
export function applyEdits(text: string, edits: readonly LineEdit[]): string {
  const lines = linesOf(text);
  const merged: string[] = [];
  let at = 0;
  for (const { start, end, lines: replacement } of edits) {
    for (const line of lines.slice(at, start)) merged.push(line);
    for (const line of replacement) merged.push(line);
    at = end;
  }
  for (const line of lines.slice(at)) merged.push(line);
  return merged.join('\n');
}

/** The last line has no line end, so a text that ends with one has an empty last line. */
function linesOf(text: string): string[] {
  return text.split('\n');
}

/** What differs, as edits of the first, in order. */
function changes(from: string[], to: string[]): LineEdit[] | undefined {
  const parts = diffArrays(from, to, { maxEditLength: MOST_EDITS, timeout: MOST_MS }) as
    { value: string[]; added: boolean; removed: boolean }[] | undefined;
  if (parts === undefined) return undefined;
  const edits: LineEdit[] = [];
  let start = 0;
  let end = 0;
  let lines: string[] = [];
  const close = (): void => {
    if (end > start || lines.length > 0) edits.push({ start, end, lines });
    lines = [];
  };
  for (const { value, added, removed } of parts) {
    if (removed) end += value.length;
    else if (added) lines = [...lines, ...value];
    else {
      close();
      start = end += value.length;
    }
  }
  close();
  return edits;
}

function isSame(a: LineEdit, b: LineEdit): boolean {
  return (
    a.start === b.start &&
    a.end === b.end &&
    a.lines.length === b.lines.length &&
    a.lines.every((line, index) => line === b.lines[index])
  );
}
