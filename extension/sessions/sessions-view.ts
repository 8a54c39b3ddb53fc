import { setTimeout as sleep } from 'node:timers/promises';
import {
  EventEmitter,
  FileDecoration,
  MarkdownString,
  ThemeColor,
  ThemeIcon,
  TreeItem,
  TreeItemCollapsibleState,
  Uri,
  commands,
  window,
} from 'vscode';
import type { Disposable, Event, TreeDataProvider, TreeView } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from './session-list.ts';
import { sessionsInWindow } from './pick-session.ts';
import {
  NO_FILTER,
  formatAge,
  menuContextOf,
  formatFilter,
  groupOf,
  sessionIcon,
  isFiltered,
  sessionsInGroup,
  formatStatus,
  sessionSubtitle,
  sessionTitle,
} from './listing.ts';
import type { Filter, Group } from './listing.ts';
import { SessionNodes } from './session-nodes.ts';
import type { Node, SessionNode } from './session-nodes.ts';
import type { UnreadTurns } from './unread-turns.ts';

/** Addresses of sessions in the tree, so that badges find them. */
const SCHEME = 'holdfast-session';
/** Times like `3 min` go on while nothing else happens. */
const REDRAW_MS = 60_000;
/** How long VS Code is given to know again what is selected, and how often it is asked. */
const SELECTED_MS = 1_000;
const LOOK_MS = 20;
/** More sessions than this that nothing was asked of are folded away. */
const FEW = 5;

const GROUPS: readonly Group[] = ['active', 'earlier', 'unstarted'];
const GROUP_NAMES: Readonly<Record<Group, string>> = {
  active: 'Active',
  earlier: 'Earlier',
  unstarted: 'Not Started',
};

/** The sessions in the side bar: active ones, and those to come back to. */
export class SessionsView implements TreeDataProvider<Node>, Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #unread: UnreadTurns;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Node[] | undefined>());
  readonly #nodes = new SessionNodes();
  readonly #badges = this.#owned.add(new EventEmitter<Uri[]>());
  readonly #view: TreeView<Node>;
  #following: Disposable | undefined;
  #filter: Filter = NO_FILTER;

  constructor(connection: Connection, sessions: SessionList, unread: UnreadTurns) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#unread = unread;
    this.#view = this.#owned.add(
      window.createTreeView<Node>('holdfast.sessions', {
        treeDataProvider: this,
        showCollapseAll: false,
        canSelectMany: true,
      }),
    );
    this.#owned.add(this.#view.onDidChangeVisibility(({ visible }) => this.#follow(visible)));
    this.#owned.add(sessions.onDidChange((all) => this.#show(all)));
    this.#owned.add(
      connection.onDidChange(() => {
        this.#explain();
        this.#changed.fire(undefined);
      }),
    );
    this.#owned.add(
      unread.onDidChange((ids) => {
        this.#badges.fire(ids.map(addressOf));
        // Who does not see the badge is told by the label.
        this.#changed.fire(this.#nodes.rendered.filter(({ session }) => ids.includes(session.id)));
      }),
    );
    this.#owned.add(
      window.registerFileDecorationProvider({
        onDidChangeFileDecorations: this.#badges.event,
        provideFileDecoration: (uri) => this.#badge(uri),
      }),
    );
    const redraw = setInterval(() => {
      if (this.#view.visible) this.#changed.fire(this.#nodes.rendered);
    }, REDRAW_MS);
    this.#owned.onDispose(() => clearInterval(redraw));
    this.#owned.onDispose(() => this.#follow(false));
    this.#follow(this.#view.visible);
  }

  get onDidChangeTreeData(): Event<Node[] | undefined> {
    return this.#changed.event;
  }

  /** The entries that a key of the view means: those selected where there are several, else the one that the keyboard is on. */
  async selectedSessions(): Promise<readonly SessionNode[]> {
    const several = this.#view.selection.filter((node) => node.kind === 'session');
    if (several.length > 1) return several;
    // Arrows move the keyboard and leave the selection where it was.
    await commands.executeCommand('list.selectAndPreserveFocus');
    // VS Code does not know what is selected while it asks for the entries again.
    const limit = performance.now() + SELECTED_MS;
    while (this.#view.selection.length === 0 && performance.now() < limit) await sleep(LOOK_MS);
    return this.#view.selection.filter((node) => node.kind === 'session');
  }

  get filter(): Filter {
    return this.#filter;
  }

  set filter(filter: Filter) {
    this.#filter = filter;
    void commands.executeCommand('setContext', 'holdfast.filtered', isFiltered(filter));
    this.#explain();
    this.#changed.fire(undefined);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  async getChildren(parent?: Node): Promise<Node[]> {
    if (parent?.kind === 'session') return [];
    this.#connection.ensureConnecting();
    const isThere = this.#connection.state.kind !== 'noSupervisor';
    const sessions = isThere ? (this.#sessions.current ?? (await this.#firstLook())) : [];
    return parent === undefined
      ? this.#nodes.groupNodes(sessions, this.#filter)
      : this.#nodes.sessionNodes(parent.group, sessions, this.#filter);
  }

  getTreeItem(node: Node): TreeItem {
    if (node.kind === 'group') {
      const { Collapsed, Expanded } = TreeItemCollapsibleState;
      const many = sessionsInGroup(this.#sessions.current ?? [], node.group, this.#filter).length;
      const isFolded = node.group === 'unstarted' && many > FEW;
      const item = new TreeItem(GROUP_NAMES[node.group], isFolded ? Collapsed : Expanded);
      if (isFolded) item.description = String(many);
      item.id = node.group;
      item.contextValue = 'group';
      return item;
    }
    const { session } = node;
    const item = new TreeItem(sanitize(sessionTitle(session)), TreeItemCollapsibleState.None);
    // Of its group too: where it goes to the other one, VS Code may hear of that one first.
    item.id = `${groupOf(session)}/${session.id}`;
    item.resourceUri = addressOf(session.id);
    const { id, color } = sessionIcon(session);
    item.iconPath = new ThemeIcon(id, new ThemeColor(color));
    item.contextValue = menuContextOf(session);
    item.command = { command: 'holdfast.openSession', title: 'Open Session', arguments: [node] };
    const isHere = sessionsInWindow().has(session.id);
    const prompt = session.lastPrompt === null ? '' : ` · ${sanitize(session.lastPrompt, 60)}`;
    const marks = `${session.pinned ? ' · pinned' : ''}${isHere ? ' · this window' : ''}`;
    item.description = `${sessionSubtitle(session)}${prompt} · ${formatAge(session.lastActiveAt, Date.now())}${marks}`;
    item.tooltip = tooltipOf(session);
    const unread = this.#unread.countOf(session.id);
    const news = unread === 0 ? '' : `, ${unreadWords(unread)}`;
    item.accessibilityInformation = {
      label: `${sanitize(sessionTitle(session))}, ${formatStatus(session)}, profile ${session.profile}${isHere ? ', this window' : ''}${news}`,
    };
    return item;
  }

  /** The first answer, as soon as there is a connection; the state says why there is none. */
  async #firstLook(): Promise<readonly Session[]> {
    try {
      await this.#connection.ready();
      return await this.#sessions.list();
    } catch {
      return [];
    }
  }

  #follow(isVisible: boolean): void {
    if (isVisible) this.#following ??= this.#sessions.follow();
    else {
      void this.#following?.dispose();
      this.#following = undefined;
    }
  }

  #show(sessions: readonly Session[]): void {
    const running = sessions.filter(({ runningTurn }) => runningTurn !== null).length;
    this.#view.badge =
      running === 0
        ? undefined
        : { value: running, tooltip: running === 1 ? 'One turn is running' : `${running} turns are running` };
    void commands.executeCommand('setContext', 'holdfast.any', sessions.length > 0);
    this.#explain();
    const changed = this.#nodes.nodesToRefresh(sessions, this.#filter);
    if (changed === undefined || changed.length > 0) this.#changed.fire(changed);
  }

  /** Above sessions that are there all the same; where there are none, the view's own welcome says it, which a message would hide. */
  #explain(): void {
    const current = this.#sessions.current ?? [];
    const isAny = GROUPS.some((group) => sessionsInGroup(current, group, this.#filter).length > 0);
    const words = [
      this.#connection.state.kind === 'engineDown'
        ? 'Docker is not running: this is what was known last.'
        : '',
      isFiltered(this.#filter) ? `Only: ${formatFilter(this.#filter)}` : '',
    ];
    this.#view.message = !isAny ? '' : words.filter((word) => word !== '').join(' ');
  }

  #badge(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== SCHEME) return undefined;
    const turns = this.#unread.countOf(uri.authority);
    if (turns === 0) return undefined;
    return new FileDecoration(
      turns > 9 ? '9+' : String(turns),
      unreadWords(turns),
      new ThemeColor('charts.blue'),
    );
  }
}

function unreadWords(turns: number): string {
  return turns === 1 ? 'a turn has ended since you looked' : `${turns} turns have ended since you looked`;
}

function addressOf(session: string): Uri {
  return Uri.from({ scheme: SCHEME, authority: session, path: '/' });
}

function tooltipOf(session: Session): MarkdownString {
  const lines = [
    `${sanitize(sessionTitle(session))}, of ${session.profile} — ${formatStatus(session)}`,
    session.about === null ? '' : `First prompt: ${sanitize(session.about)}`,
    session.lastPrompt === null ? '' : `Last prompt: ${sanitize(session.lastPrompt)}`,
    `Last active ${session.lastActiveAt}`,
    session.tags.length === 0 ? '' : `Tags: ${session.tags.map((tag) => sanitize(tag)).join(', ')}`,
    session.engineReachable ? '' : 'Docker does not answer: this is what was known last.',
    session.id,
  ];
  const text = new MarkdownString();
  for (const line of lines.filter((one) => one !== '')) text.appendText(`${line}\n`);
  return text;
}
