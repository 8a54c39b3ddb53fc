import { commands, window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import type { TurnPath } from '../../protocol/changes.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Connection } from '../connection/connection.ts';
import { workspaceUri } from '../files/location.ts';
import { snapshotsOfTurn } from '../snapshots/turn-snapshots.ts';

interface PathItem extends QuickPickItem {
  readonly path: string | null;
}

/** The snapshots around a turn to compare. Null if they were deleted: then what is stored has been shown. */
export async function showTurnChanges(
  { connection, session }: { readonly connection: Connection; readonly session: string },
  turnId: string,
): Promise<[before: string, after: string] | null> {
  const { before, after } = await snapshotsOfTurn(connection, session, turnId);
  if (after === null || (await areStored(connection, session, [before, after])))
    return [before, after ?? 'now'];
  await showStoredPaths(connection, session, turnId);
  return null;
}

/** Whether none of the snapshots has been deleted. */
async function areStored(connection: Connection, session: string, ids: readonly string[]): Promise<boolean> {
  try {
    await Promise.all(ids.map((snapshot) => connection.call('snapshot/show', { session, snapshot })));
    return true;
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'not_found') return false;
    throw error;
  }
}

/** Lists the paths that a turn changed, whose snapshots are gone. A choice opens the file as it is now. */
async function showStoredPaths(connection: Connection, session: string, turnId: string): Promise<void> {
  const { paths, omitted } = await connection.call('turn/changes', { turn: turnId });
  const items: PathItem[] = paths.map((one) => ({
    label: one.path.slice(WORKSPACE.length + 1) || one.path,
    description: descriptionOf(one),
    path: one.kind === 'deleted' || one.type !== 'file' ? null : one.path,
  }));
  if (omitted > 0) items.push({ label: `and ${omitted.toLocaleString('en-US')} more`, path: null });
  const chosen = await window.showQuickPick(items, {
    title: 'What the turn changed',
    placeHolder: 'Its snapshots were removed: choose a file to open it as it is now',
    matchOnDescription: true,
  });
  if (chosen === undefined || chosen.path === null) return;
  await commands.executeCommand('vscode.open', workspaceUri(connection, session, chosen.path));
}

function descriptionOf({ kind, oldPath, lines }: TurnPath): string {
  const from = oldPath === undefined ? '' : ` from ${oldPath.slice(WORKSPACE.length + 1)}`;
  const counts = lines === null ? '' : ` · +${lines.added} −${lines.removed}`;
  return `${kind === 'mode' ? 'mode or time' : kind}${from}${counts}`;
}
