import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Answer, Purpose } from '../../../egress-proxy/wire.ts';
import { MessageChannel } from '../../../protocol/wire/message-channel.ts';
import { Multiplexer } from '../../../protocol/wire/multiplexer.ts';

const PROGRAM = join(import.meta.dirname, '../../../dist/runtime/egress-proxy.cjs');
/** Together more than all buffers on the way of the proxy's output. */
const PULSES = 8;
const MESSAGES = 4;
/** Time in which the proxy does what it can. A shorter one fails nothing: the test then shows less. */
const SETTLED_MS = 500;
const ECHO = 'x'.repeat(50_000);

test('a proxy whose output is full forwards its first plain request, once that is read again', async () => {
  const child = spawn(process.execPath, [PROGRAM], { env: {}, stdio: ['pipe', 'pipe', 'ignore'] });
  const carrier = Duplex.from({ readable: child.stdout, writable: child.stdin });
  const multiplexer = new Multiplexer({ carrier });
  const open = (purpose: Purpose): MessageChannel => {
    const channel = new MessageChannel(multiplexer.open());
    channel.on('error', () => channel.destroy());
    channel.send(purpose);
    channel.resume();
    return channel;
  };
  try {
    expect(await multiplexer.greeted).toBe(true);
    const client = open({ for: 'client', id: 1, session: 'ses-1' });
    client.write('GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n');
    expect((await once(client, 'message'))[0]).toMatchObject({ say: 'dial' });
    const pulses = Array.from({ length: PULSES }, () => open({ for: 'pulse' }));
    for (const pulse of pulses) {
      pulse.send({ echo: '' });
      await once(pulse, 'message');
    }

    carrier.pause();
    for (const pulse of pulses) {
      for (let sent = 0; sent < MESSAGES; sent += 1) pulse.send({ echo: ECHO });
    }
    // Streams take turns: the words of the client would arrive before those of the pulses.
    await sleep(SETTLED_MS);
    const server = open({ for: 'server', id: 1 });
    const request = once(server, 'data');
    const reset = once(client, 'message');
    client.send({ answer: 'dialled', tcp: false, ech: false } satisfies Answer);
    await sleep(SETTLED_MS);
    expect(child.stdout.readableLength).toBeGreaterThan(0);
    carrier.resume();

    const [said] = (await Promise.race([request, reset])) as unknown[];
    expect(String(said)).toContain('GET / HTTP/1.1');
  } finally {
    child.kill('SIGKILL');
  }
});
