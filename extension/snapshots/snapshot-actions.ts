import { randomUUID } from 'node:crypto';
import { FileType, commands, window, workspace } from 'vscode';
import type { QuickPickItem } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import { snapshotUri } from '../files/location.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { snapshotTitle } from './format.ts';
import { pickSnapshot } from './pick-snapshot.ts';

/** Deletes a snapshot after the person has confirmed it. Returns whether it is gone. */
export async function deleteSnapshot(
  connection: Connection,
  session: Session,
  given: unknown,
): Promise<boolean> {
  const snapshot = await pick(connection, session, 'Delete a snapshot of', given);
  if (snapshot === undefined) return false;
  const DELETE = 'Delete';
  const choice = await window.showWarningMessage(
    `Delete the snapshot “${sanitize(snapshotTitle(snapshot))}” of ${sanitize(sessionTitle(session))}?`,
    { modal: true, detail: 'It cannot be recovered. The files of the workspace stay as they are.' },
    DELETE,
  );
  if (choice !== DELETE) return false;
  await connection.of(session.id).call('snapshot/delete', {
    ...{ snapshot: snapshot.id, session: session.id, force: true, opId: randomUUID() },
  });
  window.setStatusBarMessage('The snapshot was deleted', 8_000);
  return true;
}

/** Pins a snapshot, or unpins it: a pinned one is never deleted automatically. `pinned`: by default the other state. */
export async function pinSnapshot(
  connection: Connection,
  session: Session,
  given: unknown,
  pinned: unknown,
): Promise<void> {
  const snapshot = await pick(connection, session, 'Pin or unpin a snapshot of', given);
  if (snapshot === undefined) return;
  const next = typeof pinned === 'boolean' ? pinned : !snapshot.pinned;
  await connection.of(session.id).call('snapshot/update', { snapshot: snapshot.id, pinned: next });
  window.setStatusBarMessage(
    next ? 'The snapshot is kept until you unpin it' : 'The snapshot is unpinned',
    8_000,
  );
}

/** Opens a file as it was in a snapshot. The person walks through its folders. */
export async function openSnapshotFile(
  connection: Connection,
  session: Session,
  given: unknown,
): Promise<void> {
  const snapshot = await pick(connection, session, 'Open a file of', given);
  if (snapshot === undefined) return;
  const at = (path: string) => snapshotUri(connection.of(session.id), snapshot.id, path);
  const title = sanitize(snapshotTitle(snapshot));
  let folder = WORKSPACE;
  for (;;) {
    const entries = await workspace.fs.readDirectory(at(folder));
    const picked = await window.showQuickPick(itemsOf(folder, entries), {
      title: `${title}: ${sanitize(folder, 200)}`,
      placeHolder: entries.length === 0 ? 'This folder is empty' : 'Choose a file or a folder',
    });
    if (picked === undefined) return;
    if (!picked.isFolder) {
      await commands.executeCommand('vscode.open', at(picked.path));
      return;
    }
    folder = picked.path;
  }
}

interface PathItem extends QuickPickItem {
  readonly path: string;
  readonly isFolder: boolean;
}

function itemsOf(folder: string, entries: readonly (readonly [string, FileType])[]): PathItem[] {
  const items = entries.map(([name, type]) => {
    const isFolder = type === FileType.Directory;
    return {
      label: `$(${isFolder ? 'folder' : 'file'}) ${label(name)}`,
      path: `${folder}/${name}`,
      isFolder,
    };
  });
  items.sort((a, b) => Number(b.isFolder) - Number(a.isFolder) || (a.path < b.path ? -1 : 1));
  const up = { label: '$(arrow-up) ..', path: folder.slice(0, folder.lastIndexOf('/')), isFolder: true };
  return folder === WORKSPACE ? items : [up, ...items];
}

/** A name as text: what looks like an icon in it is no icon. */
function label(name: string): string {
  return sanitize(name, 200).replaceAll('$(', '$ (');
}

async function pick(
  connection: Connection,
  session: Session,
  what: string,
  given: unknown,
): Promise<Snapshot | undefined> {
  const title = `${what} ${sanitize(sessionTitle(session))}`;
  const snapshot = await pickSnapshot(connection, session, { title, given });
  return snapshot === 'now' ? undefined : snapshot;
}
