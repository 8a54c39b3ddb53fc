import type { Duplex, Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/**
 * Copies raw bytes between standard streams and the supervisor, in each direction at the reader's pace. The end of stdin
 * ends the connection; what the supervisor wrote before is still delivered. Resolves when both directions have ended.
 * Rejects with the first error, except that the reader of stdout has closed it.
 */
export async function bridgeStdio(socket: Duplex, stdin: Readable, stdout: Writable): Promise<void> {
  const inward = pipeline(stdin, socket).catch((error: unknown) => {
    // The supervisor has closed the connection. Its last output is still being copied to stdout.
    if (socket.readableEnded || isClosedPipe(error)) return;
    socket.destroy(error instanceof Error ? error : undefined);
    throw error;
  });
  const outward = pipeline(socket, stdout, { end: false }).catch((error: unknown) => {
    socket.destroy();
    if (!isClosedPipe(error)) throw error;
  });
  // An open stdin would keep the program alive after the connection has ended.
  const ended = outward.finally(() => stdin.destroy());
  await Promise.all([inward, ended]);
}

function isClosedPipe(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'EPIPE' || code === 'ECONNRESET' || code === 'ERR_STREAM_PREMATURE_CLOSE';
}
