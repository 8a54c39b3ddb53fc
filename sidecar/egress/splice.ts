import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { PieceGatherer } from '../../protocol/wire/piece-gatherer.ts';
import { TUNNEL_END, TunnelDecoder, tunnelHeader } from '../../protocol/wire/tunnel-frames.ts';
import type { Linger } from './linger.ts';

/**
 * Copies bytes between a process in the sandbox and the supervisor until both directions have ended. A side that stops
 * reading stops the other. If the supervisor's side breaks off, the process gets a reset: after an orderly end, a
 * client of an unframed protocol would believe that it has everything.
 */
export function splice(agent: Socket, tunnel: Duplex, linger: Linger, onUnread: () => void): void {
  let agentEnded = false;
  let tunnelEnded = false;
  let begun = false;
  let isCut = false;
  const gathered = new PieceGatherer();
  let chunkBytes = 0;

  const cut = (): void => {
    if (isCut) return;
    isCut = true;
    tunnel.destroy();
    if (agent.destroyed) return;
    // The supervisor died before it took the connection: nothing of it has been read.
    if (!begun) onUnread();
    else agent.resetAndDestroy();
  };
  const settle = (): void => {
    if (agentEnded && tunnelEnded) tunnel.end();
  };

  /** One write at a time: a queue of small ones would cost many times their bytes. */
  const deliver = (): void => {
    const bytes = gathered.take();
    if (bytes === null) return;
    agent.write(bytes, () => tunnel.resume());
    if (agent.writableLength > 0) tunnel.pause();
  };

  const decoder = new TunnelDecoder({
    onBytes: (bytes) => {
      // The first byte only says that the supervisor reads tunnel frames from here on.
      const rest = begun ? bytes : bytes.subarray(1);
      if (!begun) {
        begun = true;
        agent.resume();
      }
      if (rest.length > 0) gathered.add(rest, chunkBytes);
    },
    onEnd: () => {
      deliver();
      tunnelEnded = true;
      linger.flushOnClose(agent);
      agent.end();
      settle();
    },
  });
  tunnel.on('data', (chunk: Buffer) => {
    chunkBytes = chunk.length;
    if (decoder.push(chunk)) deliver();
    else cut();
  });
  tunnel.on('end', () => {
    if (!tunnelEnded) cut();
  });
  tunnel.on('error', cut);
  tunnel.on('close', () => {
    if (!agentEnded || !tunnelEnded) cut();
  });

  agent.on('data', (chunk: Buffer) => {
    if (isCut) return;
    tunnel.cork();
    tunnel.write(tunnelHeader(chunk.length));
    tunnel.write(chunk, () => agent.resume());
    tunnel.uncork();
    if (tunnel.writableLength > 0) agent.pause();
  });
  agent.on('end', () => {
    if (isCut) return;
    agentEnded = true;
    tunnel.write(TUNNEL_END);
    settle();
  });
  agent.on('error', cut);
  agent.on('close', () => {
    if (!agentEnded || !tunnelEnded) cut();
  });
  tunnel.resume();
}
