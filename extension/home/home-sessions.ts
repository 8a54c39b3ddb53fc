import type { Session } from '../../protocol/entities.ts';
import { MAX_HOME_SESSIONS, NEEDS } from '../../webview/home-messages.ts';
import type { HomeSession, Need } from '../../webview/home-messages.ts';
import { byRecency, formatStatus, sessionTitle } from '../sessions/listing.ts';

/** Characters of what an agent or another machine wrote. */
const MAX_TEXT = 300;

export interface HomeSessions {
  /** By id, those that need a person first. */
  readonly shown: ReadonlyMap<string, HomeSession>;
  /** Further ones. */
  readonly left: number;
}

/** The sessions of the home page. `unreadOf`: how many turns have ended that nobody has looked at; `hostOf`: a session's host. */
export function homeSessions(
  sessions: readonly Session[],
  unreadOf: (id: string) => number,
  hostOf: (id: string) => string,
): HomeSessions {
  const needs = sessions
    .filter(({ status, archived }) => status !== 'deleted' && !archived)
    .map((session) => ({ session, need: needOf(session, unreadOf(session.id)) }))
    .sort((a, b) => NEEDS.indexOf(a.need) - NEEDS.indexOf(b.need) || byRecency(a.session, b.session));
  const shown = needs.slice(0, MAX_HOME_SESSIONS).map(({ session, need }): HomeSession => ({
    id: session.id,
    title: short(sessionTitle(session)),
    profile: short(session.profile),
    host: hostOf(session.id),
    need,
    reason: need !== 'waiting' ? null : session.waiting > 0 ? 'asks' : 'ended',
    status: formatStatus(session),
    prompt: session.lastPrompt === null ? null : short(session.lastPrompt),
    bytes: session.workspaceBytes,
    lastActiveAt: session.lastActiveAt,
    seq: session.lastSeq,
  }));
  return { shown: new Map(shown.map((one) => [one.id, one])), left: needs.length - shown.length };
}

/** A permission is asked while a turn runs; a turn that has ended counts once nothing runs any more. */
export function needOf(session: Session, unread: number): Need {
  const { waiting, runningTurn, queuedTurns, hydration, status } = session;
  if (waiting > 0) return 'waiting';
  if (runningTurn !== null || queuedTurns > 0) return 'running';
  if (unread > 0) return 'waiting';
  if (hydration !== null && hydration.failed === null) return 'running';
  return status === 'paused' ? 'paused' : 'earlier';
}

function short(text: string): string {
  return text.slice(0, MAX_TEXT);
}
