import type { Duplex } from 'node:stream';
import type { EgressListener } from './listener.ts';
import { splice } from './splice.ts';

export interface AcceptingPeer {
  /** Gives up the connection; what runs on it then is the caller's. */
  release(): Duplex;
}

/** Answers `egress/accept`: once the answer is out, the connection belongs to the process that has connected. */
export async function acceptOn(
  listener: EgressListener,
  peer: AcceptingPeer,
  signal: AbortSignal,
  listening: () => void,
): Promise<{ waiting: number }> {
  const { socket, linger, waiting } = await listener.accept(signal, listening);
  if (signal.aborted) {
    socket.resetAndDestroy();
    throw signal.reason;
  }
  // The answer is written by the time this runs, and the supervisor says nothing before it has read it.
  setImmediate(() => {
    try {
      splice(socket, peer.release(), linger);
    } catch (error) {
      console.error('egress:', error);
      socket.resetAndDestroy();
    }
  });
  return { waiting };
}
