import { type LineChange, lineChanges, type LineLimits, lineStarts, oneChange } from './line-changes.ts';

/** Unchanged lines shown around a change. */
const CONTEXT = 3;
const NO_LINE_END = Buffer.from('\n\\ No newline at end of file\n');
const [UNCHANGED, REMOVED, ADDED] = [' ', '-', '+'].map((sign) => Buffer.from(sign)) as [
  Buffer,
  Buffer,
  Buffer,
];

/** The hunks (`@@ …`) that turn one text into the other; empty when they are equal. `limits`: null for one change. */
export function unifiedHunks(before: Buffer, after: Buffer, limits: LineLimits | null): Buffer {
  const old = { text: before, starts: lineStarts(before) };
  const now = { text: after, starts: lineStarts(after) };
  const out: Buffer[] = [];
  for (const group of grouped(
    limits === null ? oneChange(before, after) : lineChanges(before, after, limits),
  )) {
    const first = group[0];
    const last = group.at(-1);
    if (first === undefined || last === undefined) continue;
    const lead = Math.min(CONTEXT, first.beforeStart);
    const trail = Math.min(CONTEXT, old.starts.length - 1 - last.beforeEnd);
    const oldRange = range(first.beforeStart - lead, last.beforeEnd + trail);
    const nowRange = range(first.afterStart - lead, last.afterEnd + trail);
    out.push(Buffer.from(`@@ -${oldRange} +${nowRange} @@\n`));
    let at = first.beforeStart - lead;
    for (const change of group) {
      put(out, UNCHANGED, old, at, change.beforeStart);
      put(out, REMOVED, old, change.beforeStart, change.beforeEnd);
      put(out, ADDED, now, change.afterStart, change.afterEnd);
      at = change.beforeEnd;
    }
    put(out, UNCHANGED, old, at, last.beforeEnd + trail);
  }
  return Buffer.concat(out);
}

/** Changes whose contexts would touch form one hunk. */
function grouped(changes: readonly LineChange[]): LineChange[][] {
  const groups: LineChange[][] = [];
  for (const change of changes) {
    const group = groups.at(-1);
    const previous = group?.at(-1);
    if (
      group !== undefined &&
      previous !== undefined &&
      change.beforeStart - previous.beforeEnd <= 2 * CONTEXT
    ) {
      group.push(change);
    } else groups.push([change]);
  }
  return groups;
}

/** An empty range is given by the line before it, any other by its first line; lines count from 1. */
function range(start: number, end: number): string {
  return start === end ? `${start},0` : `${start + 1},${end - start}`;
}

function put(
  out: Buffer[],
  sign: Buffer,
  { text, starts }: { readonly text: Buffer; readonly starts: readonly number[] },
  from: number,
  to: number,
): void {
  for (let line = from; line < to; line += 1) {
    const bytes = text.subarray(starts[line], starts[line + 1]);
    out.push(sign, bytes);
    if (bytes.at(-1) !== 0x0a) out.push(NO_LINE_END);
  }
}
