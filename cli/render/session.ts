import type { Session } from '../../protocol/entities.ts';
import type { Style } from './style.ts';
import type { Paint } from './style.ts';
import { relativeTime, size } from './quantity.ts';
import { facts, table } from './table.ts';
import type { Column } from './table.ts';
import { count } from './text.ts';

/** Everything that has, or may get back at once, a running sandbox; the rest is history to come back to. */
export function isActive(session: Session): boolean {
  switch (session.status) {
    case 'created':
    case 'active':
    case 'idle':
    case 'paused':
      return true;
    case 'resumable':
    case 'expired':
    case 'deleted':
      return false;
  }
}

export function statusPaint(session: Session, style: Style): Paint {
  switch (session.status) {
    case 'active':
      return style.green;
    case 'created':
    case 'idle':
      return style.cyan;
    case 'paused':
      return style.yellow;
    case 'resumable':
    case 'expired':
    case 'deleted':
      return style.dim;
  }
}

function marks(session: Session): string {
  const queued = session.queuedTurns > 0 ? `${session.queuedTurns} queued` : '';
  return [
    session.pinned ? 'pinned' : '',
    session.starred ? 'starred' : '',
    session.archived ? 'archived' : '',
    ...session.tags.map((tag) => `#${tag}`),
    queued,
    fillingMark(session),
    session.engineReachable ? '' : 'engine unreachable',
  ]
    .filter((mark) => mark !== '')
    .join(' ');
}

function fillingMark({ filling }: Session): string {
  if (filling === null) return '';
  return filling.failed === null ? 'being filled' : 'not filled';
}

function fillingFact({ filling }: Session): string | null {
  if (filling === null) return null;
  const { snapshotId, failed } = filling;
  return failed === null
    ? `being brought from ${snapshotId}`
    : `not all there: ${snapshotId} could not be brought (${failed.code}: ${failed.why}); the next use tries again`;
}

/** A throw-away is named by its id, which has a column of its own. */
function nameInList(session: Session): string {
  return session.throwaway && session.name === session.id ? '(throw-away)' : session.name;
}

export interface SessionTableOptions {
  readonly style: Style;
  readonly now: number;
  readonly width: number;
}

/** The list as a person reads it: Active above Earlier, columns aligned across both. */
export function sessionLists(sessions: readonly Session[], options: SessionTableOptions): string[] {
  const { style, now } = options;
  const columns: readonly Column<Session>[] = [
    { title: 'NAME', value: nameInList, paint: () => style.bold, giveWay: 2 },
    { title: 'PROFILE', value: (session) => session.profile, giveWay: 1 },
    { title: 'STATUS', value: (session) => session.status, paint: (session) => statusPaint(session, style) },
    { title: 'LAST ACTIVE', value: (session) => relativeTime(session.lastActiveAt, now) },
    {
      title: 'SIZE',
      value: (session) => (session.workspaceBytes === null ? '' : size(session.workspaceBytes)),
      align: 'right',
    },
    { title: 'ID', value: (session) => session.id, paint: () => style.dim },
    { title: 'MARKS', value: marks, giveWay: 3 },
    { title: 'ABOUT', value: (session) => session.about ?? '', paint: () => style.dim, giveWay: 4 },
  ];
  const active = sessions.filter(isActive);
  const earlier = sessions.filter((session) => !isActive(session));
  // One table, so that both groups have the same columns; its lines are then dealt out.
  const [header = '', ...lines] = table<Session>([...active, ...earlier], columns, {
    width: options.width,
    header: style.dim,
  });
  const section = (title: string, rows: readonly string[]) =>
    rows.length === 0 ? [] : [style.bold(title), header, ...rows];
  const upper = section('Active', lines.slice(0, active.length));
  const lower = section('Earlier', lines.slice(active.length));
  return upper.length > 0 && lower.length > 0 ? [...upper, '', ...lower] : [...upper, ...lower];
}

function workspaceKind(session: Session): string {
  if (session.throwaway) return 'thrown away after its turn';
  return session.persistent ? 'persistent' : 'ephemeral';
}

/** One session in full. */
export function sessionFacts(session: Session, style: Style, now: number): string[] {
  const when = (time: string) => `${relativeTime(time, now)} (${time})`;
  return facts(
    [
      ['Name', session.name],
      ['Id', session.id],
      ['Profile', session.profile],
      [
        'Status',
        `${session.status}${session.engineReachable ? '' : ' when last seen; the engine cannot be reached now'}`,
      ],
      ['About', session.about],
      ['Created', when(session.createdAt)],
      ['Last active', when(session.lastActiveAt)],
      ['Expires', session.expiresAt === null ? null : when(session.expiresAt)],
      ['Workspace', `${workspaceKind(session)}, ${session.backing}`],
      ['Files', fillingFact(session)],
      ['Size', session.workspaceBytes === null ? 'not measured yet' : size(session.workspaceBytes)],
      ['Running turn', session.runningTurn],
      ['Waiting turns', session.queuedTurns === 0 ? null : count(session.queuedTurns, 'turn')],
      [
        'Model',
        session.model === null ? null : `${session.model} (stored; not given to the agent by this version)`,
      ],
      ['Marks', marks(session)],
      ['Events', String(session.lastSeq)],
    ],
    style.dim,
  );
}
