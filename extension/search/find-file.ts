import {
  Disposable,
  QuickPickItemKind,
  Range,
  ThemeIcon,
  ViewColumn,
  commands,
  window,
  workspace,
} from 'vscode';
import type { QuickInputButton, QuickPick, QuickPickItem } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Connection } from '../connection/connection.ts';
import { baseName, workspaceUri } from '../files/location.ts';
import type { Homes } from '../files/location.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { isQuickOpenPrefix, parseFileQuery } from './file-query.ts';
import type { RecentFiles } from './recent-files.ts';
import { ALWAYS_EXCLUDED } from './search-query.ts';

const SEARCH_DELAY_MS = 60;
/** Keys pressed while VS Code's list replaces ours are lost, so it does when the person pauses. */
const QUICK_OPEN_DELAY_MS = 120;
const MAX_RESULTS = 200;
const MAX_RECENT = 12;

const TO_THE_SIDE: QuickInputButton = {
  iconPath: new ThemeIcon('split-horizontal'),
  tooltip: 'Open to the Side',
};

interface FileItem extends QuickPickItem {
  /** Undefined for a heading. */
  readonly path?: string;
}

/** *Go to File* for a session. The sidecar searches, so a large workspace costs no more than a small one. */
export class FileFinder implements Disposable {
  readonly #connection: Connection;
  readonly #recent: RecentFiles;
  #open: FilePicker | undefined;

  constructor(connection: Connection, recent: RecentFiles) {
    this.#connection = connection;
    this.#recent = recent;
  }

  /** If the list is already open, this activates its next entry, as VS Code's own key does. */
  show(session: Session): void {
    if (this.#open?.isOpen === true && this.#open.session === session.id) this.#open.next();
    else this.#open = new FilePicker(this.#connection, this.#recent, session);
  }

  dispose(): void {
    this.#open?.hide();
  }
}

/** One list of files that narrows while a person types. */
class FilePicker {
  readonly session: string;
  readonly #connection: Connection;
  readonly #recent: RecentFiles;
  readonly #picker: QuickPick<FileItem> = window.createQuickPick<FileItem>();
  #searching: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** The query whose results are shown. */
  #shown: string | undefined;
  /** The person pressed Enter before the results of the typed query arrived. */
  #isAccepted = false;
  isOpen = true;

  constructor(connection: Connection, recent: RecentFiles, session: Session) {
    this.#connection = connection;
    this.#recent = recent;
    this.session = session.id;
    const picker = this.#picker;
    picker.title = `Files of ${sanitize(sessionTitle(session))}`;
    picker.placeholder = 'Search files by name (append : to go to a line, or type ? for other lists)';
    const listeners = Disposable.from(
      picker.onDidChangeValue((value) => this.#typed(value)),
      picker.onDidAccept(() => this.#accept()),
      picker.onDidTriggerItemButton(({ item }) => this.#openFile(item, ViewColumn.Beside)),
      picker.onDidHide(() => {
        this.isOpen = false;
        clearTimeout(this.#timer);
        this.#searching?.abort();
        listeners.dispose();
        picker.dispose();
      }),
    );
    picker.show();
    void this.#search('');
  }

  hide(): void {
    this.#picker.hide();
  }

  /** Makes the next file of the list the active one. */
  next(): void {
    const files = this.#picker.items.filter(({ path }) => path !== undefined);
    const [active] = this.#picker.activeItems;
    const item = files[(active === undefined ? -1 : files.indexOf(active)) + 1] ?? files[0];
    if (item !== undefined) this.#picker.activeItems = [item];
  }

  #typed(value: string): void {
    this.#isAccepted = false;
    clearTimeout(this.#timer);
    if (isQuickOpenPrefix(value)) {
      this.#searching?.abort();
      this.#picker.items = [];
      this.#shown = undefined;
      this.#timer = setTimeout(() => this.#openQuickOpen(), QUICK_OPEN_DELAY_MS);
      return;
    }
    const { query } = parseFileQuery(value);
    if (query === this.#shown) {
      this.#searching?.abort();
      this.#picker.busy = false;
      return;
    }
    this.#timer = setTimeout(() => void this.#search(query), SEARCH_DELAY_MS);
  }

  /** Opens VS Code's own list, which hides this one. */
  #openQuickOpen(): void {
    clearTimeout(this.#timer);
    void commands.executeCommand('workbench.action.quickOpen', this.#picker.value);
  }

  async #search(query: string): Promise<void> {
    this.#searching?.abort();
    const mine = (this.#searching = new AbortController());
    const picker = this.#picker;
    picker.busy = true;
    try {
      const [{ paths }, recent] = await Promise.all([
        this.#connection.call(
          'files/find',
          { session: this.session, query, limit: MAX_RESULTS, hidden: true, exclude: [...ALWAYS_EXCLUDED] },
          { signal: mine.signal },
        ),
        query === '' ? this.#recentFiles() : Promise.resolve<string[]>([]),
      ]);
      if (mine.signal.aborted) return;
      const others = paths.filter((path) => !recent.includes(path));
      picker.items = [...section('recently opened', recent), ...section('files', others)];
      this.#shown = query;
      if (this.#isAccepted) this.#accept();
    } catch (error) {
      if (mine.signal.aborted) return;
      picker.items = [failureItem(HoldfastError.from(error, 'The files could not be searched'))];
      // What is typed next searches again.
      this.#shown = undefined;
    } finally {
      if (this.#searching === mine) picker.busy = false;
    }
  }

  /**
   * Opens the active file. While the list shows an earlier query, waits and opens the first result of the current one.
   */
  #accept(): void {
    if (isQuickOpenPrefix(this.#picker.value)) {
      this.#openQuickOpen();
      return;
    }
    const isCurrent = parseFileQuery(this.#picker.value).query === this.#shown;
    if (!isCurrent) {
      this.#isAccepted = true;
      return;
    }
    const first = this.#picker.items.find(({ path }) => path !== undefined);
    const item = this.#isAccepted ? first : (this.#picker.selectedItems[0] ?? this.#picker.activeItems[0]);
    if (item !== undefined) this.#openFile(item, ViewColumn.Active);
  }

  #openFile({ path }: FileItem, column: ViewColumn): void {
    if (path === undefined) return;
    const { position } = parseFileQuery(this.#picker.value);
    this.#picker.hide();
    const at = position === undefined ? undefined : ([position.line - 1, position.column - 1] as const);
    void openFile(
      this.#connection,
      this.session,
      path,
      at === undefined ? undefined : new Range(...at, ...at),
      column,
    );
  }

  /** The recent files that still exist. */
  async #recentFiles(): Promise<string[]> {
    const files = this.#recent.of(this.session).slice(0, MAX_RECENT);
    const there = await Promise.all(
      files.map(async ({ path }) => {
        try {
          await workspace.fs.stat(workspaceUri(this.#connection, this.session, path));
          return [path];
        } catch {
          return [];
        }
      }),
    );
    return there.flat();
  }
}

function section(heading: string, paths: readonly string[]): FileItem[] {
  if (paths.length === 0) return [];
  return [{ label: heading, kind: QuickPickItemKind.Separator }, ...paths.map(itemOf)];
}

/** Has no path, so choosing it opens nothing. */
function failureItem({ message, sentence }: HoldfastError): FileItem {
  return {
    label: sanitize(message),
    detail: sanitize(sentence),
    iconPath: new ThemeIcon('warning'),
    alwaysShow: true,
  };
}

function itemOf(path: string): FileItem {
  const folder = path.slice(WORKSPACE.length + 1, -baseName(path).length - 1);
  return {
    label: sanitize(baseName(path)),
    description: sanitize(folder),
    iconPath: ThemeIcon.File,
    buttons: [TO_THE_SIDE],
    path,
    // The sidecar has matched these paths. VS Code's own filter would drop some of them.
    alwaysShow: true,
  };
}

/** Opens a file in the editor for its type. VS Code shows the reason where it cannot. */
export async function openFile(
  home: Pick<Homes, 'of'>,
  session: string,
  path: string,
  selection?: Range,
  viewColumn = ViewColumn.Active,
): Promise<void> {
  await commands.executeCommand('vscode.open', workspaceUri(home, session, path), {
    viewColumn,
    ...(selection === undefined ? {} : { selection }),
  });
}
