import { Socket } from 'node:net';

/** One request of ours, as it left this process. */
export interface SentRequest {
  readonly method: string;
  /** Of the file or folder that it is about; empty where it is about none. */
  readonly path: string;
}

/**
 * What the extension asks its supervisor for while `work` runs. It runs in this process, and its messages are lines of JSON: so they can be
 * read where they are written, without its help.
 */
export async function captureRequests(work: () => unknown): Promise<SentRequest[]> {
  const sent: SentRequest[] = [];
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

/** What `work` gives, during which requests of one method do not leave this process; they do afterwards. `held` tells whether there are any. */
export async function withRequestsDelayed<T>(
  method: string,
  work: (held: () => boolean) => Promise<T>,
): Promise<T> {
  const kept: (() => void)[] = [];
  const write = Socket.prototype.write;
  Socket.prototype.write = function (this: Socket, ...args: Parameters<typeof write>) {
    const [chunk] = args as readonly unknown[];
    if (!requestsIn(chunk).some((sent) => sent.method === method)) return write.apply(this, args);
    kept.push(() => write.apply(this, args));
    return true;
  } as typeof write;
  try {
    return await work(() => kept.length > 0);
  } finally {
    Socket.prototype.write = write;
    for (const send of kept) send();
  }
}

function requestsIn(chunk: unknown): SentRequest[] {
  const text = typeof chunk === 'string' ? chunk : Buffer.isBuffer(chunk) ? chunk.toString('latin1') : '';
  return text
    .split('\n')
    .filter((line) => line.startsWith('{"jsonrpc"'))
    .map((line) => JSON.parse(line) as { method?: string; params?: { path?: string } })
    .flatMap(({ method, params }) => (method === undefined ? [] : [{ method, path: params?.path ?? '' }]));
}
