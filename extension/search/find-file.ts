import { Disposable, window, workspace } from 'vscode';
import type { QuickPickItem, Range } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Connection } from '../connection/connection.ts';
import { lastName, uriOf } from '../files/location.ts';
import { inert } from '../inert.ts';
import { titleOf } from '../sessions/listing.ts';

const PAUSE_MS = 60;
const MOST = 200;

interface FileItem extends QuickPickItem {
  readonly path: string;
}

/** A list of the workspace's files that narrows while a person types; the sandbox's sidecar does the looking. */
export function findFile(connection: Connection, session: Session): void {
  const picker = window.createQuickPick<FileItem>();
  picker.title = `Files of ${inert(titleOf(session))}`;
  picker.placeholder = 'Letters of the path, in order';
  let looking: AbortController | undefined;
  let timer: NodeJS.Timeout | undefined;
  const look = async (query: string): Promise<void> => {
    looking?.abort();
    const mine = (looking = new AbortController());
    picker.busy = true;
    try {
      const { paths } = await connection.call(
        'files/find',
        { session: session.id, query, limit: MOST },
        { repeatable: true, signal: mine.signal },
      );
      if (!mine.signal.aborted) picker.items = paths.map(itemOf);
    } catch (error) {
      if (!mine.signal.aborted) picker.placeholder = inert(HoldfastError.from(error).sentence);
    } finally {
      if (looking === mine) picker.busy = false;
    }
  };
  const listeners = Disposable.from(
    picker.onDidChangeValue((query) => {
      clearTimeout(timer);
      timer = setTimeout(() => void look(query), PAUSE_MS);
    }),
    picker.onDidAccept(() => {
      const [picked] = picker.selectedItems;
      if (picked !== undefined) void open(session.id, picked.path);
      picker.hide();
    }),
    picker.onDidHide(() => {
      clearTimeout(timer);
      looking?.abort();
      listeners.dispose();
      picker.dispose();
    }),
  );
  picker.show();
  void look('');
}

function itemOf(path: string): FileItem {
  const folder = path.slice(WORKSPACE.length + 1, -lastName(path).length - 1);
  // VS Code's own filter knows less than the one that found them.
  return { label: inert(lastName(path)), description: inert(folder), path, alwaysShow: true };
}

export async function open(session: string, path: string, selection?: Range): Promise<void> {
  const document = await workspace.openTextDocument(uriOf(session, path));
  await window.showTextDocument(document, selection === undefined ? {} : { selection });
}
