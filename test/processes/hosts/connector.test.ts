import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'vitest';
import type { TestContext } from 'vitest';
import { Connector } from '../../../hosts/connector/connector.ts';
import { connectorFiles } from '../../../hosts/connector/connector-files.ts';
import { writeMessage } from '../../../hosts/connector/messages.ts';

/** A connector whose login never ends by itself. */
function given({ onTestFinished }: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-connector-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const files = connectorFiles(folder, 'far', '0'.repeat(16));
  const begun = Promise.withResolvers<AbortSignal>();
  const connector = new Connector({
    files,
    idleMs: 60_000,
    connect: (_onStage, signal) => {
      begun.resolve(signal);
      return new Promise((_, reject) =>
        signal.addEventListener('abort', () => reject(new Error('ssh was killed'))),
      );
    },
  });
  return {
    ran: connector.run(),
    begun: begun.promise,
    client: () => client(join(files.socket.directory, files.socket.name)),
  };
}

async function client(path: string): Promise<Socket> {
  for (;;) {
    const socket = connect(path).on('error', () => undefined);
    try {
      await once(socket, 'connect');
      return socket.resume();
    } catch {
      await sleep(10);
    }
  }
}

const WANT = { want: 'stream', path: '/supervisor', start: 'never', canAsk: false };

test('an attempt that nobody waits for any more is ended', async (context) => {
  const { ran, begun, client } = given(context);
  const [first, second] = [await client(), await client()];
  writeMessage(first, WANT);
  writeMessage(second, WANT);
  const signal = await begun;
  await sleep(50);
  first.destroy();
  await sleep(50);
  context.expect(signal.aborted).toBe(false);
  second.destroy();
  context.expect(await ran).toBe(true);
  context.expect(signal.aborted).toBe(true);
});

test('an attempt ends when the connector is stopped', async (context) => {
  const { ran, begun, client } = given(context);
  writeMessage(await client(), WANT);
  const signal = await begun;
  writeMessage(await client(), { want: 'stop' });
  context.expect(await ran).toBe(true);
  context.expect(signal.aborted).toBe(true);
});
