import type { Session } from '../../protocol/entities.ts';
import type { Style } from './style.ts';
import type { Paint } from './style.ts';
import { formatRelativeTime, formatSize } from './quantity.ts';
import { formatFields, formatTable } from './table.ts';
import type { Column } from './table.ts';
import { pluralize } from './text.ts';

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

export function statusColor(session: Session, style: Style): Paint {
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

function fillingMark({ hydration }: Session): string {
  if (hydration === null) return '';
  return hydration.failed === null ? 'being filled' : 'not filled';
}

function fillingFact({ hydration }: Session): string | null {
  if (hydration === null) return null;
  const { snapshotId, failed } = hydration;
  return failed === null
    ? `being brought from ${snapshotId}`
    : `not all there: ${snapshotId} could not be brought (${failed.code}: ${failed.why}); the next use tries again`;
}

/** A throw-away is named by its id, which has a column of its own. */
function nameInList(session: Session): string {
  return session.autoRemove && session.name === session.id ? '(throw-away)' : session.name;
}

export interface SessionTableOptions {
  readonly style: Style;
  readonly now: number;
  readonly width: number;
}

/** The list as a person reads it: Active above Earlier, columns aligned across both. */
export function formatSessionList(sessions: readonly Session[], options: SessionTableOptions): string[] {
  const { style, now } = options;
  const columns: readonly Column<Session>[] = [
    { title: 'NAME', value: nameInList, paint: () => style.bold, shrinkPriority: 2 },
    { title: 'PROFILE', value: (session) => session.profile, shrinkPriority: 1 },
    { title: 'STATUS', value: (session) => session.status, paint: (session) => statusColor(session, style) },
    { title: 'LAST ACTIVE', value: (session) => formatRelativeTime(session.lastActiveAt, now) },
    {
      title: 'SIZE',
      value: (session) => (session.workspaceBytes === null ? '' : formatSize(session.workspaceBytes)),
      align: 'right',
    },
    { title: 'ID', value: (session) => session.id, paint: () => style.dim },
    { title: 'MARKS', value: marks, shrinkPriority: 3 },
    { title: 'ABOUT', value: (session) => session.about ?? '', paint: () => style.dim, shrinkPriority: 4 },
  ];
  const active = sessions.filter(isActive);
  const earlier = sessions.filter((session) => !isActive(session));
  // One table, so that both groups have the same columns; its lines are then dealt out.
  const [header = '', ...lines] = formatTable<Session>([...active, ...earlier], columns, {
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
  if (session.autoRemove) return 'thrown away after its turn';
  return session.persistent ? 'persistent' : 'ephemeral';
}

/** One session in full. */
export function formatSession(session: Session, style: Style, now: number): string[] {
  const when = (time: string) => `${formatRelativeTime(time, now)} (${time})`;
  return formatFields(
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
      ['Size', session.workspaceBytes === null ? 'not measured yet' : formatSize(session.workspaceBytes)],
      ['Running turn', session.runningTurn],
      ['Waiting turns', session.queuedTurns === 0 ? null : pluralize(session.queuedTurns, 'turn')],
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
