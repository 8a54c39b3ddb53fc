import { isDeepStrictEqual } from 'node:util';
import type { Session } from '../../protocol/entities.ts';
import { sessionsInGroup } from './listing.ts';
import type { Filter, Group } from './listing.ts';

/** A host, where the window knows more than one. */
export interface HostNode {
  readonly kind: 'host';
  readonly host: string;
}
export interface GroupNode {
  readonly kind: 'group';
  readonly host: string;
  readonly group: Group;
}
/** Stays the same object while its session stays in its group; `session` is updated in place. */
export interface SessionNode {
  readonly kind: 'session';
  session: Session;
}
export type Node = HostNode | GroupNode | SessionNode;

const GROUPS: readonly Group[] = ['waiting', 'active', 'earlier', 'unstarted'];

/**
 * The nodes that VS Code has rendered for one host. While VS Code reloads a node it knows none of its children, and keys and menus
 * do nothing. So we ask it to reload only what has changed.
 */
export class SessionNodes {
  readonly #all: readonly GroupNode[];
  #groups: readonly GroupNode[] = [];
  readonly #rendered = new Map<Group, readonly SessionNode[]>();

  constructor(host: string) {
    this.#all = GROUPS.map((group) => ({ kind: 'group', host, group }));
  }

  /** The groups that are not empty. */
  groupNodes(sessions: readonly Session[], filter: Filter): GroupNode[] {
    const groups = this.#groupsOf(sessions, filter);
    this.#groups = groups;
    return groups;
  }

  sessionNodes(group: Group, sessions: readonly Session[], filter: Filter): SessionNode[] {
    const before = new Map(this.#rendered.get(group)?.map((node) => [node.session.id, node]));
    const nodes = sessionsInGroup(sessions, group, filter).map((session): SessionNode => {
      const node = before.get(session.id);
      if (node === undefined) return { kind: 'session', session };
      node.session = session;
      return node;
    });
    this.#rendered.set(group, nodes);
    return nodes;
  }

  #groupsOf(sessions: readonly Session[], filter: Filter): GroupNode[] {
    return this.#all.filter(({ group }) => sessionsInGroup(sessions, group, filter).length > 0);
  }

  /** All session nodes, in the order of the tree. */
  get rendered(): SessionNode[] {
    return this.#groups.flatMap(({ group }) => [...(this.#rendered.get(group) ?? [])]);
  }

  /** The nodes that VS Code has to reload, possibly none; undefined: the whole tree. */
  nodesToRefresh(sessions: readonly Session[], filter: Filter): Node[] | undefined {
    const groups = this.#groupsOf(sessions, filter);
    if (!isDeepStrictEqual(groups, this.#groups)) return undefined;
    return groups.flatMap((node): Node[] => {
      const now = sessionsInGroup(sessions, node.group, filter);
      const rendered = this.#rendered.get(node.group) ?? [];
      if (!isDeepStrictEqual(idsOf(now), idsOf(rendered.map(({ session }) => session)))) return [node];
      return rendered.filter((child, index) => {
        const session = now[index] ?? child.session;
        const isChanged = !isDeepStrictEqual(session, child.session);
        child.session = session;
        return isChanged;
      });
    });
  }
}

function idsOf(sessions: readonly Session[]): string[] {
  return sessions.map(({ id }) => id);
}
