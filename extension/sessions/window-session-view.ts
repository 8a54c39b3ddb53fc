import { EventEmitter, ThemeColor, ThemeIcon, TreeItem, TreeItemCollapsibleState, window } from 'vscode';
import type { Disposable, Event, TreeDataProvider, TreeView } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { formatAge } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { formatStatus, menuContextOf, sessionIcon } from './listing.ts';
import { clickCommandOf } from './waiting.ts';
import type { WindowSession } from './window-session.ts';

/** How often ages such as `3 min` are updated. */
const REDRAW_MS = 60_000;

interface Row {
  readonly text: string;
  readonly description: string;
  readonly icon: ThemeIcon;
  readonly session: Session;
}

/**
 * A section of the Explorer that names the session of the window. VS Code heads the folder itself with its path, which
 * is `/` for every session, and an extension cannot change that.
 */
export class WindowSessionView implements TreeDataProvider<Row>, Disposable {
  readonly #windowSession: WindowSession;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<undefined>());
  readonly #view: TreeView<Row>;

  constructor(windowSession: WindowSession) {
    this.#windowSession = windowSession;
    this.#view = this.#owned.add(
      window.createTreeView<Row>('holdfast.windowSession', { treeDataProvider: this }),
    );
    this.#owned.add(windowSession.onDidChange(() => this.#show()));
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
    const { session } = this.#windowSession;
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
    item.command = { ...clickCommandOf(session), arguments: [session.id] };
    return item;
  }

  #show(): void {
    this.#view.title = this.#windowSession.name ?? 'Session';
    this.#changed.fire(undefined);
  }
}
