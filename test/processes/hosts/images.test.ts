import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connectorFiles } from '../../../hosts/connector/connector-files.ts';
import { ensureHostImages, type HostImagesOptions } from '../../../hosts/connector/host-images.ts';
import { MessageReader, WantSchema, writeMessage } from '../../../hosts/connector/messages.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

/** A connector whose host lacks all images. A fake: it notes what was opened, and lets streams hang. */
async function hangingHost(): Promise<{
  options: HostImagesOptions;
  opened: string[];
  reached: (path: string) => Promise<Socket>;
}> {
  const home = mkdtempSync(join(tmpdir(), 'holdfast-images-'));
  const files = connectorFiles(home, 'far', 'build');
  const opened: string[] = [];
  const waiting = new Map<string, PromiseWithResolvers<Socket>>();
  const reached = (path: string): PromiseWithResolvers<Socket> => {
    const made = waiting.get(path) ?? Promise.withResolvers<Socket>();
    waiting.set(path, made);
    return made;
  };
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    void (async () => {
      const reader = new MessageReader(socket);
      const want = await reader.next(WantSchema);
      reader.release();
      if (want?.want !== 'stream') return;
      opened.push(want.path);
      writeMessage(socket, { ready: true });
      if (want.path === '/images/missing') {
        const images = JSON.stringify([__SIDECAR_IMAGE__, __AGENT_IMAGE__]);
        socket.end(`${images}\n${JSON.stringify({ code: 0, said: '' })}\n`);
      } else socket.resume();
      reached(want.path).resolve(socket);
    })();
  });
  await new Promise<void>((resolve) => server.listen(join(files.directory, files.socket.name), resolve));
  onTestFinished(() => {
    server.close();
    rmSync(home, { recursive: true });
  });
  const tool = join(home, 'tool.mjs');
  writeFileSync(tool, 'process.stdout.write("an image"); setInterval(() => {}, 1000);');
  return {
    options: {
      ...{ home, host: 'far', build: 'build', command: ['false'], environment: process.env },
      ui: { onStage: () => undefined, ask: undefined },
      imageTool: [process.execPath, tool],
    },
    opened,
    reached: (path) => reached(path).promise,
  };
}

test('bringing images to a host ends when a person cancels, on both sides', async () => {
  const { options, opened, reached } = await hangingHost();
  const cancelling = new AbortController();
  const bringing = ensureHostImages(options, cancelling.signal).catch((error: unknown) => error);
  const socket = await reached('/images/load');
  const closed = new Promise((resolve) => socket.once('close', resolve));
  cancelling.abort();
  expect(await bringing).toBeInstanceOf(HoldfastError);
  expect(await bringing).toMatchObject({ code: 'cancelled' });
  await closed;
  // Building them there would take minutes that nobody wants.
  expect(opened).toEqual(['/images/missing', '/images/load']);
});

test('nothing is opened for a person who has cancelled already', async () => {
  const { options, opened } = await hangingHost();
  await expect(ensureHostImages(options, AbortSignal.abort())).rejects.toMatchObject({ code: 'cancelled' });
  expect(opened).not.toContain('/images/load');
});
