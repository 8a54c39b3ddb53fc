import { commands, workspace } from 'vscode';
import type { Disposable } from 'vscode';
import { SCHEME } from '../files/location.ts';

/** Where it is set, keys such as that of *Go to File* lead to our commands: VS Code's own cannot search these folders. */
const CONTEXT = 'holdfast.sessionWindow';

/** Every folder of the window is the workspace of a session. */
export function isSessionWindow(): boolean {
  const folders = workspace.workspaceFolders ?? [];
  return folders.length > 0 && folders.every(({ uri }) => uri.scheme === SCHEME);
}

/** Keeps the context key true to the folders of the window. */
export function trackSessionWindow(): Disposable {
  const set = (): void => void commands.executeCommand('setContext', CONTEXT, isSessionWindow());
  set();
  return workspace.onDidChangeWorkspaceFolders(set);
}
