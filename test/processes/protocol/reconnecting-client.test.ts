import { describe, expect, test } from 'vitest';
import { clientInfo } from '../../../cli/version.ts';
import { connectSupervisor } from '../../../protocol/client/connect.ts';
import { ReconnectingClient } from '../../../protocol/client/reconnecting-client.ts';
import type { ClientState, StartMode } from '../../../protocol/client/reconnecting-client.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

/** A client of the fake supervisor, with what it reports. It never starts a supervisor, but records that it would. */
function createClient(home: string) {
  const states: ClientState['kind'][] = [];
  const exits: boolean[] = [];
  const starts: StartMode[] = [];
  const client = new ReconnectingClient({
    connect: async (start) => {
      starts.push(start);
      return (await connectSupervisor({ home, program: clientInfo(), start: 'never' })).peer;
    },
    onState: ({ kind }) => states.push(kind),
    onLost: ({ isIntended }) => exits.push(isIntended),
  });
  return { client, states, exits, starts };
}

describe('a client that keeps connected', () => {
  test('connects again after a lost connection, and reports each state', async () => {
    const supervisor = await startFakeSupervisor({ ping: () => ({}) });
    const { client, states, exits } = createClient(supervisor.home);
    client.keepConnected();
    const first = await client.peer();
    await supervisor.dropClients();
    await first.closed;
    const second = await client.peer();
    expect(second).not.toBe(first);
    expect(await second.call('ping', {})).toEqual({});
    expect(states).toEqual(['connecting', 'connected', 'connecting', 'connected']);
    expect(exits).toEqual([false]);
    client.close();
  });

  test('fails at once with the reason while there is no supervisor, and connects when one is there', async () => {
    const supervisor = await startFakeSupervisor({ ping: () => ({}) });
    await supervisor.stop();
    const { client } = createClient(supervisor.home);
    client.keepConnected();
    await expect(client.peer()).rejects.toMatchObject({ code: 'not_found' });
    const away = client.state;
    expect(away).toMatchObject({ kind: 'away', error: { code: 'not_found' } });
    await expect(client.call('ping', {})).rejects.toMatchObject({ code: 'not_found' });
    expect(client.state).toBe(away);
    await supervisor.listen();
    client.retry();
    expect(await client.call('ping', {})).toEqual({});
    client.close();
  });

  test('does not start a supervisor that was stopped, and follows its successor', async () => {
    const supervisor = await startFakeSupervisor({ ping: () => ({}) });
    const { client, exits, starts, states } = createClient(supervisor.home);
    client.keepConnected();
    await client.peer();
    await supervisor.stop(new HoldfastError('shutting_down', 'The supervisor is shutting down'));
    await supervisor.listen();
    expect(await client.call('ping', {})).toEqual({});
    expect(exits).toEqual([true]);
    expect(starts.slice(1)).not.toContain('auto');
    expect(states).not.toContain('away');
    client.close();
  });

  test('reports a lost connection of somebody else, and keeps its own', async () => {
    const supervisor = await startFakeSupervisor({
      ping: () => ({}),
      'session/show': () => {
        throw new HoldfastError('connection_closed', 'The connection with the sidecar has ended');
      },
    });
    const { client } = createClient(supervisor.home);
    client.keepConnected();
    const peer = await client.peer();
    await expect(client.call('session/show', { session: 'a' })).rejects.toMatchObject({
      code: 'connection_closed',
    });
    expect(await client.peer()).toBe(peer);
    client.close();
  });

  test('ends its connection, its attempts and its waiting calls when it is closed', async () => {
    const supervisor = await startFakeSupervisor({ ping: () => ({}) });
    const { client } = createClient(supervisor.home);
    client.keepConnected();
    const waiting = client.peer();
    client.close();
    await expect(waiting).rejects.toMatchObject({ code: 'connection_closed' });
    await expect(client.call('ping', {})).rejects.toMatchObject({ code: 'connection_closed' });
    while (supervisor.clientCount > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  });
});

describe.each([['keeps connected'], ['connects when it is called']])('a client that %s', (kind) => {
  test('repeats by the table what the lost connection left without an answer', async () => {
    const answered = new Set<string>();
    const answerSecond = (method: string, peer: { close(): void }): void => {
      if (answered.has(method)) return;
      answered.add(method);
      peer.close();
    };
    const supervisor = await startFakeSupervisor({
      'session/verify': (_params, { peer }) => {
        answerSecond('session/verify', peer);
        const contents = { intact: 0, removed: 0, damaged: [] };
        return { ok: true, events: 1, head: 'h', firstInvalid: null, contents };
      },
      'session/delete': (_params, { peer }) => {
        answerSecond('session/delete', peer);
        return {};
      },
      'files/rename': (_params, { peer }) => {
        answerSecond('files/rename', peer);
        return {};
      },
    });
    const { client } = createClient(supervisor.home);
    if (kind === 'keeps connected') client.keepConnected();
    expect(await client.call('session/verify', { session: 'a' })).toMatchObject({ ok: true });
    await client.call('session/delete', { session: 'a', force: true, opId: 'delete-a' });
    const rename = client.call('files/rename', { session: 'a', from: '/workspace/a', to: '/workspace/b' });
    await expect(rename).rejects.toMatchObject({ code: 'connection_closed' });
    expect(supervisor.requestedMethods()).toEqual([
      'session/verify',
      'session/verify',
      'session/delete',
      'session/delete',
      'files/rename',
    ]);
    client.close();
  });
});
