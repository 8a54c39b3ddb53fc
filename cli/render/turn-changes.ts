import type { LineCounts, TurnChanges } from '../../protocol/changes.ts';
import type { Result } from '../../protocol/methods.ts';
import { formatChangedPath, formatTotals } from './snapshot.ts';
import type { Style } from './style.ts';
import { sanitizeLine } from './text.ts';

/** What a turn changed on disk, in one line; null where nothing is stored about it. */
export function formatTurnChanges(changes: TurnChanges | null): string | null {
  if (changes === null) return null;
  const { state, totals, lines, isComplete, failure } = changes;
  if (state === 'pending') return 'being compared';
  if (state === 'unknown' || totals === null)
    return `unknown: ${sanitizeLine(failure?.why ?? 'the reason is not stored')}`;
  const counted = lines === null || isNone(lines) ? '' : `; ${formatLines(lines)} lines`;
  return `${formatTotals(totals)}${counted}${isComplete ? '' : ' (there may be more)'}`;
}

/** The changed paths, a line each, and the totals. */
export function formatTurnPaths({ changes, paths, omitted }: Result<'turn/changes'>, style: Style): string[] {
  const shown = paths.map(({ lines, ...path }) => {
    const counts = lines === null || isNone(lines) ? '' : ` ${style.dim(formatLines(lines))}`;
    return `${formatChangedPath(path, style)}${counts}`;
  });
  const more = omitted === 0 ? [] : [`and ${omitted.toLocaleString('en-US')} more`];
  const total =
    formatTurnChanges(changes) ??
    'Nothing is stored: the turn has not ended, or its session is not persistent.';
  return [...shown, ...more, ...(shown.length === 0 ? [] : ['']), total];
}

function isNone({ added, removed }: LineCounts): boolean {
  return added === 0 && removed === 0;
}

function formatLines({ added, removed }: LineCounts): string {
  return `+${added.toLocaleString('en-US')} −${removed.toLocaleString('en-US')}`;
}
