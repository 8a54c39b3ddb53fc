import type { Turn } from '../../protocol/entities.ts';
import type { Caveat, Change, ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';
import { formatDuration, formatRelativeTime, formatSize } from './quantity.ts';
import type { Style } from './style.ts';
import { formatFields, formatTable } from './table.ts';
import { pluralize, sanitizeLine } from './text.ts';

/** Paths that a line names. */
const MISSING_SHOWN = 10;

export interface SnapshotTableOptions {
  readonly style: Style;
  readonly now: number;
  readonly width: number;
}

/** The newest first, as a person reads it. */
export function formatSnapshotTable(snapshots: readonly Snapshot[], options: SnapshotTableOptions): string[] {
  const { style, now, width } = options;
  return formatTable(
    snapshots,
    [
      { title: 'ID', value: ({ id }) => id, paint: () => style.bold },
      { title: 'WHEN', value: ({ createdAt }) => formatRelativeTime(createdAt, now) },
      { title: 'WHY', value: ({ reason }) => reason },
      { title: 'FILES', value: ({ files }) => files.toLocaleString('en-US'), align: 'right' },
      { title: 'SIZE', value: ({ bytes }) => formatSize(bytes), align: 'right' },
      { title: 'ADDED TO DISK', value: ({ newBytes }) => formatSize(newBytes), align: 'right' },
      { title: 'MARKS', value: marks, shrinkPriority: 2 },
      { title: 'LABEL', value: ({ label }) => label ?? '', shrinkPriority: 1 },
      { title: 'PROMPT', value: ({ turn }) => turn?.prompt ?? '', paint: () => style.dim, shrinkPriority: 3 },
    ],
    { width, header: style.dim },
  );
}

function marks({ pinned, duringTurn, missing }: Snapshot): string {
  return [pinned ? 'pinned' : '', duringTurn ? 'during the turn' : '', missing > 0 ? 'incomplete' : '']
    .filter((mark) => mark !== '')
    .join(', ');
}

/** The paths that could not be read, as `/workspace/a, /workspace/b and 3 more`. */
function missingWords(missing: number, paths: readonly string[]): string {
  const shown = paths.slice(0, MISSING_SHOWN);
  const rest = missing - shown.length;
  return `${shown.map(sanitizeLine).join(', ')}${rest > 0 ? ` and ${rest.toLocaleString('en-US')} more` : ''}`;
}

/** What a person must know of the snapshot before their turn; null where it is as it should be. */
export function turnSnapshotNote({ snapshot, error }: Pick<Turn, 'snapshot' | 'error'>): string | null {
  // The error of the turn says it.
  if (snapshot === null || error?.data.code === 'snapshot_required') return null;
  const { state, snapshotId, duringTurn, missing, failure } = snapshot;
  if (state === 'failed') {
    if (failure?.code === 'cancelled') return null;
    return `No snapshot was taken before this turn: ${sanitizeLine(failure?.why ?? 'the reason is not known')}`;
  }
  if (state === 'taking')
    return 'The snapshot before this turn took long: the turn began while it was being taken, and it may hold some of what the turn does';
  const incomplete =
    missing === 0
      ? null
      : `Snapshot ${snapshotId ?? ''} before this turn is incomplete: ${pluralize(missing, 'file')} could not be read (holdfast snapshot show ${snapshotId ?? ''})`;
  const late = duringTurn
    ? `Snapshot ${snapshotId ?? ''} was completed after this turn had begun: it may hold some of what the turn did`
    : null;
  return [incomplete, late].filter((note) => note !== null).join('\n') || null;
}

/** What whoever brings back an incomplete snapshot must know; null where it is complete. `then`: what becomes of the files that it lacks. */
export function incompleteSnapshotNote(
  snapshot: string,
  { missing, missingPaths }: Pick<Snapshot, 'missing' | 'missingPaths'>,
  then: string,
): string | null {
  if (missing === 0) return null;
  return `${snapshot} is incomplete: ${pluralize(missing, 'file')} could not be read when it was taken and ${then}: ${missingWords(missing, missingPaths)}`;
}

/** The same in one line, with the id of the snapshot. */
export function formatTurnSnapshot({ snapshot }: Pick<Turn, 'snapshot'>): string | null {
  if (snapshot === null) return null;
  const { state, snapshotId, duringTurn, missing, failure } = snapshot;
  if (state === 'failed') return `none: ${sanitizeLine(failure?.why ?? 'the reason is not known')}`;
  if (state === 'taking') return 'is being taken while the turn runs';
  const marks = [
    duringTurn ? 'completed after the turn had begun' : '',
    missing > 0 ? `incomplete: ${pluralize(missing, 'file')} could not be read` : '',
  ].filter((mark) => mark !== '');
  return [snapshotId ?? '', ...marks].join(', ');
}

/** What a comparison cannot tell. */
export function formatCaveat({ snapshotId, kind, missing, missingPaths }: Caveat): string {
  const what = snapshotId ?? 'the workspace';
  switch (kind) {
    case 'during-turn':
      return `${what} was completed after its turn had begun: what the turn changed before that may be missing here`;
    case 'incomplete':
      return `${what} lacks ${pluralize(missing, 'file')} that could not be read, which are not compared: ${missingWords(missing, missingPaths)}`;
  }
}

/** One snapshot in full. */
export function formatSnapshot(snapshot: Snapshot, style: Style, now: number): string[] {
  const { files, directories, bytes, changedFiles, changedBytes, newBytes, missing, missingPaths } = snapshot;
  return formatFields(
    [
      ['Id', snapshot.id],
      ['Session', snapshot.sessionId],
      ['Taken', `${formatRelativeTime(snapshot.createdAt, now)} (${snapshot.createdAt})`],
      ['Why', snapshot.reason],
      ['Turn', snapshot.turn === null ? null : `${snapshot.turn.id}: ${snapshot.turn.prompt}`],
      ['Label', snapshot.label],
      ['Pinned', snapshot.pinned ? 'yes' : 'no'],
      ['Before it', snapshot.base],
      ['Files', `${pluralize(files, 'file')} in ${pluralize(directories, 'folder')}, ${formatSize(bytes)}`],
      ['Changed', `${pluralize(changedFiles, 'file')}, ${formatSize(changedBytes)}`],
      ['Added to disk', formatSize(newBytes)],
      [
        'Took',
        `${formatDuration(snapshot.scanMs)}, the agent stood still for ${formatDuration(snapshot.frozenMs)}`,
      ],
      ['Event', String(snapshot.eventSeq)],
      ['Completed', snapshot.duringTurn ? 'after its turn had begun' : null],
      ['Incomplete', missing === 0 ? null : `could not be read: ${missingWords(missing, missingPaths)}`],
    ],
    style.dim,
  );
}

const MARKS: Readonly<Record<Change['kind'], string>> = {
  added: 'A',
  modified: 'M',
  deleted: 'D',
  renamed: 'R',
  mode: 'm',
  typechange: 'T',
};

/** A line for each change: `M path`, `R old → new (edited)`, `m path (644 → 755)`. */
export function formatChange(change: Change, style: Style): string {
  const { kind, path, oldPath } = change;
  const paint = { A: style.green, D: style.red }[MARKS[kind]] ?? style.yellow;
  const where =
    oldPath === undefined ? sanitizeLine(path) : `${sanitizeLine(oldPath)} → ${sanitizeLine(path)}`;
  const notes = [change.edited === true ? 'edited' : '', modeChange(change)].filter((note) => note !== '');
  return `${paint(MARKS[kind])} ${where}${notes.length === 0 ? '' : ` (${notes.join(', ')})`}`;
}

function modeChange({ kind, oldMode, newMode }: Change): string {
  const isSame = oldMode === null || newMode === null || oldMode === newMode;
  // Of a file that became a link nobody wants to know the mode.
  return isSame || kind === 'typechange' ? '' : `${octal(oldMode)} → ${octal(newMode)}`;
}

function octal(mode: number): string {
  return mode.toString(8).padStart(3, '0');
}

/** `3 added, 1 modified, 2 folders; 20 KiB of content`, or that nothing differs. */
export function formatTotals(totals: ChangeTotals): string {
  const { added, modified, deleted, renamed, mode, typechange, directories, bytes } = totals;
  const told = [
    ...Object.entries({ added, modified, deleted, renamed }).map(([name, many]) => said(many, name)),
    mode === 0 ? '' : pluralize(mode, 'mode or time change'),
    said(typechange, 'of another type'),
    directories === 0 ? '' : pluralize(directories, 'folder'),
  ].filter((part) => part !== '');
  return told.length === 0 ? 'Nothing differs.' : `${told.join(', ')}; ${formatSize(bytes)} of content`;
}

function said(many: number, what: string): string {
  return many === 0 ? '' : `${many.toLocaleString('en-US')} ${what}`;
}
