import type { Socket } from 'node:net';
import type { MessageChannel } from '../../protocol/wire/message-channel.ts';
import type { ReadBuffer } from './read-buffer.ts';
import type { Tunnel } from './tunnel.ts';

/** An idle connection is closed after this time; sooner when one side has ended it. */
const SILENT_MS = 3600_000;
const HALF_CLOSED_MS = 300_000;

/**
 * Couples tunnel and upstream: the end of one is the end of that direction of the other, and a reset on one side
 * resets the other.
 */
export function join(tunnel: Tunnel, upstream: Socket): void {
  upstream.setTimeout(SILENT_MS, () => upstream.destroy());
  const half = (): void => void upstream.setTimeout(HALF_CLOSED_MS);
  upstream.on('end', half);
  tunnel.on('end', half);
  upstream.on('error', () => tunnel.destroy());
  upstream.on('close', () => {
    if (!upstream.readableEnded || !tunnel.writableFinished) tunnel.destroy();
  });
  tunnel.on('close', () => {
    if (!upstream.destroyed && !(upstream.readableEnded && upstream.writableFinished)) reset(upstream);
  });
}

/** Breaks the connection. Node cannot reset one whose end is on its way, and would keep its descriptor for ever. */
function reset(upstream: Socket): void {
  const isEnding = upstream.writableEnded && upstream.writableLength === 0 && !upstream.writableFinished;
  if (isEnding) upstream.destroy();
  else upstream.resetAndDestroy();
}

/** Carries the bytes of a server to the process that reads its answer, and back. */
export function couple(upstream: Socket, readBuffer: ReadBuffer, channel: MessageChannel): void {
  upstream.setTimeout(SILENT_MS, () => upstream.destroy());
  upstream.on('error', () => channel.destroy());
  channel.on('error', () => upstream.destroy());
  upstream.once('close', () => {
    if (!upstream.readableEnded) channel.destroy();
  });
  channel.once('close', () => {
    if (!upstream.destroyed && !(upstream.readableEnded && upstream.writableFinished)) reset(upstream);
  });
  readBuffer.pipeIntoChannel(channel, upstream);
  channel.pipe(upstream);
}
