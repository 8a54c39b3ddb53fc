import { commands, workspace } from 'vscode';
import type { Disposable } from 'vscode';
import { SCHEME, SNAPSHOT_SCHEME } from '../files/location.ts';

/**
 * Keeps the context key `holdfast.window` up to date. `session`: the window shows only the folder of a session or a
 * snapshot, so that folder's settings apply to new terminals. `mixed`: it shows other folders too. `other`: it shows no
 * such folder.
 */
export function trackWindowKind(): Disposable {
  const update = (): void => void commands.executeCommand('setContext', 'holdfast.window', windowKind());
  update();
  return workspace.onDidChangeWorkspaceFolders(update);
}

function windowKind(): 'session' | 'mixed' | 'other' {
  const folders = workspace.workspaceFolders ?? [];
  if (!folders.some(({ uri: { scheme } }) => scheme === SCHEME || scheme === SNAPSHOT_SCHEME)) return 'other';
  return folders.length === 1 && workspace.workspaceFile === undefined ? 'session' : 'mixed';
}
