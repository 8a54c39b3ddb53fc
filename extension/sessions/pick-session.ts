import { QuickPickItemKind, ThemeIcon, Uri, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { formatAge } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { HISTORY_SCHEME, MANIFEST_SCHEME } from '../files/location.ts';
import type { SessionList } from './session-list.ts';
import { byRecency, formatStatus, groupOf, sessionIcon, sessionSubtitle, sessionTitle } from './listing.ts';
import { onlySessionInWindow, sessionsInWindow } from './session-window.ts';

/** The targets of a command that works on several sessions: all selected entries, else the one that it was run on. */
export function commandTargets(target: unknown, selection: unknown): readonly unknown[] {
  const several = Array.isArray(selection) ? selection.filter((one) => sessionIdOf(one) !== undefined) : [];
  return several.length > 1 ? several : [target];
}

/** The session id in the argument of a command: an entry of the tree, its history, its review, or an id that a program gives. */
export function sessionIdOf(target: unknown): string | undefined {
  if (typeof target === 'string') return target;
  if (target instanceof Uri) {
    const isOfSession = [HISTORY_SCHEME, MANIFEST_SCHEME].includes(target.scheme);
    return isOfSession ? target.authority || undefined : undefined;
  }
  if (typeof target !== 'object' || target === null || !('session' in target)) return undefined;
  const { session } = target;
  return typeof session === 'object' && session !== null && 'id' in session && typeof session.id === 'string'
    ? session.id
    : undefined;
}

interface SessionItem extends QuickPickItem {
  readonly session?: Session;
}

/** The session that a command applies to: the one that it was given, else the one that a person picks. */
export async function pickSession(
  sessions: SessionList,
  target: unknown,
  options: {
    readonly title: string;
    readonly fits?: (session: Session) => boolean;
    /** In a window that shows exactly one session, take that one without asking. */
    readonly here?: boolean;
    /** The message where no session fits. */
    readonly none?: string;
  },
): Promise<Session | undefined> {
  const all = await sessions.list();
  const id = sessionIdOf(target) ?? (options.here === true ? onlySessionInWindow() : undefined);
  if (id !== undefined) {
    const found = all.find((session) => session.id === id);
    if (found === undefined) await sessions.requireNotMoved(id);
    return found;
  }
  const fitting = all
    .filter(
      (session) => session.status !== 'deleted' && !session.archived && (options.fits?.(session) ?? true),
    )
    .sort(byRecency);
  if (fitting.length === 0) {
    void window.showInformationMessage(
      all.length === 0
        ? 'There are no sessions yet.'
        : (options.none ?? `${options.title}: no session is in a state that allows this.`),
    );
    return undefined;
  }
  const here = sessionsInWindow();
  const items = [
    ...section(
      'In this window',
      fitting.filter((session) => here.has(session.id)),
    ),
    ...section(
      'Waiting for you',
      fitting.filter((session) => !here.has(session.id) && groupOf(session) === 'waiting'),
    ),
    ...section(
      'Active',
      fitting.filter((session) => !here.has(session.id) && groupOf(session) === 'active'),
    ),
    ...section(
      'Earlier',
      fitting.filter((session) => !here.has(session.id) && groupOf(session) === 'earlier'),
    ),
    ...section(
      'Not Started',
      fitting.filter((session) => !here.has(session.id) && groupOf(session) === 'unstarted'),
    ),
  ];
  const picked = await window.showQuickPick(items, {
    title: options.title,
    placeHolder: 'Choose a session',
    matchOnDescription: true,
    matchOnDetail: true,
  });
  return picked?.session;
}

function section(title: string, sessions: readonly Session[]): SessionItem[] {
  if (sessions.length === 0) return [];
  const now = Date.now();
  return [
    { label: title, kind: QuickPickItemKind.Separator },
    ...sessions.map((session) => ({
      label: sanitize(sessionTitle(session)),
      iconPath: new ThemeIcon(sessionIcon(session).id),
      description: `${sessionSubtitle(session)} · ${formatStatus(session)} · ${formatAge(session.lastActiveAt, now)}`,
      ...(session.lastPrompt === null ? {} : { detail: sanitize(session.lastPrompt, 100) }),
      session,
    })),
  ];
}
