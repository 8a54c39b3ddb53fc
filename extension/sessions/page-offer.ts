import { commands } from 'vscode';

/** The choice of a notification about a session that leads to its page. */
export const OPEN_PAGE = 'Open Session Page';

/** Opens the page of the session if that was chosen. */
export function openPageIf(choice: string | undefined, session: string): void {
  if (choice === OPEN_PAGE) void commands.executeCommand('holdfast.openSessionPage', session);
}
