import { Socket } from 'node:net';

/** One request of ours, as it left this process. */
export interface Sent {
  readonly method: string;
  /** Of the file or folder that it is about; empty where it is about none. */
  readonly path: string;
}

/**
 * What the extension asks its supervisor for while `work` runs. It runs in this process, and its messages are lines of JSON: so they can be
 * read where they are written, without its help.
 */
export async function sentDuring(work: () => unknown): Promise<Sent[]> {
  const sent: Sent[] = [];
  const write = Socket.prototype.write;
  Socket.prototype.write = function (this: Socket, ...args: Parameters<typeof write>) {
    const [chunk] = args as readonly unknown[];
    sent.push(...requestsIn(chunk));
    return write.apply(this, args);
  } as typeof write;
  try {
    await work();
  } finally {
    Socket.prototype.write = write;
  }
  return sent;
}

function requestsIn(chunk: unknown): Sent[] {
  const text = typeof chunk === 'string' ? chunk : Buffer.isBuffer(chunk) ? chunk.toString('latin1') : '';
  return text
    .split('\n')
    .filter((line) => line.startsWith('{"jsonrpc"'))
    .map((line) => JSON.parse(line) as { method?: string; params?: { path?: string } })
    .flatMap(({ method, params }) => (method === undefined ? [] : [{ method, path: params?.path ?? '' }]));
}
