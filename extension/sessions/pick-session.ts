import { QuickPickItemKind, ThemeIcon, window, workspace } from 'vscode';
import type { QuickPickItem } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { SCHEME, locate } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from './session-list.ts';
import {
  formatAge,
  byRecency,
  groupOf,
  sessionIcon,
  formatStatus,
  sessionSubtitle,
  sessionTitle,
} from './listing.ts';

/** What a command of several sessions is given: the entries that are selected where there are several, else the one. */
export function commandTargets(target: unknown, selection: unknown): readonly unknown[] {
  const several = Array.isArray(selection) ? selection.filter((one) => named(one) !== undefined) : [];
  return several.length > 1 ? several : [target];
}

/** What a command is given: an entry of the tree, an id by a program, or nothing. */
function named(target: unknown): string | undefined {
  if (typeof target === 'string') return target;
  if (typeof target !== 'object' || target === null || !('session' in target)) return undefined;
  const { session } = target;
  return typeof session === 'object' && session !== null && 'id' in session && typeof session.id === 'string'
    ? session.id
    : undefined;
}

/** The sessions whose workspace this window shows. */
export function sessionsInWindow(): ReadonlySet<string> {
  // By scheme first: to look into an address of ours loads what speaks with the supervisor.
  const folders = (workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === SCHEME);
  const locations = folders.map(({ uri }) => locate(uri));
  return new Set(locations.flatMap((location) => (location.kind === 'nowhere' ? [] : [location.session])));
}

/** Where a window shows one session and nothing else, nobody has to be asked which one is meant. */
export function onlySessionInWindow(): string | undefined {
  const here = [...sessionsInWindow()];
  return here.length === 1 ? here[0] : undefined;
}

interface SessionItem extends QuickPickItem {
  readonly session?: Session;
}

/** The session that a command is for: the one it was given, else the one that a person picks – recent ones first. */
export async function pickSession(
  sessions: SessionList,
  target: unknown,
  options: {
    readonly title: string;
    readonly fits?: (session: Session) => boolean;
    /** Where a window shows one session and no other folder of one, nobody is asked which one is meant. */
    readonly here?: boolean;
    /** What is said where none fits. */
    readonly none?: string;
  },
): Promise<Session | undefined> {
  const all = await sessions.list();
  const id = named(target) ?? (options.here === true ? onlySessionInWindow() : undefined);
  if (id !== undefined) return all.find((session) => session.id === id);
  const fitting = all
    .filter(
      (session) => session.status !== 'deleted' && !session.archived && (options.fits?.(session) ?? true),
    )
    .sort(byRecency);
  if (fitting.length === 0) {
    void window.showInformationMessage(
      all.length === 0
        ? 'There are no sessions yet.'
        : (options.none ?? `${options.title}: no session fits.`),
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
    placeHolder: 'Session',
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
