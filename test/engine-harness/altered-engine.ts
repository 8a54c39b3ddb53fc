import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, request, type Server } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { z } from 'zod';

const ENGINE = '/var/run/docker.sock';
const AnswerSchema = z.looseObject({});

/** What the engine says of itself or of an image, by its path without version and query, becomes what is returned. */
export type Alter = (path: string, answer: Readonly<Record<string, unknown>>) => object;

/** How many ms an answer comes after what was asked for is done. `path`: with version and query. */
export type Delay = (method: string, path: string) => number;

/** The engine of this machine behind a socket of its own, which describes itself or its images in another way, or answers late. */
export class AlteredEngine {
  readonly socketPath: string;
  readonly #folder: string;
  readonly #server: Server;

  private constructor(folder: string, alter: Alter, delay: Delay) {
    this.#folder = folder;
    this.socketPath = join(folder, 'engine.sock');
    this.#server = createServer((asked, answer) => {
      const { method, url = '', headers } = asked;
      const path = url.replace(/^\/v\d+\.\d+(?=\/)/, '').replace(/\?.*$/, '');
      const isAltered = method === 'GET' && /^\/version$|^\/images\/.+\/json$/.test(path);
      const inner = request({ socketPath: ENGINE, method, path: url, headers }, (reply) => {
        if (!isAltered || reply.statusCode !== 200) {
          setTimeout(
            () => {
              answer.writeHead(reply.statusCode ?? 500, reply.headers);
              answer.flushHeaders();
              reply.pipe(answer);
            },
            delay(method ?? '', url),
          );
          return;
        }
        void buffer(reply).then((bytes) => {
          answer.setHeader('Content-Type', 'application/json');
          answer.end(JSON.stringify(alter(path, AnswerSchema.parse(JSON.parse(bytes.toString())))));
        });
      });
      inner.on('error', () => answer.destroy());
      answer.on('close', () => inner.destroy());
      asked.pipe(inner);
    });
    // What an engine answers to `attach` is no HTTP any more.
    this.#server.on('upgrade', (asked, socket) => {
      const inner = connect(ENGINE);
      const lines = asked.rawHeaders.flatMap((name, at, all) =>
        at % 2 === 0 ? [`${name}: ${all[at + 1] ?? ''}`] : [],
      );
      inner.write([`${asked.method ?? ''} ${asked.url ?? ''} HTTP/1.1`, ...lines, '', ''].join('\r\n'));
      inner.pipe(socket).pipe(inner);
      for (const [one, other] of [
        [inner, socket],
        [socket, inner],
      ] as const)
        one.on('error', () => undefined).once('close', () => other.destroy());
    });
  }

  static async start(alter: Alter, delay: Delay = () => 0): Promise<AlteredEngine> {
    const engine = new AlteredEngine(await mkdtemp(join(tmpdir(), 'holdfast-engine-')), alter, delay);
    await new Promise<void>((resolve) => void engine.#server.listen(engine.socketPath, resolve));
    return engine;
  }

  async dispose(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
