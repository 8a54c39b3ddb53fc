import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, test } from 'vitest';
import { createSupervisorPeer } from '../../../protocol/client/hello.ts';
import { HostState } from '../../../protocol/client/host-state.ts';
import type { EngineStatus, Session } from '../../../protocol/entities.ts';
import { HOST_METHODS } from '../../../protocol/host.ts';
import { NOTIFICATIONS } from '../../../protocol/methods.ts';
import { Peer } from '../../../protocol/wire/peer.ts';
import { EMPTY_MAP } from '../../../protocol/wire/shapes.ts';
import type { EmptyMap } from '../../../protocol/wire/shapes.ts';
import { hostHandlers } from '../../../supervisor/rpc/handlers/host.ts';
import { HostFeed } from '../../../supervisor/sessions/host-feed.ts';
import { sessionId, sessionRow } from '../../fixtures/store/temporary-home.ts';
import { SocketPairs, waitUntil } from '../../fixtures/protocol/peers.ts';
import { session } from '../../unit/extension/a-session.ts';

const sockets = new SocketPairs();
afterAll(() => sockets.dispose());

const ENGINE = { reachable: true, endpoint: '/e', source: 'default', why: null, next: null } as const;
const MANY = 200;

type HostPeer = Peer<typeof HOST_METHODS, EmptyMap, typeof NOTIFICATIONS>;

/** A feed over sessions in memory, and a way to connect to it. */
function host() {
  let lastSeq = 1;
  const view = (id: string): Session =>
    session({ id, lastSeq, tags: Array.from({ length: 32 }, () => 'x'.repeat(60)) });
  const all = Array.from({ length: MANY }, (_, n) => sessionId(n));
  const engine = {
    status: (): EngineStatus => ({ ...ENGINE, version: null, apiVersion: null, capabilities: null }),
  };
  const feed = new HostFeed({
    epoch: 1,
    sessions: { get: (id) => sessionRow(all.indexOf(id)), all: () => [] },
    profiles: { get: () => null, list: () => [] },
    views: {
      of: (row) => view(row.id),
      list: ({ limit = 100, cursor = '0' }) => {
        const end = Number(cursor) + limit;
        return {
          sessions: all.slice(Number(cursor), end).map(view),
          nextCursor: end < all.length ? String(end) : null,
        };
      },
    },
    engine,
  });
  const errors: unknown[] = [];
  const handlers = hostHandlers<HostPeer>(feed, (error) => errors.push(error));
  return {
    feed,
    errors,
    connect: async () => {
      const { near, far } = await sockets.pair();
      const server = new Peer({
        stream: far,
        name: 'a client',
        serves: HOST_METHODS,
        handlers,
        calls: EMPTY_MAP,
        sends: NOTIFICATIONS,
        receives: EMPTY_MAP,
        limits: { unreadNotifications: 2 ** 20 },
      });
      return { near, server };
    },
    changeAll: (): void => {
      lastSeq += 1;
      for (const id of all) feed.reportSession(id);
    },
    lastSeq: () => lastSeq,
  };
}

test('a client gets a snapshot, then changes, and continues with its next connection where it was', async () => {
  const { connect, changeAll, feed, lastSeq } = host();
  const state = new HostState();
  const first = await connect();
  const peer = createSupervisorPeer(first.near);
  peer.onNotification('host/changed', (part) => void state.apply(part));
  const { seq } = await peer.call('host/subscribe', {});
  await waitUntil(() => (state.position?.seq ?? -1) >= seq);
  expect(state.sessions).toHaveLength(MANY);
  changeAll();
  await waitUntil(() => state.sessions?.every((one) => one.lastSeq === lastSeq()) === true);
  peer.close();
  await first.server.closed;

  const { position } = state;
  feed.reportSession(sessionId(5));
  const second = createSupervisorPeer((await connect()).near);
  const received: number[] = [];
  second.onNotification('host/changed', ({ changes, isSnapshot }) => {
    received.push(isSnapshot ? -1 : changes.length);
  });
  await second.call('host/subscribe', position === undefined ? {} : { after: position });
  await waitUntil(() => received.length > 0);
  expect(received).toEqual([1]);
  second.close();
});

test('a client that never reads costs a bounded amount, keeps its connection and gets the latest states', async () => {
  const { connect, changeAll, lastSeq, errors } = host();
  const { near, server } = await connect();
  near.pause();
  near.write('{"jsonrpc":"2.0","id":1,"method":"host/subscribe","params":{}}\n');
  await sleep(100);
  // 200 rounds of 200 sessions with 2 KiB each: 80 MiB, of which 1 MiB may be unread.
  for (let round = 0; round < 200; round += 1) {
    changeAll();
    await sleep(1);
  }
  let isClosed = false;
  void server.closed.then(() => (isClosed = true));
  await sleep(100);
  expect(isClosed).toBe(false);
  expect(errors).toEqual([]);

  const state = new HostState();
  let bytes = 0;
  let text = '';
  near.on('data', (chunk: Buffer) => {
    bytes += chunk.byteLength;
    text += chunk.toString();
    const lines = text.split('\n');
    text = lines.pop() ?? '';
    for (const line of lines) {
      const message = JSON.parse(line) as { method?: string; params: unknown };
      if (message.method !== 'host/changed') continue;
      state.apply(NOTIFICATIONS['host/changed'].params.parse(message.params));
    }
  });
  near.resume();
  await waitUntil(() => state.sessions?.every((one) => one.lastSeq === lastSeq()) === true);
  expect(state.sessions).toHaveLength(MANY);
  expect(bytes).toBeLessThan(8 * 2 ** 20);
  server.close();
});
