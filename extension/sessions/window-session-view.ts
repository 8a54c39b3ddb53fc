import { EventEmitter, ThemeColor, ThemeIcon, TreeItem, TreeItemCollapsibleState, window } from 'vscode';
import type { Disposable, Event, TreeDataProvider, TreeView } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import { formatAge, menuContextOf, sessionIcon, formatStatus } from './listing.ts';
import type { WindowSession } from './window-session.ts';

/** Times like `3 min` go on while nothing else happens. */
const REDRAW_MS = 60_000;

interface Row {
  readonly text: string;
  readonly description: string;
  readonly icon: ThemeIcon;
  readonly session: Session;
}

/**
 * A section of the Explorer that says whose files it shows. VS Code heads the folder itself with its path, which is `/` for every
 * session, and no extension can give it another name.
 */
export class WindowSessionView implements TreeDataProvider<Row>, Disposable {
  readonly #here: WindowSession;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<undefined>());
  readonly #view: TreeView<Row>;

  constructor(here: WindowSession) {
    this.#here = here;
    this.#view = this.#owned.add(
      window.createTreeView<Row>('holdfast.windowSession', { treeDataProvider: this }),
    );
    this.#owned.add(here.onDidChange(() => this.#show()));
    const redraw = setInterval(() => {
      if (this.#view.visible) this.#changed.fire(undefined);
    }, REDRAW_MS);
    this.#owned.onDispose(() => clearInterval(redraw));
    this.#show();
  }

  get onDidChangeTreeData(): Event<undefined> {
    return this.#changed.event;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  getChildren(parent?: Row): Row[] {
    const { session } = this.#here;
    if (parent !== undefined || session === undefined) return [];
    const { id, color } = sessionIcon(session);
    const state: Row = {
      text: formatStatus(session),
      description: formatAge(session.lastActiveAt, Date.now()),
      icon: new ThemeIcon(id, new ThemeColor(color)),
      session,
    };
    if (session.lastPrompt === null) return [state];
    const prompt: Row = {
      text: sanitize(session.lastPrompt, 100),
      description: 'last prompt',
      icon: new ThemeIcon('comment-discussion'),
      session,
    };
    return [state, prompt];
  }

  getTreeItem({ text, description, icon, session }: Row): TreeItem {
    const item = new TreeItem(text, TreeItemCollapsibleState.None);
    item.description = description;
    item.iconPath = icon;
    item.contextValue = menuContextOf(session);
    item.command = { command: 'holdfast.openSession', title: 'Open Session', arguments: [session.id] };
    return item;
  }

  #show(): void {
    this.#view.title = this.#here.name ?? 'Session';
    this.#changed.fire(undefined);
  }
}
