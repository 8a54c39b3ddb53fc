import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import type { TestContext } from 'vitest';
import { connectSupervisor } from '../../../protocol/client/connect.ts';

const program = { name: 'test', version: '1.0.0', build: 'b', builtAt: 1 };
const item = { at: 1, seq: 1, time: '2026-01-01T00:00:00.000Z', turnId: null, contents: [], text: null };
const strange = { ...item, id: 1, type: 'mark', mark: 'teleported', cut: false };
const page = { items: [strange], before: null, after: null, queued: [], total: 1, seq: 1 };

/** A fake supervisor of the version: what it answers was recorded, and it sends a notification before each answer. */
async function supervisorOf(version: string, { onTestFinished }: Pick<TestContext, 'onTestFinished'>) {
  const home = mkdtempSync(join(tmpdir(), 'holdfast-newer-'));
  const answers: Record<string, unknown> = {
    hello: {
      protocolVersion: '1',
      supervisor: { ...program, name: 'supervisor', version, pid: 1, epoch: 1 },
      home,
      homeId: 'k2'.repeat(13),
      capabilities: { telepathy: true },
    },
    'conversation/read': page,
    'profile/list': { profiles: 'a stream of them' },
    ping: {},
  };
  const sockets: Socket[] = [];
  const server: Server = createServer((socket) => {
    sockets.push(socket);
    const say = (message: object): void =>
      void socket.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
    createInterface({ input: socket }).on('line', (line) => {
      const { id, method } = JSON.parse(line) as { id: number; method: string };
      if (method !== 'hello')
        say({ method: 'conversation/changed', params: { subscription: { nested: 'ids' }, items: [] } });
      say({ id, result: answers[method] });
    });
  });
  await new Promise<void>((resolve) => server.listen(join(home, 'supervisor.sock'), resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
    rmSync(home, { recursive: true });
  });
  const { peer } = await connectSupervisor({ home, start: 'never', program });
  onTestFinished(() => peer.close());
  return peer;
}

const session = 'ses-aaaaaaaaaaaaaaaa';

test('a newer supervisor is used as it is, also where it says what this version does not know', async (context) => {
  const peer = await supervisorOf('2.0.0', context);
  const { items } = await peer.call('conversation/read', { session });
  expect(items).toMatchObject([{ id: 1, type: 'mark', mark: 'newer', name: 'teleported' }]);
  await expect(peer.call('profile/list', {})).rejects.toMatchObject({
    code: 'version_mismatch',
    message: 'The answer of the supervisor to profile/list cannot be read',
    next: 'update this program',
  });
  // The connection goes on.
  expect(await peer.call('ping', {})).toEqual({});
});

test('a supervisor of the same version that says such things violates the protocol', async (context) => {
  const peer = await supervisorOf('1.0.0', context);
  await expect(peer.call('conversation/read', { session })).rejects.toMatchObject({
    code: 'connection_closed',
  });
  expect(peer.isClosed).toBe(true);
});
