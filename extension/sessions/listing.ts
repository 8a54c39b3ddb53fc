import { sanitize } from '../base/sanitize.ts';
import { SESSION_STATUSES } from '../../protocol/entities.ts';
import { ancestorOf, beginningOf } from '../../protocol/origins.ts';
import type { Session, SessionStatus } from '../../protocol/entities.ts';

export type Group = 'waiting' | 'active' | 'earlier' | 'unstarted';

/** Which sessions the view shows. */
export interface Filter {
  /** Empty: all. */
  readonly statuses: readonly SessionStatus[];
  /** Text in the name, profile, tags or prompts; case does not matter. */
  readonly search: string;
  readonly archived: boolean;
}

export const NO_FILTER: Filter = { statuses: [], search: '', archived: false };

/** The states that a person can filter by. */
export function filterableStatuses(): SessionStatus[] {
  return SESSION_STATUSES.filter((status) => status !== 'deleted');
}

export function isFiltered({ statuses, search, archived }: Filter): boolean {
  return statuses.length > 0 || search !== '' || archived;
}

/** `archived, idle, “parser”` */
export function formatFilter({ statuses, search, archived }: Filter): string {
  const parts = [archived ? 'archived' : '', ...statuses, search === '' ? '' : `“${search}”`];
  return parts.filter((part) => part !== '').join(', ');
}

/**
 * `waiting`: its agent waits for a person's answer. `active`: has a sandbox, or is about to get one. `earlier`: can be resumed. `unstarted`: no turn has been started in
 * it.
 */
export function groupOf(
  session: Pick<Session, 'status' | 'about' | 'hydration' | 'runningTurn' | 'queuedTurns' | 'waiting'>,
): Group {
  if (session.waiting > 0) return 'waiting';
  switch (session.status) {
    case 'created': {
      const isStarting =
        session.runningTurn !== null || session.queuedTurns > 0 || session.hydration !== null;
      if (isStarting) return 'active';
      // A fork has the first prompt of the session that it was forked from.
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

/** The sessions of a group that pass the filter: pinned ones first, then the most recent. */
export function sessionsInGroup(sessions: readonly Session[], group: Group, filter: Filter): Session[] {
  return sessions.filter((session) => groupOf(session) === group && matches(session, filter)).sort(byRecency);
}

/** Orders pinned sessions first, then the most recently active. */
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

/** Its name, or its profile's where it was given none. */
export function sessionTitle({ id, name, profile }: Pick<Session, 'id' | 'name' | 'profile'>): string {
  return name === id ? profile : name;
}

/** The profile; where that is the title already, the end of the id, which differs between sessions of the profile. */
export function sessionSubtitle({ id, name, profile }: Pick<Session, 'id' | 'name' | 'profile'>): string {
  return name === id ? id.slice(-4) : profile;
}

/** The names of a VS Code icon and colour. */
export function sessionIcon(session: Session): { readonly id: string; readonly color: string } {
  if (session.waiting > 0) return { id: 'bell-dot', color: 'charts.yellow' };
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

/** The words that the menus of package.json match (`viewItem =~ /\brunning\b/`). */
export function menuContextOf(session: Session): string {
  return [
    'session',
    session.status,
    session.runningTurn === null ? 'notRunning' : 'running',
    session.pinned ? 'pinned' : 'unpinned',
    session.archived ? 'archived' : 'unarchived',
    ...(session.waiting > 0 ? ['waiting'] : []),
    ...(session.move?.state === 'leaving' ? ['leaving'] : []),
  ].join(' ');
}

export function formatStatus(session: Session): string {
  if (session.move !== null) {
    const words = { leaving: 'moving to', left: 'moved to', arriving: 'arriving from' };
    return `${words[session.move.state]} ${sanitize(session.move.with.name, 63)}`;
  }
  if (session.waiting > 0) return 'waiting for you';
  if (session.runningTurn !== null) {
    return session.queuedTurns > 0 ? `running, ${session.queuedTurns} queued` : 'running';
  }
  if (session.hydration !== null)
    return session.hydration.failed === null ? 'copying files' : 'files could not be copied';
  return session.status;
}

/** What the tooltip of a session says, a line each, sanitized. */
export function sessionFacts(session: Session): string[] {
  const { profile, about, lastPrompt, tags, author } = session;
  const began = beginningOf(session);
  const ancestor = ancestorOf(session);
  return [
    `${sanitize(sessionTitle(session))}, of ${profile} — ${formatStatus(session)}`,
    about === null ? '' : `First prompt: ${sanitize(about)}`,
    lastPrompt === null ? '' : `Last prompt: ${sanitize(lastPrompt)}`,
    `Created ${session.createdAt}${author === null ? '' : ` by ${sanitize(author)}`}`,
    began === null ? '' : `Began ${began}`,
    ancestor === null ? '' : `Lineage: ${ancestor}`,
    `Last active ${session.lastActiveAt}`,
    tags.length === 0 ? '' : `Tags: ${tags.map((tag) => sanitize(tag)).join(', ')}`,
    session.engineReachable ? '' : 'Docker does not answer. This is the last known state.',
    session.id,
  ].filter((line) => line !== '');
}
