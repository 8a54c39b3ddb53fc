import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';

/** Attempts of a call whose sidecar is gone. */
export const MAX_ATTEMPTS = 5;
/** Multiplied by the number of attempts: the engine may take a moment to report that a sidecar is gone. */
export const RETRY_DELAY_MS = 100;

export interface SidecarAccess {
  /** Starts the sidecar alone if it does not run; never touches the agent. `isSuspect`: an open connection is no proof. */
  ensureRunning(sessionId: string, isSuspect?: boolean): Promise<void>;
  /** Keeps the sidecar running until the returned function is called. */
  acquireLease(sessionId: string): () => void;
  dial(sessionId: string): Promise<Duplex>;
  /** Whether the sidecar runs, as far as this supervisor knows. Starts nothing. */
  isRunning(sessionId: string): Promise<boolean>;
}

/** Errors: `sandbox_lost` unless the sidecar runs. */
export async function requireSidecar(
  access: Pick<SidecarAccess, 'isRunning'>,
  sessionId: string,
): Promise<void> {
  if (await access.isRunning(sessionId)) return;
  throw new HoldfastError('sandbox_lost', 'The files cannot be read', { why: 'the sandbox has ended' });
}

/** Runs `act` with a running sidecar; again with the next one if it is lost. */
export function withRunningSidecar<T>(
  access: Pick<SidecarAccess, 'ensureRunning'>,
  sessionId: string,
  act: () => Promise<T>,
): Promise<T> {
  return retryIfSandboxLost(async (isRetry) => {
    await access.ensureRunning(sessionId, isRetry);
    return await act();
  });
}

/** Runs `act`, and again while it fails with `sandbox_lost`, a few times at most. */
export async function retryIfSandboxLost<T>(act: (isRetry: boolean) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await act(attempt > 1);
    } catch (error) {
      const isGone = error instanceof HoldfastError && error.code === 'sandbox_lost';
      if (!isGone || attempt === MAX_ATTEMPTS) throw error;
      await sleep((attempt - 1) * RETRY_DELAY_MS);
    }
  }
}
