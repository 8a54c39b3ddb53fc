import { HoldfastError } from '../../protocol/errors.ts';
import { SIDECAR_PROTOCOL } from '../../sidecar/wire.ts';
import type { SidecarPeer } from './sidecar-peer.ts';

/** Milliseconds. */
export interface LivenessTimeouts {
  /** Time between two checks of a connection with pending calls. */
  readonly checkMs: number;
  /** How long a sidecar may take for the smallest answer. */
  readonly silenceMs: number;
}

const TIMEOUTS: LivenessTimeouts = { checkMs: 10_000, silenceMs: 30_000 };
/** How long a long call may make no progress. */
const STALL_MS = 120_000;

/**
 * Closes a connection whose sidecar does not answer while calls are pending: it is frozen or hangs. A sidecar that exits closes its
 * connections itself, and a sidecar that works on a long call still answers. Without pending calls nothing is sent.
 */
export function keepAlive(
  peer: Pick<SidecarPeer, 'call' | 'close' | 'closed' | 'pendingCalls'>,
  sessionId: string,
  { checkMs, silenceMs }: LivenessTimeouts = TIMEOUTS,
): void {
  let isChecking = false;
  const check = async (): Promise<void> => {
    if (isChecking || peer.pendingCalls === 0) return;
    isChecking = true;
    try {
      await peer.call('hello', { protocol: SIDECAR_PROTOCOL, session: sessionId }, { timeoutMs: silenceMs });
    } catch (error) {
      // Any other end of the connection rejects the pending calls.
      if (error instanceof HoldfastError && error.code === 'timeout')
        peer.close(silenceError(sessionId, silenceMs));
    } finally {
      isChecking = false;
    }
  };
  const timer = setInterval(() => void check(), checkMs).unref();
  void peer.closed.then(() => clearInterval(timer));
}

/**
 * Runs a long call that reports progress; the caller passes each report on with `onProgress`. Other answers of the sidecar do not
 * count. Errors: `timeout` when there is no progress for `stallMs`.
 */
export async function withStallTimeout<T>(
  work: (onProgress: () => void, stalled: AbortSignal) => Promise<T>,
  stallMs = STALL_MS,
): Promise<T> {
  const stalled = new AbortController();
  const timer = setTimeout(() => stalled.abort(), stallMs);
  try {
    return await work(() => void timer.refresh(), stalled.signal);
  } catch (error) {
    if (!stalled.signal.aborted) throw error;
    throw new HoldfastError('timeout', 'The sidecar makes no progress', {
      why: `it reported nothing for ${String(stallMs / 1000)} s`,
      next: 'try again; `holdfast session stop` gives the session a new sidecar',
      cause: error,
    });
  } finally {
    clearTimeout(timer);
  }
}

function silenceError(sessionId: string, silenceMs: number): HoldfastError {
  return new HoldfastError('connection_closed', `The sidecar of ${sessionId} does not answer`, {
    why: `it did not answer for ${String(silenceMs / 1000)} s`,
    next: 'try again; `holdfast session stop` gives the session a new sidecar',
    details: { session: sessionId },
  });
}
