import { Uri, commands, window, workspace } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { rootOf } from '../files/location.ts';
import { inert } from '../inert.ts';
import { titleOf } from './listing.ts';
import { sessionsHere } from './pick.ts';

type Place = 'thisWindow' | 'newWindow' | 'add';

/**
 * Shows a session's workspace: here where the window shows nothing yet, else where the person wants it. To be the first of several folders it would
 * have to be part of a file that VS Code makes and does not trust. False where the person chose no place.
 */
export async function openWorkspace(session: Session, wanted?: Place): Promise<boolean> {
  const uri = rootOf(session.id);
  if (sessionsHere().has(session.id) && wanted === undefined) {
    await commands.executeCommand('revealInExplorer', Uri.joinPath(uri, 'workspace'));
    return true;
  }
  const isEmpty = (workspace.workspaceFolders?.length ?? 0) === 0;
  const place = isEmpty && wanted !== 'newWindow' ? 'thisWindow' : (wanted ?? (await placeFor(session)));
  switch (place) {
    case undefined:
      return false;
    case 'add':
      workspace.updateWorkspaceFolders(workspace.workspaceFolders?.length ?? 0, 0, {
        uri,
        name: titleOf(session),
      });
      return true;
    case 'thisWindow':
      await commands.executeCommand('vscode.openFolder', uri, { forceReuseWindow: true });
      return true;
    case 'newWindow':
      await commands.executeCommand('vscode.openFolder', uri, { forceNewWindow: true });
      return true;
  }
}

async function placeFor(session: Session): Promise<Place | undefined> {
  const setting = workspace.getConfiguration('holdfast').get<string>('openWorkspaceIn', 'ask');
  if (setting === 'thisWindow' || setting === 'newWindow' || setting === 'add') return setting;
  const places: { label: string; description: string; place: Place }[] = [
    { label: 'New Window', description: 'beside this one', place: 'newWindow' },
    { label: 'This Window', description: 'replaces the current folder', place: 'thisWindow' },
    { label: 'Add to This Window', description: 'as one more folder', place: 'add' },
  ];
  const picked = await window.showQuickPick(places, {
    title: 'Open Workspace',
    placeHolder: `Where should ${inert(titleOf(session))} open?`,
  });
  return picked?.place;
}
