import type { Duplex } from 'node:stream';
import type { AcceptReport, EgressListener } from './listener.ts';
import { splice } from './splice.ts';

export interface AcceptingPeer {
  /** Stops reading messages until the returned function is called. */
  pauseReading(): () => void;
  /** Detaches the connection from the peer. The caller owns the stream. */
  detachStream(): Duplex;
}

/** Handles `egress/accept`. After the answer the connection belongs to the process that has connected. */
export async function acceptConnection(
  listener: EgressListener,
  peer: AcceptingPeer,
  signal: AbortSignal,
  report: AcceptReport,
): Promise<{ waiting: number }> {
  const { socket, linger, waiting } = await listener.accept(signal, report);
  if (signal.aborted) {
    listener.turnBack(socket);
    throw signal.reason;
  }
  // The supervisor's first byte may arrive before the splice starts, and it is no message.
  const readOn = peer.pauseReading();
  // By then the answer has been written.
  setImmediate(() => {
    try {
      splice(socket, peer.detachStream(), linger, () => listener.turnBack(socket));
    } catch (error) {
      if (!signal.aborted) console.error('egress:', error);
      readOn();
      listener.turnBack(socket);
    }
  });
  return { waiting };
}
