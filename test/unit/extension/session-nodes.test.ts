import { beforeEach, describe, expect, test } from 'vitest';
import { NO_FILTER } from '../../../extension/sessions/listing.ts';
import { SessionNodes } from '../../../extension/sessions/session-nodes.ts';
import type { Session } from '../../../protocol/entities.ts';
import { session as sessionOf } from './a-session.ts';

const session = (id: string, more: Partial<Session> = {}): Session => sessionOf({ id, name: id, ...more });

const c = session('c', { status: 'resumable' });
const first = [session('a'), session('b'), c];
let nodes: SessionNodes;

/** As VS Code asks for the whole tree. */
function draw(sessions: readonly Session[]): void {
  for (const { group } of nodes.groupNodes(sessions, NO_FILTER))
    nodes.sessionNodes(group, sessions, NO_FILTER);
}

function idsBelow(group: 'active' | 'earlier', sessions: readonly Session[]): string[] {
  return nodes.sessionNodes(group, sessions, NO_FILTER).map((node) => node.session.id);
}

beforeEach(() => {
  nodes = new SessionNodes('local');
  draw(first);
});

describe('the nodes that VS Code has to reload', () => {
  test('are none if the same sessions are listed again', () => {
    expect(nodes.nodesToRefresh(structuredClone(first), NO_FILTER)).toEqual([]);
  });

  test('are the nodes of sessions that have changed, and they stay the same objects', () => {
    const b = nodes.rendered.find((node) => node.session.id === 'b');
    const now = [session('a'), session('b', { runningTurn: 'trn-1' }), c];
    const changed = nodes.nodesToRefresh(now, NO_FILTER);
    expect(changed).toHaveLength(1);
    expect(changed?.[0]).toBe(b);
    expect(b?.session.runningTurn).toBe('trn-1');
    expect(nodes.nodesToRefresh(now, NO_FILTER)).toEqual([]);
  });

  test('are the groups whose order or members have changed, until VS Code reloads them', () => {
    const now = [session('a'), session('b', { pinned: true }), c];
    const active = [{ kind: 'group', host: 'local', group: 'active' }];
    expect(nodes.nodesToRefresh(now, NO_FILTER)).toEqual(active);
    expect(nodes.nodesToRefresh(now, NO_FILTER)).toEqual(active);
    expect(idsBelow('active', now)).toEqual(['b', 'a']);
    expect(nodes.nodesToRefresh(now, NO_FILTER)).toEqual([]);
  });

  test('are both groups if a session moves from one to the other, and no node is in both', () => {
    const now = [session('a'), session('b', { status: 'resumable' }), c];
    const before = nodes.rendered.find((node) => node.session.id === 'b');
    expect(nodes.nodesToRefresh(now, NO_FILTER)).toEqual([
      { kind: 'group', host: 'local', group: 'active' },
      { kind: 'group', host: 'local', group: 'earlier' },
    ]);
    draw(now);
    const after = nodes.rendered.find((node) => node.session.id === 'b');
    expect(after).not.toBe(before);
    expect(before?.session.status).toBe('idle');
  });

  test('are the whole tree if a group appears or disappears', () => {
    expect(nodes.nodesToRefresh(first.slice(0, 2), NO_FILTER)).toBeUndefined();
    draw(first.slice(0, 2));
    expect(nodes.nodesToRefresh(first, NO_FILTER)).toBeUndefined();
    draw([]);
    expect(nodes.rendered).toEqual([]);
    expect(nodes.nodesToRefresh([], NO_FILTER)).toEqual([]);
  });
});
