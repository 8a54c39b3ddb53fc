import { HoldfastError } from '../../protocol/errors.ts';
import { SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';
import type { SidecarPeer } from './sidecar-peer.ts';

/** Milliseconds. */
export interface LivenessTimeouts {
  /** Between two looks at a connection whose answers are waited for. */
  readonly lookMs: number;
  /** What a sidecar may take for the smallest answer. */
  readonly silentMs: number;
}

const PATIENCE: LivenessTimeouts = { lookMs: 10_000, silentMs: 30_000 };
/** What long work in a sidecar may take without a sign that it goes on. */
const STUCK_MS = 120_000;

/**
 * Ends a connection whose sidecar is silent while something is asked of it: frozen, or stuck for ever. One that died ends its
 * connections itself, and a long walk through a large tree is no silence, as it answers in between. Where nobody waits, nobody is asked.
 */
export function keepAlive(
  peer: Pick<SidecarPeer, 'call' | 'close' | 'closed' | 'pendingCalls'>,
  sessionId: string,
  { lookMs, silentMs }: LivenessTimeouts = PATIENCE,
): void {
  let asking = false;
  const look = async (): Promise<void> => {
    if (asking || peer.pendingCalls === 0) return;
    asking = true;
    try {
      await peer.call('hello', { protocol: SIDECAR_PROTOCOL, session: sessionId }, { timeoutMs: silentMs });
    } catch (error) {
      // Of any other end everybody who waits is told by the connection.
      if (error instanceof HoldfastError && error.code === 'timeout') peer.close(silent(sessionId, silentMs));
    } finally {
      asking = false;
    }
  };
  const timer = setInterval(() => void look(), lookMs).unref();
  void peer.closed.then(() => clearInterval(timer));
}

/**
 * For work that tells how far it is: the sidecar answers beside it, so that only the work itself can tell that it goes on. Whoever
 * hears of it calls `heard`. Rejects with `timeout` where nobody does.
 */
export async function withStallTimeout<T>(
  work: (heard: () => void, stuck: AbortSignal) => Promise<T>,
  stuckMs = STUCK_MS,
): Promise<T> {
  const stuck = new AbortController();
  const timer = setTimeout(() => stuck.abort(), stuckMs);
  try {
    return await work(() => void timer.refresh(), stuck.signal);
  } catch (error) {
    if (!stuck.signal.aborted) throw error;
    throw new HoldfastError('timeout', 'The sidecar does not go on', {
      why: `nothing was heard of it for ${String(stuckMs / 1000)} s`,
      next: 'try again; `holdfast session stop` gives the session a new sidecar',
      cause: error,
    });
  } finally {
    clearTimeout(timer);
  }
}

function silent(sessionId: string, silentMs: number): HoldfastError {
  return new HoldfastError('connection_closed', `The sidecar of ${sessionId} does not answer`, {
    why: `nothing was heard of it for ${String(silentMs / 1000)} s`,
    next: 'try again; `holdfast session stop` gives the session a new sidecar',
    details: { session: sessionId },
  });
}
