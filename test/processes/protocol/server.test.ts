import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { createSupervisorPeer } from '../../../protocol/client/hello.ts';
import type { SupervisorPeer } from '../../../protocol/client/hello.ts';
import { dialAt } from '../../../protocol/client/socket.ts';
import type { HoldfastError } from '../../../protocol/errors.ts';
import { RpcServer } from '../../../supervisor/rpc/server.ts';
import type { RpcServerOptions } from '../../../supervisor/rpc/server.ts';
import type { ClientPeer, HandlerTable } from '../../../supervisor/rpc/handler-table.ts';
import { waitUntil } from '../../fixtures/protocol/peers.ts';

const root = mkdtempSync(join(tmpdir(), 'holdfast-rpc-'));
const client = { name: 'test', version: '1.0.0', build: 'b', builtAt: 1 };
const HOME_ID = 'k2'.repeat(13);
const hello = { client, protocolVersions: ['1'] };
let homes = 0;
let home = '';
let servers: RpcServer[] = [];

beforeEach(() => {
  home = join(root, String(homes++));
  mkdirSync(home, { mode: 0o700 });
});
afterEach(async () => {
  for (const server of servers) await server.close();
  servers = [];
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const place = () => ({ directory: home, name: 'supervisor.sock' });

async function serve(
  handlers: Partial<HandlerTable>,
  more: Partial<RpcServerOptions> = {},
): Promise<RpcServer> {
  const server = await RpcServer.listen({
    place: place(),
    identity: {
      supervisor: { ...client, name: 'supervisor', pid: 1, epoch: 1 },
      home,
      homeId: HOME_ID,
      capabilities: { terminals: true },
    },
    handlers: handlers as HandlerTable,
    onInternalError: () => undefined,
    ...more,
  });
  servers.push(server);
  return server;
}

async function dial(): Promise<SupervisorPeer> {
  return createSupervisorPeer(await dialAt(place()));
}

function codeOf(promise: Promise<unknown>): Promise<string | undefined> {
  return promise.then(
    () => undefined,
    (error: unknown) => (error as HoldfastError).code,
  );
}

test('before hello only ping and handover are served', async () => {
  await serve({
    ping: () => ({}),
    'profile/list': () => ({ profiles: [] }),
    'supervisor/handover': () => ({ leaving: false }),
  });
  const peer = await dial();
  expect(await codeOf(peer.call('profile/list', {}))).toBe('invalid_request');
  expect(await peer.call('ping', {})).toEqual({});
  expect(await peer.call('supervisor/handover', { to: client })).toEqual({ leaving: false });
  expect(await codeOf(peer.call('hello', { client, protocolVersions: ['0', '2'] }))).toBe('version_mismatch');
  expect(await codeOf(peer.call('profile/list', {}))).toBe('invalid_request');
  expect(await peer.call('hello', { client, protocolVersions: ['2', '1'] })).toMatchObject({
    protocolVersion: '1',
    home,
    homeId: HOME_ID,
    capabilities: { terminals: true },
  });
  expect(await peer.call('profile/list', {})).toEqual({ profiles: [] });
});

test('a client of another home is refused, but not one that writes the same path differently', async () => {
  await serve({});
  const peer = await dial();
  expect(await codeOf(peer.call('hello', { ...hello, home: root }))).toBe('invalid_state');
  expect(await codeOf(peer.call('hello', { ...hello, home: '/no/such/home' }))).toBe('invalid_state');
  symlinkSync(home, join(home, 'self'));
  expect((await peer.call('hello', { ...hello, home: join(home, 'self') })).home).toBe(home);
});

test('everything that belongs to a connection ends with it, and connections are counted', async () => {
  const subscribed = new Set<ClientPeer>();
  const server = await serve({
    'session/subscribe': (_params, { peer }) => {
      subscribed.add(peer);
      void peer.closed.then(() => subscribed.delete(peer));
      return { subscription: 'one', lastSeq: 0 };
    },
  });
  const [first, second] = [await dial(), await dial()];
  for (const peer of [first, second]) {
    await peer.call('hello', hello);
    await peer.call('session/subscribe', { session: 'a' });
  }
  expect([server.connections, subscribed.size]).toEqual([2, 2]);
  first.close();
  await waitUntil(() => server.connections === 1);
  expect(subscribed.size).toBe(1);
});

test('closing responds to pending requests, notifies every client and removes the socket', async () => {
  const server = await serve({ 'turn/wait': () => new Promise(() => undefined) });
  const peer = await dial();
  await peer.call('hello', hello);
  const waiting = codeOf(peer.call('turn/wait', { turn: 'turn-aaaaaaaaaaaaaaaa' }));
  await waitUntil(() => server.runningRequests === 1);
  await server.close();
  expect(await waiting).toBe('shutting_down');
  expect((await peer.closed)?.code).toBe('shutting_down');
  expect(server.connections).toBe(0);
  await expect(dialAt(place())).rejects.toMatchObject({ code: 'ENOENT' });
});

test('a response that is ready is sent before the connection closes', async () => {
  const server = await serve({
    'supervisor/handover': () => {
      setImmediate(() => void server.close());
      return { leaving: true };
    },
  });
  const peer = await dial();
  expect(await peer.call('supervisor/handover', { to: client })).toEqual({ leaving: true });
  expect((await peer.closed)?.code).toBe('shutting_down');
});

test('the stale socket of a killed supervisor is removed', async () => {
  writeFileSync(join(home, 'supervisor.sock'), 'left');
  await serve({ ping: () => ({}) });
  expect(await (await dial()).call('ping', {})).toEqual({});
});

test('a connection that never says hello is closed', async () => {
  const broken: HoldfastError[] = [];
  const server = await serve({}, { helloMs: 30, onConnectionBroken: (error) => broken.push(error) });
  const silent = await dial();
  const polite = await dial();
  await polite.call('hello', hello);
  expect((await silent.closed)?.code).toBe('timeout');
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(polite.isClosed).toBe(false);
  expect(server.connections).toBe(1);
  expect(broken.map(({ code }) => code)).toEqual(['timeout']);
});
