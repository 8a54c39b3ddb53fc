import { once } from 'node:events';
import { createServer, connect } from 'node:net';
import type { Server, Socket } from 'node:net';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { connectToSidecarSocket } from '../../../supervisor/engine/docker/dial.ts';
import { demultiplex, readText } from '../../../supervisor/engine/docker/multiplexed-stream.ts';

let folder: string;
let server: Server;
const open: Socket[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'hfe-'));
  server = createServer((socket) => open.push(socket));
});
afterEach(async () => {
  for (const socket of open.splice(0)) socket.destroy();
  if (server.listening) await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

async function listen(path: string): Promise<void> {
  server.listen(path);
  await once(server, 'listening');
}

async function pair(): Promise<{ engine: Socket; ours: Socket }> {
  await listen(join(folder, 'pair'));
  const ours = connect(join(folder, 'pair'));
  open.push(ours);
  const [engine] = (await once(server, 'connection')) as [Socket];
  return { engine, ours };
}

function frame(stream: 1 | 2, text: string | Buffer): Buffer {
  const header = Buffer.alloc(8);
  const body = Buffer.from(text);
  header.writeUInt8(stream, 0);
  header.writeUInt32BE(body.length, 4);
  return Buffer.concat([header, body]);
}

describe('the multiplexed stream of an exec', () => {
  test('is demultiplexed at any chunk boundaries', async () => {
    const { engine, ours } = await pair();
    const { stdout, stderr } = demultiplex(ours);
    const both = Promise.all([readText(stdout, 1000), readText(stderr, 1000)]);
    const bytes = Buffer.concat([frame(1, 'one '), frame(2, 'oops'), frame(1, ''), frame(1, 'two')]);
    for (const byte of bytes) {
      engine.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    engine.end();
    expect(await both).toEqual(['one two', 'oops']);
  });

  test('is read no faster than its consumer reads', async () => {
    const { engine, ours } = await pair();
    const { stdout, stderr } = demultiplex(ours);
    stderr.resume();
    const size = 16 * 1024 * 1024;
    let written = false;
    engine.write(frame(1, Buffer.alloc(size, 120)), () => (written = true));
    await sleep(200);
    expect(written).toBe(false);
    expect(ours.bytesRead).toBeLessThan(2 * 1024 * 1024);
    engine.end();
    let got = 0;
    for await (const chunk of stdout) got += (chunk as Buffer).length;
    expect(got).toBe(size);
  });

  test('both outputs end when the connection breaks', async () => {
    const { engine, ours } = await pair();
    const { stdout, stderr } = demultiplex(ours);
    const both = Promise.all([readText(stdout, 1000), readText(stderr, 1000)]);
    engine.write(frame(1, 'cut here').subarray(0, 12));
    await expect.poll(() => ours.bytesRead, { interval: 5 }).toBe(12);
    ours.destroy();
    expect(await both).toEqual(['cut ', '']);
  });
});

describe('connecting to a socket that a container may have replaced', () => {
  test('reaches the listener, however long the path', async () => {
    const deep = join(folder, 'd'.repeat(120));
    const { mkdirSync, renameSync } = await import('node:fs');
    await listen(join(folder, 's'));
    mkdirSync(deep);
    renameSync(join(folder, 's'), join(deep, 's'));
    const socket = await connectToSidecarSocket(join(deep, 's'));
    expect(socket).not.toBeNull();
    socket?.destroy();
  });

  test('a socket without a listener gives null', async () => {
    expect(await connectToSidecarSocket(join(folder, 'absent'))).toBeNull();
    await listen(join(folder, 'left'));
    const { linkSync } = await import('node:fs');
    linkSync(join(folder, 'left'), join(folder, 'stale'));
    await new Promise((resolve) => server.close(resolve));
    expect(await connectToSidecarSocket(join(folder, 'stale'))).toBeNull();
  });

  test('a file or a link to another socket is refused', async () => {
    await listen(join(folder, 'other'));
    symlinkSync(join(folder, 'other'), join(folder, 'link'));
    writeFileSync(join(folder, 'file'), '');
    const refused: unknown = expect.objectContaining({ code: 'sandbox_failed' });
    await expect(connectToSidecarSocket(join(folder, 'link'))).rejects.toThrow(refused);
    await expect(connectToSidecarSocket(join(folder, 'file'))).rejects.toThrow(refused);
  });
});
