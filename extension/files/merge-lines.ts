import { diffArrays } from 'diff';

/** Texts that differ in more lines, or take longer to compare, are left to a person. */
const MAX_EDITS = 5_000;
const TIMEOUT_MS = 200;

/** Replaces the lines from `start` to `end` (exclusive) with `lines`. */
export interface LineEdit {
  readonly start: number;
  readonly end: number;
  readonly lines: readonly string[];
}

/**
 * A three-way merge: the edits of `mine` that apply the changes of `theirs` since `base`. Undefined where both sides
 * changed the same or adjacent lines, or where the texts differ too much. A change that both sides made is applied
 * once. All texts must have `\n` as their line end.
 *
 * @param timeoutMs - how long each of the two comparisons may take
 */
export function mergeLines(
  base: string,
  mine: string,
  theirs: string,
  timeoutMs = TIMEOUT_MS,
): LineEdit[] | undefined {
  const [old, own, other] = [linesOf(base), linesOf(mine), linesOf(theirs)];
  const ours = changes(old, own, timeoutMs);
  const incoming = changes(old, other, timeoutMs);
  if (ours === undefined || incoming === undefined) return undefined;
  const edits: LineEdit[] = [];
  let next = 0;
  /** By how many lines a line of `base` has moved down in `mine`. */
  let shift = 0;
  for (const change of incoming) {
    let own = ours[next];
    while (own !== undefined && own.end < change.start) {
      shift += own.lines.length - (own.end - own.start);
      next += 1;
      own = ours[next];
    }
    // Adjacent changes conflict too: an insertion next to a changed line may belong before or after it.
    if (own === undefined || change.end < own.start) {
      edits.push({ start: change.start + shift, end: change.end + shift, lines: change.lines });
    } else if (!isSame(own, change)) return undefined;
  }
  return edits;
}

/** Applies edits to a text. */
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

/** A text that ends with a line end has an empty last line. */
function linesOf(text: string): string[] {
  return text.split('\n');
}

/** The differences as edits of `from`, in order. */
function changes(from: string[], to: string[], timeout: number): LineEdit[] | undefined {
  const parts = diffArrays(from, to, { maxEditLength: MAX_EDITS, timeout }) as
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
