import type { Blame, BlameOrigin } from '../../protocol/blame.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { formatRelativeTime } from './quantity.ts';
import type { Style } from './style.ts';
import { padEnd, sanitizeLine, sanitizeLines, truncate } from './text.ts';

/** Columns of the prompt beside the lines. */
const PROMPT_COLUMNS = 32;

export interface BlameView {
  readonly style: Style;
  /** ms since 1970. */
  readonly now: number;
}

/** The lines of a file, each group with what changed it last before its first line. */
export function formatBlame(
  { ranges, origins, lines: count }: Pick<Blame, 'ranges' | 'origins' | 'lines'>,
  text: readonly string[],
  { style, now }: BlameView,
): string[] {
  const digits = String(count).length;
  const blank = ' '.repeat(PROMPT_COLUMNS + 1);
  return ranges.flatMap(({ start, end, origin: index }) => {
    const origin = origins[index];
    const title = origin === undefined ? '' : shortTitle(origin, now);
    return text.slice(start, end).map((line, offset) => {
      const gutter = offset === 0 ? padEnd(truncate(title, PROMPT_COLUMNS), PROMPT_COLUMNS + 1) : blank;
      const number = String(start + offset + 1).padStart(digits);
      return `${style.cyan(gutter)}${style.dim(`${number}│`)} ${sanitizeLines(line)}`;
    });
  });
}

/** What changed some lines, and where to read on. */
export function formatOrigin(
  { path, start, end }: { readonly path: string; readonly start: number; readonly end: number },
  origin: BlameOrigin,
  { style, now }: BlameView,
): string[] {
  const { turns, turnCount, from, to, isExact, kind } = origin;
  const range = end - start === 1 ? `${start + 1}` : `${start + 1}-${end}`;
  const name = path.startsWith(`${WORKSPACE}/`) ? path.slice(WORKSPACE.length + 1) : path;
  const [turn] = turns;
  const what =
    kind === 'turn'
      ? `${turn?.id ?? 'a turn'}${isExact ? '' : ', or you before or after it'}`
      : kind === 'person'
        ? 'you, while no turn ran'
        : kind === 'start'
          ? 'as it was when the session began'
          : 'unknown: no snapshot in between is kept';
  const listed = turns.map(({ id, prompt, at }) => {
    const words = prompt === '' ? 'a turn without text' : sanitizeLine(prompt);
    return `  ${words}  ${style.dim(`${id}, ${formatRelativeTime(at, now)}`)}`;
  });
  const more = turnCount - turns.length;
  const state = (one: BlameOrigin['from']): string =>
    one === null ? 'now' : (one.snapshotId ?? 'the workspace as it began');
  return [
    `${style.bold(`${sanitizeLine(name)}:${range}`)}  ${what}`,
    ...listed,
    ...(more > 0 ? [`  and ${more} more turns`] : []),
    ...(kind === 'start'
      ? []
      : [style.dim(`  between ${from === null ? 'the beginning' : state(from)} and ${state(to)}`)]),
  ];
}

function shortTitle({ kind, isExact, turns, turnCount }: BlameOrigin, now: number): string {
  const [turn] = turns;
  if (kind === 'person') return 'you';
  if (kind === 'start') return 'from the beginning';
  if (kind === 'unknown') return turnCount === 0 ? 'unknown' : `one of ${turnCount} turns, or you`;
  const prompt = turn === undefined || turn.prompt === '' ? (turn?.id ?? '') : sanitizeLine(turn.prompt);
  const when = turn === undefined ? '' : formatRelativeTime(turn.at, now);
  return `${when} ${isExact ? '' : '~ '}${prompt}`;
}
