import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import type { PeerLimits } from '../../../protocol/wire/limits.ts';
import type { PayloadBuffers } from '../../../protocol/wire/payload-buffers.ts';
import { Peer } from '../../../protocol/wire/peer.ts';
import { acceptScratch, connectScratch } from '../../../protocol/wire/scratch-socket.ts';
import { NOTHING } from '../../../protocol/wire/shapes.ts';
import type { Handlers, Nothing } from '../../../protocol/wire/shapes.ts';

/** A small contract with one method for each thing that a peer can do. */
export const CALLS = {
  ping: { params: z.object({}), result: z.object({}) },
  echo: { params: z.object({ value: z.json() }), result: z.object({ value: z.json() }) },
  add: {
    params: z.object({ left: z.number(), right: z.number().int() }),
    result: z.object({ sum: z.number() }),
  },
  upload: { params: z.object({}), result: z.object({ bytes: z.number() }), bytes: 'params' },
  download: { params: z.object({ bytes: z.number() }), result: z.object({}), bytes: 'result' },
  hang: { params: z.object({}), result: z.object({}) },
  work: { params: z.object({ steps: z.number() }), result: z.object({}) },
  fail: { params: z.object({ how: z.enum(['ours', 'foreign']) }), result: z.object({}) },
  lie: { params: z.object({}), result: z.object({ truth: z.string() }) },
  missing: { params: z.object({}), result: z.object({}) },
} as const;
export const HEARD = {
  tick: { params: z.object({ n: z.number() }) },
  chunk: { params: z.object({}), bytes: 'params' },
} as const;

export type ServerPeer = Peer<typeof CALLS, Nothing, typeof HEARD>;
export type ClientPeer = Peer<Nothing, typeof CALLS, Nothing, typeof HEARD>;

/** Two ends of a real unix socket, made as programs make them; `end` closes everything that `open` made. */
export interface SocketPair {
  readonly near: Socket;
  readonly far: Socket;
}

/** Owns what the tests of one file open. */
export class Sockets {
  readonly #directory = mkdtempSync(join(tmpdir(), 'holdfast-wire-'));
  readonly #open: Socket[] = [];
  #count = 0;

  async pair(): Promise<SocketPair> {
    const path = join(this.#directory, `s${this.#count++}`);
    const server = createServer({ pauseOnConnect: true });
    const accepted = new Promise<Socket>((resolve) =>
      server.once('connection', (socket: Socket) => resolve(acceptScratch(socket))),
    );
    await new Promise<void>((resolve) => server.listen(path, resolve));
    const near = connectScratch(path);
    const far = await accepted;
    server.close();
    this.#open.push(near, far);
    return { near, far };
  }

  end(): void {
    for (const socket of this.#open) socket.destroy();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

export interface ServerOptions {
  readonly handlers?: Partial<Handlers<typeof CALLS, ServerPeer>>;
  readonly limits?: Partial<PeerLimits>;
  readonly payloads?: PayloadBuffers;
  readonly internal?: unknown[];
}

export function serve(stream: Socket, options: ServerOptions = {}): ServerPeer {
  return new Peer({
    stream,
    name: 'the client',
    serves: CALLS,
    handlers: options.handlers ?? {},
    partial: true,
    calls: NOTHING,
    notifies: HEARD,
    hears: NOTHING,
    onInternalError: (error) => options.internal?.push(error),
    payloads: options.payloads,
    ...(options.limits === undefined ? {} : { limits: options.limits }),
  });
}

export function call(
  stream: Socket,
  limits?: Partial<PeerLimits>,
  internal?: unknown[],
  payloads?: PayloadBuffers,
): ClientPeer {
  return new Peer({
    stream,
    name: 'the server',
    serves: NOTHING,
    handlers: {},
    calls: CALLS,
    notifies: NOTHING,
    hears: HEARD,
    onInternalError: (error) => internal?.push(error),
    payloads,
    ...(limits === undefined ? {} : { limits }),
  });
}

/** Everything that comes out of a raw socket, until it ends. */
export function collect(socket: Socket): Promise<Buffer> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(Buffer.concat(chunks)));
  });
}

export async function until(condition: () => boolean, ms = 12_000): Promise<void> {
  const deadline = Date.now() + ms;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`not true within ${ms} ms: ${condition.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
