import type { Turn } from '../../protocol/entities.ts';
import type { Caveat, ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';

/** Of a prompt so much is in the name of a snapshot. */
const PROMPT_CHARACTERS = 48;

/**
 * How many files differ, as `2 added, 1 changed, 3 deleted`. Folders are told of only where nothing else differs: what is in them
 * counts.
 */
export function formatTotals(totals: ChangeTotals): string {
  const { mode, directories } = totals;
  const parts: [number, string][] = [
    [totals.added, 'added'],
    [totals.modified + totals.typechange, 'changed'],
    [totals.deleted, 'deleted'],
    [totals.renamed, 'renamed'],
    [mode, mode === 1 ? 'mode or time change' : 'mode or time changes'],
  ];
  const said = wordsOf(parts);
  if (said !== '') return said;
  return wordsOf([[directories, directories === 1 ? 'folder' : 'folders']]) || 'no differences';
}

function wordsOf(parts: readonly [number, string][]): string {
  return parts
    .filter(([number]) => number > 0)
    .map(([number, what]) => `${number.toLocaleString('en-US')} ${what}`)
    .join(', ');
}

/** How much of what is done, as `1,200 of 5,000`. */
export function formatProgress(done: number, of: number | null): string {
  const so = done.toLocaleString('en-US');
  return of === null ? so : `${so} of ${of.toLocaleString('en-US')}`;
}

/** What tells a snapshot from others for a person: its label, or what it was taken before; and when. */
export function snapshotTitle(
  snapshot: Pick<Snapshot, 'label' | 'reason' | 'turn' | 'createdAt'>,
  now: number = Date.now(),
): string {
  return `${snapshot.label ?? reasonWords(snapshot)} · ${timeWords(snapshot.createdAt, now)}`;
}

function reasonWords({ reason, turn }: Pick<Snapshot, 'reason' | 'turn'>): string {
  switch (reason) {
    case 'manual':
      return 'Snapshot';
    case 'before-turn':
      return turn === null || turn.prompt === '' ? 'Before a turn' : `Before "${short(turn.prompt)}"`;
    case 'before-restore':
      return 'Before restore';
    case 'before-reset':
      return 'Before reset';
    case 'before-delete':
      return 'Before deletion';
  }
}

function short(prompt: string): string {
  const characters = Array.from(prompt);
  return characters.length <= PROMPT_CHARACTERS
    ? prompt
    : `${characters.slice(0, PROMPT_CHARACTERS - 1).join('')}…`;
}

const TIME = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const;
const DAY = { month: 'short', day: 'numeric' } as const;

/** The time of day; of another day, that too. */
function timeWords(at: string, now: number): string {
  const [time, today] = [new Date(at), new Date(now)];
  const clock = time.toLocaleTimeString('en-US', TIME);
  if (time.toDateString() === today.toDateString()) return clock;
  const isThisYear = time.getFullYear() === today.getFullYear();
  return `${time.toLocaleDateString('en-US', isThisYear ? DAY : { ...DAY, year: 'numeric' })}, ${clock}`;
}

/** Permission bits as `ls` and `chmod` write them: `rwxr-xr-x (755)`. */
export function formatMode(mode: number): string {
  const letters = Array.from('rwxrwxrwx')
    .map((letter, at) => ((mode >> (8 - at)) & 1 ? letter : '-'))
    .join('');
  return `${letters} (${(mode & 0o7777).toString(8).padStart(3, '0')})`;
}

/** What a person must know of the snapshot before their turn; null where it is as it should be. */
export function formatTurnSnapshot({ snapshot, error }: Pick<Turn, 'snapshot' | 'error'>): string | null {
  // The error of the turn says it.
  if (snapshot === null || error?.data.code === 'snapshot_required') return null;
  const { state, duringTurn, missing, failure } = snapshot;
  if (state === 'failed') {
    if (failure?.code === 'cancelled') return null;
    return `no snapshot was taken before it: ${failure?.why ?? 'the reason is not known'}`;
  }
  const parts = [
    missing > 0 ? `its snapshot lacks ${missing.toLocaleString('en-US')} files that could not be read` : '',
    state === 'taking' || duringTurn ? 'its snapshot was completed after it had begun' : '',
  ].filter((part) => part !== '');
  return parts.length === 0 ? null : parts.join('; ');
}

/** What a comparison cannot tell, in a few words; null for nothing. */
export function formatCaveats(caveats: readonly Caveat[]): string | null {
  const parts = caveats.map(({ kind, missing }) =>
    kind === 'during-turn'
      ? 'may be incomplete: the snapshot was completed after its turn had begun'
      : `${missing.toLocaleString('en-US')} files could not be read and are not compared`,
  );
  return parts.length === 0 ? null : [...new Set(parts)].join('; ');
}
