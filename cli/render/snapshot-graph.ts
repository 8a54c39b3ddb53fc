import { type GraphRow, layoutGraph } from '../../protocol/snapshot-lanes.ts';
import type { Entry } from '../../protocol/snapshot-tree.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import { formatRelativeTime } from './quantity.ts';
import type { SnapshotTableOptions } from './snapshot.ts';
import { padEnd, sanitizeLine, truncate } from './text.ts';

/** As long as an id. */
const NAME_WIDTH = 20;
const TIME_WIDTH = 12;

/** The states of a session's files, newest first, a line each: lanes as `git log --graph` draws them, then what each one is. */
export function formatSnapshotGraph(
  entries: readonly Entry<Snapshot>[],
  { style, now, width }: SnapshotTableOptions,
): string[] {
  const { rows, lanes } = layoutGraph(entries);
  return entries.flatMap((entry, at) => {
    const row = rows[at];
    if (row === undefined) return [];
    const { name, time, text } = wordsOf(entry);
    const drawn = drawLanes(row, lanes, symbolOf(entry));
    const when = padEnd(time === null ? '' : formatRelativeTime(time, now), TIME_WIDTH);
    const left = width - drawn.length - NAME_WIDTH - TIME_WIDTH - 6;
    const shown = truncate(sanitizeLine(text), Math.max(10, left));
    return [`${drawn}  ${style.bold(padEnd(name, NAME_WIDTH))}  ${style.dim(when)}  ${shown}`.trimEnd()];
  });
}

function symbolOf(entry: Entry<Snapshot>): string {
  if (entry.kind === 'now') return '○';
  if (entry.kind === 'snapshot') return entry.snapshot.pinned ? '◉' : '●';
  return '■';
}

function wordsOf(entry: Entry<Snapshot>): { name: string; time: string | null; text: string } {
  switch (entry.kind) {
    case 'now':
      return { name: 'now', time: null, text: `the files as they are${restoredNote(entry)}` };
    case 'snapshot': {
      const { id, createdAt, label, turn, reason, pinned } = entry.snapshot;
      const prompt = turn?.prompt ?? '';
      const title = label ?? (prompt === '' ? reason : `${reason}: ${prompt}`);
      const text = `${pinned ? '[pinned] ' : ''}${title}${restoredNote(entry)}`;
      return { name: id, time: createdAt, text };
    }
    case 'fork': {
      const { sessionId, name, at } = entry.fork;
      return { name: sessionId, time: at, text: `fork “${name}”` };
    }
    case 'origin': {
      const { snapshotId, session } = entry.origin;
      const whose = session === null ? 'a session that was deleted' : `“${session.name}”`;
      return { name: snapshotId, time: null, text: `what the session began with, of ${whose}` };
    }
  }
}

function restoredNote({ restored }: Extract<Entry, { kind: 'now' | 'snapshot' }>): string {
  return restored === null ? '' : ` (goes on from ${restored.snapshotId}, restored)`;
}

/** Two columns for a lane. A branch that began with the node comes in from its own lane. */
function drawLanes({ lane, passing, joining }: GraphRow, lanes: number, symbol: string): string {
  const cells: string[] = Array.from({ length: 2 * lanes - 1 }, (_, at) =>
    passing.includes(at / 2) ? '│' : ' ',
  );
  const last = Math.max(lane, ...joining);
  const first = Math.min(lane, ...joining);
  for (let at = 2 * first; at <= 2 * last; at += 1) {
    if (joining.includes(at / 2)) cells[at] = at === 2 * last ? '╯' : at === 2 * first ? '╰' : '┴';
    else cells[at] = cells[at] === '│' ? '┼' : '─';
  }
  cells[2 * lane] = symbol;
  return cells.join('');
}
