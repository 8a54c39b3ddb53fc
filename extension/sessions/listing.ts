import { SESSION_STATUSES } from '../../protocol/entities.ts';
import type { Session, SessionStatus } from '../../protocol/entities.ts';

export type Group = 'active' | 'earlier' | 'unstarted';

/** What a person wants to see of all sessions. */
export interface Filter {
  /** Empty: all. */
  readonly statuses: readonly SessionStatus[];
  /** In names, profiles and what sessions are about, without regard to case. */
  readonly search: string;
  readonly archived: boolean;
}

export const NO_FILTER: Filter = { statuses: [], search: '', archived: false };

/** Those that a person may want to filter by. */
export function filterableStatuses(): SessionStatus[] {
  return SESSION_STATUSES.filter((status) => status !== 'deleted');
}

export function isFiltered({ statuses, search, archived }: Filter): boolean {
  return statuses.length > 0 || search !== '' || archived;
}

/** What a filter lets through, for a person. */
export function formatFilter({ statuses, search, archived }: Filter): string {
  const words = [archived ? 'archived' : '', ...statuses, search === '' ? '' : `“${search}”`];
  return words.filter((word) => word !== '').join(', ');
}

/** Active: has a sandbox, or is about to get one; earlier: there to come back to; unstarted: nothing has been asked of it yet. */
export function groupOf(
  session: Pick<Session, 'status' | 'about' | 'hydration' | 'runningTurn' | 'queuedTurns'>,
): Group {
  switch (session.status) {
    case 'created': {
      const isStarting =
        session.runningTurn !== null || session.queuedTurns > 0 || session.hydration !== null;
      if (isStarting) return 'active';
      // A fork is about what its session was about.
      return session.about === null ? 'unstarted' : 'earlier';
    }
    case 'active':
    case 'idle':
    case 'paused':
      return 'active';
    case 'resumable':
    case 'expired':
    case 'deleted':
      return 'earlier';
  }
}

/** The sessions of a group as they are shown: pinned ones first, then the latest. */
export function sessionsInGroup(sessions: readonly Session[], group: Group, filter: Filter): Session[] {
  return sessions.filter((session) => groupOf(session) === group && matches(session, filter)).sort(byRecency);
}

/** The one somebody most likely means comes first. */
export function byRecency(a: Session, b: Session): number {
  if (a.pinned !== b.pinned) return a.pinned ? -1 : 1;
  return a.lastActiveAt < b.lastActiveAt ? 1 : a.lastActiveAt > b.lastActiveAt ? -1 : 0;
}

function matches(session: Session, { statuses, search, archived }: Filter): boolean {
  if (session.status === 'deleted' || session.archived !== archived) return false;
  if (statuses.length > 0 && !statuses.includes(session.status)) return false;
  const text = [session.name, session.profile, session.about ?? '', session.lastPrompt ?? '', ...session.tags]
    .join('\n')
    .toLowerCase();
  return text.includes(search.toLowerCase());
}

/** What a person calls it: its name, or its profile's where nobody gave it one. */
export function sessionTitle({ id, name, profile }: Pick<Session, 'id' | 'name' | 'profile'>): string {
  return name === id ? profile : name;
}

/** Its profile where the title does not say it, else the end of its id, which tells it from others of that profile. */
export function sessionSubtitle({ id, name, profile }: Pick<Session, 'id' | 'name' | 'profile'>): string {
  return name === id ? id.slice(-4) : profile;
}

/** Icon and colour as VS Code names them. */
export function sessionIcon(session: Session): { readonly id: string; readonly color: string } {
  if (session.runningTurn !== null) return { id: 'loading~spin', color: 'charts.green' };
  switch (session.status) {
    case 'created':
      return { id: 'circle-outline', color: 'charts.blue' };
    case 'active':
      return { id: 'circle-filled', color: 'charts.green' };
    case 'idle':
      return { id: 'circle-filled', color: 'charts.blue' };
    case 'paused':
      return { id: 'debug-pause', color: 'charts.yellow' };
    case 'resumable':
      return { id: 'debug-continue', color: 'descriptionForeground' };
    case 'expired':
    case 'deleted':
      return { id: 'history', color: 'descriptionForeground' };
  }
}

/** Words that menus go by (`viewItem =~ /\brunning\b/`). */
export function menuContextOf(session: Session): string {
  return [
    'session',
    session.status,
    session.runningTurn === null ? 'quiet' : 'running',
    session.pinned ? 'pinned' : 'loose',
    session.archived ? 'archived' : 'kept',
  ].join(' ');
}

export function formatStatus(session: Session): string {
  if (session.runningTurn !== null) {
    return session.queuedTurns > 0 ? `running, ${session.queuedTurns} queued` : 'running';
  }
  if (session.hydration !== null) return session.hydration.failed === null ? 'being filled' : 'not filled';
  return session.status;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Bytes as people say them. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  if (bytes < 2 ** 20) return `${Math.round(bytes / 1024)} KB`;
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MB` : `${(bytes / 2 ** 30).toFixed(1)} GB`;
}

/** How long ago an ISO time is, as people say it; short, for lists. */
export function formatAge(time: string, now: number): string {
  const away = Math.max(0, now - Date.parse(time));
  if (away < MINUTE) return 'now';
  if (away < HOUR) return `${Math.floor(away / MINUTE)} min`;
  if (away < DAY) return `${Math.floor(away / HOUR)} h`;
  if (away < 30 * DAY) return `${Math.floor(away / DAY)} d`;
  return time.slice(0, 10);
}
