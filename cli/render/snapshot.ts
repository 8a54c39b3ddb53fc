import type { Turn } from '../../protocol/entities.ts';
import type { Caveat, Change, ChangeTotals, Snapshot } from '../../protocol/snapshots.ts';
import { formatDuration, formatRelativeTime, formatSize } from './quantity.ts';
import type { Style } from './style.ts';
import { formatFields, formatTable } from './table.ts';
import { pluralize, sanitizeLine } from './text.ts';

/** How many missing paths a line lists. */
const MISSING_SHOWN = 10;

export interface SnapshotTableOptions {
  readonly style: Style;
  readonly now: number;
  readonly width: number;
}

/** A table of snapshots. */
export function formatSnapshotTable(snapshots: readonly Snapshot[], options: SnapshotTableOptions): string[] {
  const { style, now, width } = options;
  return formatTable(
    snapshots,
    [
      { title: 'ID', value: ({ id }) => id, paint: () => style.bold },
      { title: 'CREATED', value: ({ createdAt }) => formatRelativeTime(createdAt, now) },
      { title: 'REASON', value: ({ reason }) => reason },
      { title: 'AUTHOR', value: ({ author }) => author ?? '', shrinkPriority: 2 },
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

/** The paths that could not be read: `/workspace/a, /workspace/b and 3 more`. */
function formatMissingPaths(missing: number, paths: readonly string[]): string {
  const shown = paths.slice(0, MISSING_SHOWN);
  const rest = missing - shown.length;
  return `${shown.map(sanitizeLine).join(', ')}${rest > 0 ? ` and ${rest.toLocaleString('en-US')} more` : ''}`;
}

/** A warning about the snapshot before a turn; null if the snapshot is complete and was finished before the turn. */
export function turnSnapshotNote({ snapshot, error }: Pick<Turn, 'snapshot' | 'error'>): string | null {
  // The error of the turn already explains it.
  if (snapshot === null || error?.data.code === 'snapshot_required') return null;
  const { state, snapshotId, duringTurn, missing, failure } = snapshot;
  if (state === 'failed') {
    if (failure?.code === 'cancelled') return null;
    return `The snapshot before this turn failed: ${sanitizeLine(failure?.why ?? 'the reason is unknown')}`;
  }
  if (state === 'taking')
    return 'The snapshot before this turn is not finished: the turn has started, and the snapshot may contain some of its changes';
  const incomplete =
    missing === 0
      ? null
      : `Snapshot ${snapshotId ?? ''} before this turn is incomplete: ${pluralize(missing, 'file')} could not be read (\`holdfast snapshot show ${snapshotId ?? ''}\`)`;
  const late = duringTurn
    ? `Snapshot ${snapshotId ?? ''} was finished after this turn had started: it may contain some of the turn's changes`
    : null;
  return [incomplete, late].filter((note) => note !== null).join('\n') || null;
}

/** A warning about using an incomplete snapshot; null if it is complete. `then`: what happens to the missing files. */
export function incompleteSnapshotNote(
  snapshot: string,
  { missing, missingPaths }: Pick<Snapshot, 'missing' | 'missingPaths'>,
  then: string,
): string | null {
  if (missing === 0) return null;
  return `${snapshot} is incomplete: ${pluralize(missing, 'file')} could not be read when it was created and ${then}: ${formatMissingPaths(missing, missingPaths)}`;
}

/** The state of the snapshot before a turn in one line, with its id. */
export function formatTurnSnapshot({ snapshot }: Pick<Turn, 'snapshot'>): string | null {
  if (snapshot === null) return null;
  const { state, snapshotId, duringTurn, missing, failure } = snapshot;
  if (state === 'failed') return `none: ${sanitizeLine(failure?.why ?? 'the reason is unknown')}`;
  if (state === 'taking') return 'being created while the turn runs';
  const marks = [
    duringTurn ? 'finished after the turn had started' : '',
    missing > 0 ? `incomplete: ${pluralize(missing, 'file')} could not be read` : '',
  ].filter((mark) => mark !== '');
  return [snapshotId ?? '', ...marks].join(', ');
}

/** A caveat of a comparison in one line. */
export function formatCaveat({ snapshotId, kind, missing, missingPaths }: Caveat): string {
  const what = snapshotId ?? 'the workspace';
  switch (kind) {
    case 'during-turn':
      return `${what} was finished after its turn had started: earlier changes of the turn may be missing here`;
    case 'incomplete':
      return `${what} is missing ${pluralize(missing, 'file')} that could not be read; they are not compared: ${formatMissingPaths(missing, missingPaths)}`;
  }
}

/** All details of a snapshot, a line each. */
export function formatSnapshot(snapshot: Snapshot, style: Style, now: number): string[] {
  const { files, directories, bytes, changedFiles, changedBytes, newBytes, missing, missingPaths } = snapshot;
  return formatFields(
    [
      ['Id', snapshot.id],
      ['Session', snapshot.sessionId],
      ['Created', `${formatRelativeTime(snapshot.createdAt, now)} (${snapshot.createdAt})`],
      ['Reason', snapshot.reason],
      ['Author', snapshot.author],
      ['Turn', snapshot.turn === null ? null : `${snapshot.turn.id}: ${snapshot.turn.prompt}`],
      ['Label', snapshot.label],
      ['Pinned', snapshot.pinned ? 'yes' : 'no'],
      ['Based on', snapshot.base],
      ['Files', `${pluralize(files, 'file')} in ${pluralize(directories, 'folder')}, ${formatSize(bytes)}`],
      ['Changed', `${pluralize(changedFiles, 'file')}, ${formatSize(changedBytes)}`],
      ['Added to disk', formatSize(newBytes)],
      [
        'Duration',
        `${formatDuration(snapshot.scanMs)}, the agent was paused for ${formatDuration(snapshot.frozenMs)}`,
      ],
      ['Event', String(snapshot.eventSeq)],
      ['Finished', snapshot.duringTurn ? 'after its turn had started' : null],
      [
        'Incomplete',
        missing === 0 ? null : `could not be read: ${formatMissingPaths(missing, missingPaths)}`,
      ],
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

/** One change: `M path`, `R old → new (edited)`, `m path (644 → 755)`. */
export function formatChange(change: Change, style: Style): string {
  const notes = [change.edited === true ? 'edited' : '', modeChange(change)].filter((note) => note !== '');
  return `${formatChangedPath(change, style)}${notes.length === 0 ? '' : ` (${notes.join(', ')})`}`;
}

/** As `formatChange`, without what is in parentheses. */
export function formatChangedPath(
  { kind, path, oldPath }: Pick<Change, 'kind' | 'path' | 'oldPath'>,
  style: Style,
): string {
  const paint = { A: style.green, D: style.red }[MARKS[kind]] ?? style.yellow;
  const where =
    oldPath === undefined ? sanitizeLine(path) : `${sanitizeLine(oldPath)} → ${sanitizeLine(path)}`;
  return `${paint(MARKS[kind])} ${where}`;
}

function modeChange({ kind, oldMode, newMode }: Change): string {
  const isSame = oldMode === null || newMode === null || oldMode === newMode;
  // The mode says nothing about a file that became a link.
  return isSame || kind === 'typechange' ? '' : `${octal(oldMode)} → ${octal(newMode)}`;
}

function octal(mode: number): string {
  return mode.toString(8).padStart(3, '0');
}

/** `3 added, 1 modified, 2 folders; 20 KiB of content`, or `No differences.` */
export function formatTotals(totals: ChangeTotals): string {
  const { added, modified, deleted, renamed, mode, typechange, directories, bytes } = totals;
  const parts = [
    ...Object.entries({ added, modified, deleted, renamed }).map(([name, many]) => quantity(many, name)),
    mode === 0 ? '' : pluralize(mode, 'mode or time change'),
    quantity(typechange, 'of another type'),
    directories === 0 ? '' : pluralize(directories, 'folder'),
  ].filter((part) => part !== '');
  return parts.length === 0 ? 'No differences.' : `${parts.join(', ')}; ${formatSize(bytes)} of content`;
}

function quantity(many: number, what: string): string {
  return many === 0 ? '' : `${many.toLocaleString('en-US')} ${what}`;
}
