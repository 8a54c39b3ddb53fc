import type { Change, ChangeTotals, Snapshot } from '../../../protocol/snapshots.ts';
import { duration, relativeTime, size } from './quantity.ts';
import type { Style } from './style.ts';
import { facts, table } from './table.ts';
import { count, visible } from './text.ts';

export interface SnapshotTableOptions {
  readonly style: Style;
  readonly now: number;
  readonly width: number;
}

/** The newest first, as a person reads it. */
export function snapshotTable(snapshots: readonly Snapshot[], options: SnapshotTableOptions): string[] {
  const { style, now, width } = options;
  return table(
    snapshots,
    [
      { title: 'ID', value: ({ id }) => id, paint: () => style.bold },
      { title: 'WHEN', value: ({ createdAt }) => relativeTime(createdAt, now) },
      { title: 'WHY', value: ({ reason }) => reason },
      { title: 'FILES', value: ({ files }) => files.toLocaleString('en-US'), align: 'right' },
      { title: 'SIZE', value: ({ bytes }) => size(bytes), align: 'right' },
      { title: 'ADDED TO DISK', value: ({ newBytes }) => size(newBytes), align: 'right' },
      { title: 'MARKS', value: ({ pinned }) => (pinned ? 'pinned' : ''), giveWay: 2 },
      { title: 'LABEL', value: ({ label }) => label ?? '', paint: () => style.dim, giveWay: 1 },
    ],
    { width, header: style.dim },
  );
}

/** One snapshot in full. */
export function snapshotFacts(snapshot: Snapshot, style: Style, now: number): string[] {
  const { files, directories, bytes, changedFiles, changedBytes, newBytes } = snapshot;
  return facts(
    [
      ['Id', snapshot.id],
      ['Session', snapshot.sessionId],
      ['Taken', `${relativeTime(snapshot.createdAt, now)} (${snapshot.createdAt})`],
      ['Why', snapshot.reason],
      ['Label', snapshot.label],
      ['Pinned', snapshot.pinned ? 'yes' : 'no'],
      ['Before it', snapshot.base],
      ['Files', `${count(files, 'file')} in ${count(directories, 'folder')}, ${size(bytes)}`],
      ['Changed', `${count(changedFiles, 'file')}, ${size(changedBytes)}`],
      ['Added to disk', size(newBytes)],
      ['Took', `${duration(snapshot.scanMs)}, the agent stood still for ${duration(snapshot.frozenMs)}`],
      ['Event', String(snapshot.eventSeq)],
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

/** `M path`, `R old → new`: a line for each change. */
export function changeLine({ kind, path, oldPath }: Change, style: Style): string {
  const paint = { A: style.green, D: style.red }[MARKS[kind]] ?? style.yellow;
  const where = oldPath === undefined ? visible(path) : `${visible(oldPath)} → ${visible(path)}`;
  return `${paint(MARKS[kind])} ${where}`;
}

/** `3 added, 1 modified; 20 KiB`, or that nothing differs. */
export function totalsLine(totals: ChangeTotals): string {
  const { bytes, ...kinds } = totals;
  const names = { ...kinds, mode: 0, typechange: 0 };
  const told = [
    ...Object.entries(names).map(([name, many]) => (many === 0 ? '' : `${many} ${name}`)),
    totals.mode === 0 ? '' : `${totals.mode} with other attributes`,
    totals.typechange === 0 ? '' : `${totals.typechange} of another type`,
  ].filter((part) => part !== '');
  return told.length === 0 ? 'Nothing differs.' : `${told.join(', ')}; ${size(bytes)} of content`;
}
