import type { Hunk, Review, ReviewFile, ReviewState } from '../../protocol/review.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Paint, Style } from './style.ts';
import { formatTable } from './table.ts';
import { pluralize, sanitizeLine, sanitizeLines } from './text.ts';

const MARKS: Readonly<Record<ReviewFile['kind'], string>> = {
  added: 'A',
  modified: 'M',
  deleted: 'D',
  renamed: 'R',
  mode: 'm',
  typechange: 'T',
};
const STATES: Readonly<Record<ReviewState, string>> = {
  'to-review': 'to review',
  accepted: 'accepted',
  rejected: 'rejected',
  partial: 'partly decided',
  mixed: 'accepted and rejected',
};
/** Unchanged lines shown around a hunk. */
const CONTEXT = 3;

/** The changed paths of a review as a table. */
export function formatReviewFiles(
  files: readonly ReviewFile[],
  { style, width }: { readonly style: Style; readonly width: number },
): string[] {
  if (files.length === 0) return [];
  return formatTable(
    files,
    [
      { title: '', value: ({ kind }) => MARKS[kind], paint: ({ kind }) => markPaint(kind, style) },
      { title: 'PATH', value: pathText, shrinkPriority: 1 },
      { title: 'STATE', value: stateText, paint: ({ state }) => statePaint(state, style) },
      { title: 'FLAGS', value: ({ risks }) => risks.join(', '), paint: () => style.yellow },
    ],
    { width, header: style.dim },
  );
}

function stateText({ state, again }: ReviewFile): string {
  return again ? `${STATES[state]}, again` : STATES[state];
}

function pathText({ path, oldPath, below }: ReviewFile): string {
  const where = oldPath === undefined ? shortPath(path) : `${shortPath(oldPath)} → ${shortPath(path)}`;
  return below === 0 ? where : `${where} (and ${below} below)`;
}

/** Relative to the workspace, as commands take it. */
function shortPath(path: string): string {
  return path.startsWith(`${WORKSPACE}/`) ? path.slice(WORKSPACE.length + 1) : path;
}

/** `12 paths: 3 to review, 8 accepted, 1 rejected`, or `No differences.` */
export function formatReviewCounts({ counts }: Review): string {
  const { files, toReview, accepted, rejected, partial } = counts;
  if (files === 0) return 'No differences.';
  const parts = Object.entries({ 'to review': toReview, accepted, rejected, 'partly decided': partial })
    .filter(([, many]) => many > 0)
    .map(([name, many]) => `${many.toLocaleString('en-US')} ${name}`);
  return `${pluralize(files, 'path')}: ${parts.join(', ')}`;
}

/** The first lines about a path in a diff. */
export function formatFileHeader(file: ReviewFile, style: Style): string[] {
  const { kind, oldMode, newMode, risks } = file;
  const flags = risks.length === 0 ? '' : ` ${style.yellow(`[${risks.join(', ')}]`)}`;
  const mode =
    oldMode !== null && newMode !== null && oldMode !== newMode && kind !== 'typechange'
      ? [style.dim(`mode ${octal(oldMode)} → ${octal(newMode)}`)]
      : [];
  const paint = markPaint(kind, style);
  const title = `${paint(MARKS[kind])} ${style.bold(sanitizeLine(pathText(file)))}`;
  return [`${title} ${style.dim(`(${stateText(file)})`)}${flags}`, ...mode];
}

/** The lines of one hunk, with some unchanged lines around it. */
export function formatHunk(
  hunk: Hunk,
  base: readonly string[],
  target: readonly string[],
  style: Style,
): string[] {
  const { id, what, removed, added, state } = hunk;
  if (what === 'mode') return [style.cyan(`@@ mode @@ ${id}`) + style.dim(` ${STATES[state]}`)];
  const lead = base.slice(Math.max(0, removed.start - CONTEXT), removed.start);
  const trail = base.slice(removed.end, removed.end + CONTEXT);
  const at = `-${removed.start + 1},${removed.end - removed.start} +${added.start + 1},${added.end - added.start}`;
  const show = (sign: string, lines: readonly string[], paint: Paint): string[] =>
    lines.map((line) => paint(`${sign}${sanitizeLines(line)}`));
  const plain: Paint = (text) => text;
  return [
    style.cyan(`@@ ${at} @@ ${id}`) + style.dim(` ${STATES[state]}`),
    ...show(' ', lead, plain),
    ...show('-', base.slice(removed.start, removed.end), style.red),
    ...show('+', target.slice(added.start, added.end), style.green),
    ...show(' ', trail, plain),
  ];
}

/** All lines of a text that came or went. */
export function formatWholeText(sign: '+' | '-', lines: readonly string[], style: Style): string[] {
  const paint = sign === '+' ? style.green : style.red;
  return lines.map((line) => paint(`${sign}${sanitizeLines(line)}`));
}

function markPaint(kind: ReviewFile['kind'], style: Style): Paint {
  if (kind === 'added') return style.green;
  return kind === 'deleted' ? style.red : style.yellow;
}

function statePaint(state: ReviewState, style: Style): Paint {
  if (state === 'accepted') return style.green;
  return state === 'rejected' ? style.red : style.bold;
}

function octal(mode: number): string {
  return mode.toString(8).padStart(3, '0');
}
