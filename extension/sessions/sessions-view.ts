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
import type { HostConnection } from '../connection/host-connection.ts';
import { LOCAL } from '../connection/host-name.ts';
import { hostStatus, hostTitle } from '../connection/host-status.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { formatAge } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import type { SessionList } from './session-list.ts';
import { sessionsInWindow } from './session-window.ts';
import {
  NO_FILTER,
  menuContextOf,
  formatFilter,
  groupOf,
  formatStatus,
  sessionFacts,
  sessionIcon,
  isFiltered,
  sessionsInGroup,
  sessionSubtitle,
  sessionTitle,
} from './listing.ts';
import type { Filter, Group } from './listing.ts';
import { SessionNodes } from './session-nodes.ts';
import type { HostNode, Node, SessionNode } from './session-nodes.ts';
import type { UnreadTurns } from './unread-turns.ts';
import { badgeOf, clickCommandOf } from './waiting.ts';

/** URIs of the entries, by which VS Code finds their badges. */
const SCHEME = 'holdfast-session';
/** How often ages such as `3 min` are updated. */
const REDRAW_MS = 60_000;
/** How long VS Code may take to report the selection, and how often it is checked. */
const SELECTION_TIMEOUT_MS = 1_000;
const SELECTION_POLL_MS = 20;
/** With more sessions than this the group *Not Started* is collapsed. */
const MAX_EXPANDED = 5;

const GROUPS: readonly Group[] = ['waiting', 'active', 'earlier', 'unstarted'];
const GROUP_NAMES: Readonly<Record<Group, string>> = {
  waiting: 'Waiting for you',
  active: 'Active',
  earlier: 'Earlier',
  unstarted: 'Not Started',
};

/** The view *Sessions* in the side bar. */
export class SessionsView implements TreeDataProvider<Node>, Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #unread: UnreadTurns;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Node[] | undefined>());
  /** By host. */
  readonly #nodes = new Map<string, SessionNodes>();
  readonly #badges = this.#owned.add(new EventEmitter<Uri[]>());
  readonly #hostNodes = new Map<string, HostNode>();
  readonly #view: TreeView<Node>;
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
    this.#owned.add(this.#view.onDidChangeVisibility(() => this.#connectIfVisible()));
    this.#owned.add(sessions.onDidChange((all) => this.#show(all)));
    this.#owned.add(
      connection.onDidChange(() => {
        this.#explain();
        this.#changed.fire(undefined);
      }),
    );
    this.#owned.add(connection.onDidChangeHosts(() => this.#changed.fire(undefined)));
    this.#owned.add(
      unread.onDidChange((ids) => {
        this.#badges.fire(ids.map(entryUri));
        // A screen reader reads the label, not the badge.
        this.#changed.fire(this.#rendered.filter(({ session }) => ids.includes(session.id)));
      }),
    );
    this.#owned.add(
      window.registerFileDecorationProvider({
        onDidChangeFileDecorations: this.#badges.event,
        provideFileDecoration: (uri) => this.#badge(uri),
      }),
    );
    const redraw = setInterval(() => {
      if (this.#view.visible) this.#changed.fire(this.#rendered);
    }, REDRAW_MS);
    this.#owned.onDispose(() => clearInterval(redraw));
    this.#connectIfVisible();
  }

  get onDidChangeTreeData(): Event<Node[] | undefined> {
    return this.#changed.event;
  }

  /** The entries that a key of the view applies to: the selected ones where there are several, else the focused one. */
  async selectedSessions(): Promise<readonly SessionNode[]> {
    const several = this.#view.selection.filter((node) => node.kind === 'session');
    if (several.length > 1) return several;
    // Arrow keys move the focus and leave the selection.
    await commands.executeCommand('list.selectAndPreserveFocus');
    // VS Code reports no selection while it reloads the entries.
    const deadline = performance.now() + SELECTION_TIMEOUT_MS;
    while (this.#view.selection.length === 0 && performance.now() < deadline) await sleep(SELECTION_POLL_MS);
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
    const { hosts, state } = this.#connection;
    if (hosts.length > 1) {
      if (parent === undefined) return hosts.map(({ name }) => this.#hostNode(name));
      return this.#childrenOn(parent.host, parent, this.#sessionsOf(parent.host));
    }
    const isReachable = state.kind !== 'noSupervisor';
    const sessions = isReachable ? (this.#sessions.current ?? (await this.#listFirst())) : [];
    return this.#childrenOn(LOCAL, parent, sessions);
  }

  #childrenOn(
    host: string,
    parent: Exclude<Node, SessionNode> | undefined,
    sessions: readonly Session[],
  ): Node[] {
    const nodes = this.#nodesOn(host);
    return parent?.kind === 'group'
      ? nodes.sessionNodes(parent.group, sessions, this.#filter)
      : nodes.groupNodes(sessions, this.#filter);
  }

  /** The same object each time, by which VS Code knows it. */
  #hostNode(host: string): HostNode {
    const node = this.#hostNodes.get(host) ?? { kind: 'host', host };
    this.#hostNodes.set(host, node);
    return node;
  }

  #nodesOn(host: string): SessionNodes {
    const nodes = this.#nodes.get(host) ?? new SessionNodes(host);
    this.#nodes.set(host, nodes);
    return nodes;
  }

  get #rendered(): SessionNode[] {
    return [...this.#nodes.values()].flatMap(({ rendered }) => rendered);
  }

  /** As last reported. */
  #sessionsOf(host: string): readonly Session[] {
    const all = this.#sessions.current ?? [];
    return this.#connection.known.length === 1
      ? all
      : all.filter(({ id }) => this.#connection.of(id).name === host);
  }

  getTreeItem(node: Node): TreeItem {
    if (node.kind === 'host') return hostItem(this.#connection.host(node.host));
    if (node.kind === 'group') {
      const { Collapsed, Expanded } = TreeItemCollapsibleState;
      const count = sessionsInGroup(this.#sessionsOf(node.host), node.group, this.#filter).length;
      const isCollapsed = node.group === 'unstarted' && count > MAX_EXPANDED;
      const item = new TreeItem(GROUP_NAMES[node.group], isCollapsed ? Collapsed : Expanded);
      if (isCollapsed) item.description = String(count);
      item.id = `${node.host}/${node.group}`;
      item.contextValue = 'group';
      return item;
    }
    const { session } = node;
    const item = new TreeItem(sanitize(sessionTitle(session)), TreeItemCollapsibleState.None);
    // The group is part of the id: VS Code may reload the new group of a session before the old one.
    item.id = `${groupOf(session)}/${session.id}`;
    item.resourceUri = entryUri(session.id);
    const { id, color } = sessionIcon(session);
    item.iconPath = new ThemeIcon(id, new ThemeColor(color));
    item.contextValue = menuContextOf(session);
    item.command = { ...clickCommandOf(session), arguments: [node] };
    const isInWindow = sessionsInWindow().has(session.id);
    const prompt = session.lastPrompt === null ? '' : ` · ${sanitize(session.lastPrompt, 60)}`;
    const marks = `${session.pinned ? ' · pinned' : ''}${isInWindow ? ' · this window' : ''}`;
    item.description = `${sessionSubtitle(session)}${prompt} · ${formatAge(session.lastActiveAt, Date.now())}${marks}`;
    item.tooltip = tooltipOf(session);
    const unread = this.#unread.countOf(session.id);
    const news = unread === 0 ? '' : `, ${formatUnread(unread)}`;
    item.accessibilityInformation = {
      label:
        `${sanitize(sessionTitle(session))}, ${formatStatus(session)}, profile ${session.profile}` +
        `${isInWindow ? ', this window' : ''}${news}`,
    };
    return item;
  }

  /** The first list, once there is a connection. Empty where there is none: the view shows the reason. */
  async #listFirst(): Promise<readonly Session[]> {
    try {
      await this.#connection.ready();
      return await this.#sessions.list();
    } catch {
      return [];
    }
  }

  #connectIfVisible(): void {
    if (this.#view.visible) this.#connection.ensureConnecting();
  }

  #show(sessions: readonly Session[]): void {
    this.#view.badge = badgeOf(sessions);
    this.#explain();
    const hosts = this.#connection.known;
    const changed = hosts.flatMap(({ name }): Node[] | undefined => {
      const nodes = this.#nodesOn(name).nodesToRefresh(this.#sessionsOf(name), this.#filter);
      return nodes ?? (hosts.length > 1 ? [this.#hostNode(name)] : undefined);
    });
    const isKnown = changed.every((node) => node !== undefined);
    if (!isKnown) this.#changed.fire(undefined);
    else if (changed.length > 0) this.#changed.fire(changed);
  }

  /**
   * Sets the message above the entries. Without entries there is none, because it would hide the welcome text of the
   * view.
   */
  #explain(): void {
    const current = this.#sessions.current ?? [];
    const isEmpty = GROUPS.every((group) => sessionsInGroup(current, group, this.#filter).length === 0);
    const parts = [
      this.#connection.state.kind === 'engineDown'
        ? 'Docker is not running. These are the last known states.'
        : '',
      isFiltered(this.#filter) ? `Filter: ${formatFilter(this.#filter)}` : '',
    ];
    this.#view.message = isEmpty ? '' : parts.filter((part) => part !== '').join(' ');
  }

  #badge(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== SCHEME) return undefined;
    const turns = this.#unread.countOf(uri.authority);
    if (turns === 0) return undefined;
    return new FileDecoration(
      turns > 9 ? '9+' : String(turns),
      formatUnread(turns),
      new ThemeColor('charts.blue'),
    );
  }
}

function formatUnread(turns: number): string {
  return `${turns} ${turns === 1 ? 'turn has' : 'turns have'} ended since you last opened it`;
}

/** VS Code finds the node of a host again by its id. */
function hostItem({ name, state }: HostConnection): TreeItem {
  const { text, tooltip, icon, isConnected } = hostStatus(state);
  const item = new TreeItem(hostTitle(name), TreeItemCollapsibleState.Expanded);
  item.id = `host/${name}`;
  item.description = text;
  item.iconPath = new ThemeIcon(name === LOCAL ? 'device-desktop' : icon);
  item.contextValue = name === LOCAL ? 'localHost' : `remoteHost ${isConnected ? 'online' : 'offline'}`;
  const lines = new MarkdownString();
  for (const line of tooltip) lines.appendText(`${line}\n`);
  item.tooltip = lines;
  item.accessibilityInformation = { label: `${hostTitle(name)}${text === '' ? '' : `, ${text}`}` };
  return item;
}

function entryUri(session: string): Uri {
  return Uri.from({ scheme: SCHEME, authority: session, path: '/' });
}

function tooltipOf(session: Session): MarkdownString {
  const text = new MarkdownString();
  for (const line of sessionFacts(session)) text.appendText(`${line}\n`);
  return text;
}
