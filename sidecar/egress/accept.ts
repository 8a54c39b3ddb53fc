import type { Duplex } from 'node:stream';
import type { AcceptReport, EgressListener } from './listener.ts';
import { splice } from './splice.ts';

export interface AcceptingPeer {
  /** Nothing more is read as a message, until the returned function is called. */
  pauseReading(): () => void;
  /** Gives up the connection; what runs on it then is the caller's. */
  detachStream(): Duplex;
}

/** Answers `egress/accept`: once the answer is out, the connection belongs to the process that has connected. */
export async function acceptConnection(
  listener: EgressListener,
  peer: AcceptingPeer,
  signal: AbortSignal,
  report: AcceptReport,
): Promise<{ waiting: number }> {
  const { socket, linger, waiting } = await listener.accept(signal, report);
  if (signal.aborted) {
    socket.resetAndDestroy();
    throw signal.reason;
  }
  // The supervisor's first byte may be here before we come to it; it is no message.
  const readOn = peer.pauseReading();
  // The answer is written by the time this runs.
  setImmediate(() => {
    try {
      splice(socket, peer.detachStream(), linger);
    } catch (error) {
      console.error('egress:', error);
      readOn();
      socket.resetAndDestroy();
    }
  });
  return { waiting };
}
