import { isDeepStrictEqual } from 'node:util';
import type { Session } from '../../protocol/entities.ts';
import { sessionsInGroup } from './listing.ts';
import type { Filter, Group } from './listing.ts';

export interface GroupNode {
  readonly kind: 'group';
  readonly group: Group;
}
/** The same one for as long as its session stays in its group, with the session as it is now. */
export interface SessionNode {
  readonly kind: 'session';
  session: Session;
}
export type Node = GroupNode | SessionNode;

const GROUPS: readonly GroupNode[] = [
  { kind: 'group', group: 'active' },
  { kind: 'group', group: 'earlier' },
  { kind: 'group', group: 'unstarted' },
];

/**
 * What VS Code knows of the tree. While it asks for entries again it knows of none below them, and a key or a menu would mean nothing, so it is
 * to ask for no more than has changed.
 */
export class SessionNodes {
  #groups: readonly GroupNode[] = [];
  readonly #drawn = new Map<Group, readonly SessionNode[]>();

  /** Headings that have something below them. */
  groupNodes(sessions: readonly Session[], filter: Filter): GroupNode[] {
    const groups = groupsOf(sessions, filter);
    this.#groups = groups;
    return groups;
  }

  sessionNodes(group: Group, sessions: readonly Session[], filter: Filter): SessionNode[] {
    const before = new Map(this.#drawn.get(group)?.map((node) => [node.session.id, node]));
    const nodes = sessionsInGroup(sessions, group, filter).map((session): SessionNode => {
      const node = before.get(session.id);
      if (node === undefined) return { kind: 'session', session };
      node.session = session;
      return node;
    });
    this.#drawn.set(group, nodes);
    return nodes;
  }

  /** Those of sessions, as they are drawn. */
  get rendered(): SessionNode[] {
    return this.#groups.flatMap(({ group }) => [...(this.#drawn.get(group) ?? [])]);
  }

  /** What has to be drawn again, maybe nothing; undefined: all of it. */
  nodesToRefresh(sessions: readonly Session[], filter: Filter): Node[] | undefined {
    const groups = groupsOf(sessions, filter);
    if (!isDeepStrictEqual(groups, this.#groups)) return undefined;
    return groups.flatMap((node): Node[] => {
      const now = sessionsInGroup(sessions, node.group, filter);
      const drawn = this.#drawn.get(node.group) ?? [];
      if (!isDeepStrictEqual(idsOf(now), idsOf(drawn.map(({ session }) => session)))) return [node];
      return drawn.filter((one, at) => {
        const session = now[at] ?? one.session;
        const isOther = !isDeepStrictEqual(session, one.session);
        one.session = session;
        return isOther;
      });
    });
  }
}

function groupsOf(sessions: readonly Session[], filter: Filter): GroupNode[] {
  return GROUPS.filter(({ group }) => sessionsInGroup(sessions, group, filter).length > 0);
}

function idsOf(sessions: readonly Session[]): string[] {
  return sessions.map(({ id }) => id);
}
