import { duplexPair } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { TunnelDecoder, tunnelHeader } from '../../protocol/wire/tunnel-frames.ts';
import { Tunnel } from '../../supervisor/egress/tunnel.ts';
import type { Dice } from './fuzz-requests.ts';

/** Longer than the limits for request headers and final responses. */
const LATE_MS = 15_000;

/** As a sidecar sends it: frames, the end of the request's direction, and the response until its end. */
export async function talk(
  server: { serve: (tunnel: Tunnel) => void },
  pieces: readonly Buffer[],
): Promise<string> {
  const [ours, theirs] = duplexPair();
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  const parts: Buffer[] = [];
  let first = true;
  const decoder = new TunnelDecoder({
    onBytes: (bytes) => {
      // The byte that starts the tunnel.
      parts.push(first ? bytes.subarray(1) : bytes);
      first = false;
    },
    onEnd: () => resolve(undefined),
  });
  theirs.on('data', (chunk: Buffer) => void decoder.push(chunk));
  theirs.on('error', () => resolve(undefined));
  // Destroying one half of a pair does not notify the other.
  ours.once('close', () => resolve(undefined));
  server.serve(new Tunnel(ours));
  for (const piece of pieces) {
    theirs.write(tunnelHeader(piece.length));
    theirs.write(piece);
  }
  theirs.write(tunnelHeader(0));
  const late = setTimeout(() => reject(new Error('neither answered nor cut off')), LATE_MS);
  try {
    await promise;
  } catch (cause) {
    throw new Error(JSON.stringify(pieces.map(String)), { cause });
  } finally {
    clearTimeout(late);
    theirs.destroy();
    // Pairs of streams never leave the queue of ticks: without this, a million requests would let no other half be destroyed.
    await setImmediate();
  }
  return Buffer.concat(parts).toString('latin1');
}

/** In one piece or two. */
export function cutUp(bytes: Buffer, dice: Dice): Buffer[] {
  if (bytes.length < 2 || dice(2) === 0) return bytes.length === 0 ? [] : [bytes];
  const at = 1 + dice(bytes.length - 1);
  return [bytes.subarray(0, at), bytes.subarray(at)];
}
