import type { Duplex, Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/**
 * Carries bytes as they are between stdio and the supervisor, each way at the reader's pace. The end of stdin ends the
 * connection, as the end of a connection always does; what the supervisor wrote before is still passed on. Resolves when both
 * ways have ended; rejects with the first error, other than that the reader of stdout has gone.
 */
export async function bridgeStdio(socket: Duplex, stdin: Readable, stdout: Writable): Promise<void> {
  const inward = pipeline(stdin, socket).catch((error: unknown) => {
    // The supervisor ended first: nothing more can be said to it, and what it said last is still on its way out.
    if (socket.readableEnded || hasGone(error)) return;
    socket.destroy(error instanceof Error ? error : undefined);
    throw error;
  });
  const outward = pipeline(socket, stdout, { end: false }).catch((error: unknown) => {
    socket.destroy();
    if (!hasGone(error)) throw error;
  });
  // stdin may stay open for ever after the supervisor has gone, and would keep the program alive.
  const ended = outward.finally(() => stdin.destroy());
  await Promise.all([inward, ended]);
}

function hasGone(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'EPIPE' || code === 'ECONNRESET' || code === 'ERR_STREAM_PREMATURE_CLOSE';
}
