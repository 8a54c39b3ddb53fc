import { commands, workspace } from 'vscode';
import type { Disposable } from 'vscode';
import { SCHEME, locate } from '../files/location.ts';

/**
 * While this context key is set, the keys of *Go to File* and *Find in Files* run our commands: VS Code's own cannot
 * search a session.
 */
const CONTEXT = 'holdfast.sessionWindow';

/** The sessions whose workspace this window shows. */
export function sessionsInWindow(): ReadonlySet<string> {
  // By scheme first: `locate` loads the second bundle, which other windows do not need.
  const folders = (workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === SCHEME);
  const locations = folders.map(({ uri }) => locate(uri));
  return new Set(locations.flatMap((location) => (location.kind === 'nowhere' ? [] : [location.session])));
}

/** The session of a window that shows exactly one. Commands use it without asking. */
export function onlySessionInWindow(): string | undefined {
  const sessions = [...sessionsInWindow()];
  return sessions.length === 1 ? sessions[0] : undefined;
}

/** Whether every folder of the window is the workspace of a session. */
function isSessionWindow(): boolean {
  const folders = workspace.workspaceFolders ?? [];
  return folders.length > 0 && folders.every(({ uri }) => uri.scheme === SCHEME);
}

/** Keeps the context key up to date with the folders of the window. */
export function trackSessionWindow(): Disposable {
  const update = (): void => void commands.executeCommand('setContext', CONTEXT, isSessionWindow());
  update();
  return workspace.onDidChangeWorkspaceFolders(update);
}
