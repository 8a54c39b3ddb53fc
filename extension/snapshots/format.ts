import { snapshotReasonRule } from '../../protocol/snapshot-reasons.ts';
import type { Caveat, ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';
import { formatCount } from '../base/format.ts';

/** How much of a prompt the name of a snapshot shows. */
const MAX_PROMPT_CHARACTERS = 48;

/** How many files differ: `2 added, 1 changed, 3 deleted`. Folders are counted only where no file differs. */
export function formatTotals(totals: ChangeTotals): string {
  const { mode, directories } = totals;
  const counts: [number, string][] = [
    [totals.added, 'added'],
    [totals.modified + totals.typechange, 'changed'],
    [totals.deleted, 'deleted'],
    [totals.renamed, 'renamed'],
    [mode, mode === 1 ? 'mode or time change' : 'mode or time changes'],
  ];
  const text = counts
    .filter(([count]) => count > 0)
    .map(([count, what]) => `${count.toLocaleString('en-US')} ${what}`)
    .join(', ');
  if (text !== '') return text;
  return directories === 0 ? 'no differences' : formatCount(directories, 'folder');
}

/** How a list names a snapshot: its label, or why it was created; then the time. */
export function snapshotTitle(
  snapshot: Pick<Snapshot, 'label' | 'reason' | 'turn' | 'createdAt'>,
  now: number = Date.now(),
): string {
  return `${snapshot.label ?? formatReason(snapshot)} · ${formatTime(snapshot.createdAt, now)}`;
}

function formatReason({ reason, turn }: Pick<Snapshot, 'reason' | 'turn'>): string {
  const rule = snapshotReasonRule(reason);
  if (turn === null || turn.prompt === '') return rule.title;
  return `${rule.turn === 'last' ? 'After' : 'Before'} "${shorten(turn.prompt)}"`;
}

function shorten(prompt: string): string {
  const characters = Array.from(prompt);
  return characters.length <= MAX_PROMPT_CHARACTERS
    ? prompt
    : `${characters.slice(0, MAX_PROMPT_CHARACTERS - 1).join('')}…`;
}

const TIME = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const;
const DAY = { month: 'short', day: 'numeric' } as const;

/** The time of day, and the date where that is not today. */
function formatTime(at: string, now: number): string {
  const [time, today] = [new Date(at), new Date(now)];
  const clock = time.toLocaleTimeString('en-US', TIME);
  if (time.toDateString() === today.toDateString()) return clock;
  const isThisYear = time.getFullYear() === today.getFullYear();
  return `${time.toLocaleDateString('en-US', isThisYear ? DAY : { ...DAY, year: 'numeric' })}, ${clock}`;
}

/** Permission bits as `ls` and `chmod` write them: `rwxr-xr-x (755)`. */
export function formatMode(mode: number): string {
  const letters = Array.from('rwxrwxrwx')
    .map((letter, index) => ((mode >> (8 - index)) & 1 ? letter : '-'))
    .join('');
  return `${letters} (${(mode & 0o7777).toString(8).padStart(3, '0')})`;
}

/** Why a comparison may be incomplete; null where it is complete. */
export function formatCaveats(caveats: readonly Caveat[]): string | null {
  const parts = caveats.map(({ kind, missing }) =>
    kind === 'during-turn'
      ? 'may be incomplete: the snapshot was completed after its turn had started'
      : `${formatCount(missing, 'file')} could not be read and ${missing === 1 ? 'is' : 'are'} not compared`,
  );
  return parts.length === 0 ? null : [...new Set(parts)].join('; ');
}
