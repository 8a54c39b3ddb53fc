import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createConnection, createServer, type Socket } from 'node:net';
import { once } from 'node:events';
import { performServerHandshake } from 'node:http2';
import type { ServerHttp2Stream } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { StreamClient } from '../../../hosts/base/streams.ts';
import { serveFarEnd } from '../../../hosts/far/far-end.ts';
import { readImageTool } from '../../../hosts/far/image-tool.ts';

/** A host whose image tool is this script. */
async function hostWith(script: string): Promise<StreamClient> {
  const home = mkdtempSync(join(tmpdir(), 'holdfast-image-tools-'));
  mkdirSync(join(home, 'setup'));
  writeFileSync(join(home, 'setup/images.cjs'), script);
  const server = createServer((socket: Socket) => {
    void serveFarEnd(socket, { home, command: ['false'], program: home });
  }).listen(join(home, 'socket'));
  await once(server, 'listening');
  const socket = createConnection(join(home, 'socket'));
  onTestFinished(() => {
    socket.destroy();
    server.close();
    rmSync(home, { recursive: true });
  });
  return new StreamClient(socket, 'far');
}

test('the answer of an image tool arrives although the tool ended before its input did', async () => {
  const client = await hostWith('process.stdout.write("[]"); process.exit(0);');
  const stream = await client.open('/images/missing');
  if (stream === undefined) throw new Error('no stream');
  // A slow line, or a busy window.
  await sleep(1500);
  stream.end();
  expect(await readImageTool(stream, 'The images')).toBe('[]');
});

test('a tool that fails while images are sent to it says why, and the rest does not fill the connection', async () => {
  const client = await hostWith('process.stderr.write("no space left\\n"); process.exit(3);');
  const stream = await client.open('/images/load');
  if (stream === undefined) throw new Error('no stream');
  const answer = readImageTool(stream, 'The images').catch((error: unknown) => error);
  for (let sent = 0; sent < 64; sent += 1)
    if (!stream.write(Buffer.alloc(2 ** 20))) await once(stream, 'drain');
  stream.end();
  expect(await answer).toMatchObject({ code: 'engine_error', why: 'no space left' });
});

test('a tool that hangs is given up with one sentence', async () => {
  const client = await hostWith('setInterval(() => undefined, 1000);');
  const stream = await client.open('/images/missing');
  if (stream === undefined) throw new Error('no stream');
  stream.end();
  await expect(readImageTool(stream, 'The images cannot be listed', 300)).rejects.toMatchObject({
    code: 'timeout',
    sentence:
      'The images cannot be listed; its Docker did not answer within 1 s; see whether `docker version` works there',
  });
});

test.for([
  ['says nothing', () => undefined],
  ['begins to refuse and does not end', (stream: ServerHttp2Stream) => stream.respond({ ':status': 500 })],
] as const)(
  'a far end that %s is given up with one sentence, and the connection with it',
  async ([, answer]) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-silent-'));
    const server = createServer((socket: Socket) => {
      const session = performServerHandshake(socket);
      session.on('error', () => undefined).on('stream', answer);
    }).listen(join(folder, 'socket'));
    await once(server, 'listening');
    const socket = createConnection(join(folder, 'socket'));
    onTestFinished(() => {
      socket.destroy();
      server.close();
      rmSync(folder, { recursive: true });
    });
    const client = new StreamClient(socket, 'far', { answerMs: 300 });
    await expect(client.open('/supervisor')).rejects.toMatchObject({
      code: 'timeout',
      message: 'far does not answer',
      why: 'the login worked, and Holdfast there answered nothing within 1 s',
    });
    await client.closed;
  },
);
