import { Uri, commands, window, workspace } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { rootUri } from '../files/location.ts';
import type { Homes } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from './listing.ts';
import { sessionsInWindow } from './session-window.ts';

const STATUS_MS = 10_000;

type Place = 'thisWindow' | 'newWindow' | 'add';

/**
 * Opens a session's workspace: in this window where it is empty, else where the person chooses. In an empty window
 * *add* opens it as the only folder, because VS Code does not trust the workspace file that it would create for several
 * folders. False where the person cancels.
 */
export async function openWorkspace(
  home: Pick<Homes, 'of'>,
  session: Session,
  wanted?: Place,
): Promise<boolean> {
  const uri = rootUri(home, session.id);
  if (sessionsInWindow().has(session.id) && wanted === undefined) {
    await commands.executeCommand('revealInExplorer', Uri.joinPath(uri, 'workspace'));
    return true;
  }
  const isEmpty = (workspace.workspaceFolders?.length ?? 0) === 0;
  const place = isEmpty && wanted !== 'newWindow' ? 'thisWindow' : (wanted ?? (await placeFor(session)));
  switch (place) {
    case undefined:
      return false;
    case 'add':
      await add(session, uri);
      return true;
    case 'thisWindow':
      await commands.executeCommand('vscode.openFolder', uri, { forceReuseWindow: true });
      return true;
    case 'newWindow':
      await commands.executeCommand('vscode.openFolder', uri, { forceNewWindow: true });
      return true;
  }
}

/** VS Code reports no error where it adds no folder, so this function finds out and reports it. */
async function add(session: Session, uri: Uri): Promise<void> {
  const name = sessionTitle(session);
  if (sessionsInWindow().has(session.id)) {
    await commands.executeCommand('revealInExplorer', Uri.joinPath(uri, 'workspace'));
    window.setStatusBarMessage(`${sanitize(name)} is already a folder of this window`, STATUS_MS);
    return;
  }
  const count = workspace.workspaceFolders?.length ?? 0;
  if (workspace.updateWorkspaceFolders(count, 0, { uri, name })) return;
  throw new HoldfastError('not_supported', `${sanitize(name)} was not added to this window`, {
    why: 'VS Code does not allow changes to the folders of this window now',
    next: 'open the workspace in a new window instead',
  });
}

async function placeFor(session: Session): Promise<Place | undefined> {
  const setting = workspace.getConfiguration('holdfast').get<string>('openWorkspaceIn', 'ask');
  if (setting === 'thisWindow' || setting === 'newWindow' || setting === 'add') return setting;
  const places: { label: string; description: string; place: Place }[] = [
    { label: 'New Window', description: 'beside this one', place: 'newWindow' },
    { label: 'This Window', description: 'replaces the current folder', place: 'thisWindow' },
    { label: 'Add to This Window', description: 'as an additional folder', place: 'add' },
  ];
  const picked = await window.showQuickPick(places, {
    title: 'Open Workspace',
    placeHolder: `Where should ${sanitize(sessionTitle(session))} open?`,
  });
  return picked?.place;
}
