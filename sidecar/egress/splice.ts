import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TUNNEL_END, TunnelDecoder, tunnelHeader } from '../../protocol/wire/tunnel-frames.ts';
import type { Linger } from './linger.ts';

/**
 * Copies bytes between a process in the sandbox and the supervisor until both directions have ended. A side that stops
 * reading stops the other. If the supervisor's side breaks off, the process gets a reset: after an orderly end, a
 * client of an unframed protocol would believe that it has everything.
 */
export function splice(agent: Socket, tunnel: Duplex, linger: Linger): void {
  let agentEnded = false;
  let tunnelEnded = false;
  let begun = false;

  const cut = (): void => {
    tunnel.destroy();
    if (!agent.destroyed) agent.resetAndDestroy();
  };
  const settle = (): void => {
    if (agentEnded && tunnelEnded) tunnel.end();
  };

  const decoder = new TunnelDecoder({
    onBytes: (bytes) => {
      // The first byte only says that the supervisor reads tunnel frames from here on.
      const rest = begun ? bytes : bytes.subarray(1);
      if (!begun) {
        begun = true;
        agent.resume();
      }
      if (rest.length > 0 && !agent.write(rest)) tunnel.pause();
    },
    onEnd: () => {
      tunnelEnded = true;
      linger.flushOnClose(agent);
      agent.end();
      settle();
    },
  });
  tunnel.on('data', (chunk: Buffer) => {
    if (!decoder.push(chunk)) cut();
  });
  tunnel.on('end', () => {
    if (!tunnelEnded) cut();
  });
  tunnel.on('error', cut);
  tunnel.on('close', () => {
    if (!agentEnded || !tunnelEnded) cut();
  });
  agent.on('drain', () => tunnel.resume());

  agent.on('data', (chunk: Buffer) => {
    tunnel.cork();
    tunnel.write(tunnelHeader(chunk.length));
    const more = tunnel.write(chunk);
    tunnel.uncork();
    if (!more) agent.pause();
  });
  tunnel.on('drain', () => {
    if (begun) agent.resume();
  });
  agent.on('end', () => {
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
