import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { DockerApi } from '../../../scripts/setup/docker-api.mjs';

/** A fake engine, because a real one cannot be made to fail in the middle of a pull on demand. */
describe('what an engine says about images is believed only when it succeeds', () => {
  let directory: string;
  let fake: Server;
  let api: DockerApi;
  let asked: string[];
  let answer: (request: IncomingMessage, response: ServerResponse) => void;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'holdfast-fake-engine-'));
    asked = [];
    fake = createServer((request, response) => {
      asked.push(`${String(request.method)} ${String(request.url)}`);
      request.resume();
      request.on('end', () => {
        answer(request, response);
      });
    });
    const socket = join(directory, 'engine.sock');
    await new Promise<void>((resolve) => fake.listen(socket, resolve));
    api = new DockerApi(socket);
  });
  afterEach(async () => {
    await new Promise((resolve) => fake.close(resolve));
    rmSync(directory, { recursive: true });
  });

  const lines = (...events: object[]) => events.map((event) => JSON.stringify(event)).join('\n');

  test('a pull reports bytes over all layers', async () => {
    answer = (_, response) =>
      response.end(
        lines(
          { status: 'Downloading', id: 'a', progressDetail: { current: 10, total: 100 } },
          { status: 'Downloading', id: 'b', progressDetail: { current: 5, total: 50 } },
          { status: 'Download complete', id: 'a' },
        ),
      );
    const seen: [number, number][] = [];
    await api.pull('registry:5000/holdfast/agent:abc', (done, of) => seen.push([done, of]));
    expect(seen.at(-1)).toEqual([105, 150]);
    expect(asked).toEqual(['POST /images/create?fromImage=registry%3A5000%2Fholdfast%2Fagent&tag=abc']);
  });

  test('a pull that fails after it began fails, though the status was 200', async () => {
    answer = (_, response) =>
      response.end(
        lines(
          { status: 'Pulling' },
          { error: 'manifest unknown', errorDetail: { message: 'manifest unknown' } },
        ),
      );
    await expect(api.pull('holdfast/agent:abc', () => undefined)).rejects.toThrow('manifest unknown');
  });

  test('an import that names no image is never tagged', async () => {
    answer = (_, response) => response.end(lines({ error: 'unexpected EOF' }));
    await expect(api.importImage(Readable.from(['half a tar']), 'holdfast/agent:abc', [])).rejects.toThrow(
      'unexpected EOF',
    );
    expect(asked.filter((line) => line.includes('/tag'))).toEqual([]);
  });

  test('an import is tagged once it is whole, with its instructions applied', async () => {
    answer = (request, response) =>
      request.url?.startsWith('/images/create') === true
        ? response.end(lines({ status: 'sha256:123' }))
        : response.writeHead(201).end();
    await api.importImage(Readable.from(['tar']), 'holdfast/agent:abc', ['USER agent', 'WORKDIR /workspace']);
    expect(asked).toEqual([
      'POST /images/create?fromSrc=-&changes=USER+agent&changes=WORKDIR+%2Fworkspace',
      'POST /images/sha256:123/tag?repo=holdfast%2Fagent&tag=abc',
    ]);
  });

  test('an engine that is not there is a reason, not an exception', async () => {
    expect(await new DockerApi(join(directory, 'nothing.sock')).ping()).toContain('ENOENT');
  });

  test('an engine that breaks is not mistaken for one without the image', async () => {
    answer = (_, response) => response.writeHead(500).end(JSON.stringify({ message: 'disk is gone' }));
    await expect(api.hasImage('holdfast/agent:abc')).rejects.toThrow('disk is gone');
  });
});
