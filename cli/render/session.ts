import type { Session } from '../../protocol/entities.ts';
import type { Style } from './style.ts';
import type { Paint } from './style.ts';
import { ancestorOf, beginningOf } from '../../protocol/origins.ts';
import { formatRelativeTime, formatSize } from './quantity.ts';
import { formatFields, formatTable } from './table.ts';
import type { Column } from './table.ts';
import { pluralize } from './text.ts';

/** Whether the session has a sandbox, or can get one back immediately. */
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
    moveMark(session),
    hydrationMark(session),
    session.engineReachable ? '' : 'engine unreachable',
  ]
    .filter((mark) => mark !== '')
    .join(' ');
}

function moveMark({ move }: Session): string {
  if (move === null) return '';
  const { state, with: other } = move;
  if (state === 'arriving') return `arriving from ${other.name}`;
  return state === 'leaving' ? `moving to ${other.name}` : `moved to ${other.name}`;
}

function hydrationMark({ hydration }: Session): string {
  if (hydration === null) return '';
  return hydration.failed === null ? 'copying files' : 'copying failed';
}

function hydrationText({ hydration }: Session): string | null {
  if (hydration === null) return null;
  const { snapshotId, failed } = hydration;
  return failed === null
    ? `being copied from ${snapshotId}`
    : `incomplete: copying from ${snapshotId} failed (${failed.code}: ${failed.why}); the next use of the session retries`;
}

/** A temporary session has its id for a name, and the id has its own column. */
function nameInList(session: Session): string {
  return session.autoRemove && session.name === session.id ? '(temporary)' : session.name;
}

export interface SessionTableOptions {
  readonly style: Style;
  readonly now: number;
  readonly width: number;
}

/** The list of sessions: active ones above earlier ones, with the same columns. */
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
  // Format one table, so that both groups have the same columns, then split its lines.
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
  if (session.autoRemove) return 'temporary, deleted after its turn';
  return session.persistent ? 'persistent' : 'ephemeral';
}

/** All details of a session, a line each. */
export function formatSession(session: Session, style: Style, now: number): string[] {
  const when = (time: string) => `${formatRelativeTime(time, now)} (${time})`;
  return formatFields(
    [
      ['Name', session.name],
      ['Id', session.id],
      ['Profile', session.profile],
      [
        'Status',
        `${session.status}${session.engineReachable ? '' : ' (last known; the engine cannot be reached)'}`,
      ],
      ['About', session.about],
      ['Created', `${when(session.createdAt)}${session.author === null ? '' : ` by ${session.author}`}`],
      ['Began', beginningOf(session)],
      ['Lineage', ancestorOf(session)],
      ['Last active', when(session.lastActiveAt)],
      ['Expires', session.expiresAt === null ? null : when(session.expiresAt)],
      ['Workspace', `${workspaceKind(session)}, ${session.backing}`],
      ['Files', hydrationText(session)],
      ['Size', session.workspaceBytes === null ? 'not measured yet' : formatSize(session.workspaceBytes)],
      ['Running turn', session.runningTurn],
      ['Queued turns', session.queuedTurns === 0 ? null : pluralize(session.queuedTurns, 'turn')],
      ['Model', session.model === null ? null : `${session.model} (for agents that let it be chosen)`],
      ['Marks', marks(session)],
      ['Events', String(session.lastSeq)],
    ],
    style.dim,
  );
}
