import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';

/** What is asked of a sidecar that turns out to have gone is asked again of the next one, so often at most. */
export const MAX_ATTEMPTS = 5;
/** Longer with each try: the engine may take a moment to see that one has gone. */
export const RETRY_DELAY_MS = 100;

export interface SidecarAccess {
  /** Starts the sidecar alone where it does not run; never touches the agent. `doubts`: a connection that stands is no proof. */
  ensureRunning(sessionId: string, doubts?: boolean): Promise<void>;
  /** Keeps it until the returned function is called. */
  acquireLease(sessionId: string): () => void;
  dial(sessionId: string): Promise<Duplex>;
}

/** `act` with a sidecar that runs; again with another one where it turns out to have gone just now. */
export function withRunningSidecar<T>(
  access: Pick<SidecarAccess, 'ensureRunning'>,
  sessionId: string,
  act: () => Promise<T>,
): Promise<T> {
  return retryIfSandboxLost(async (isAgain) => {
    await access.ensureRunning(sessionId, isAgain);
    return await act();
  });
}

/** `act` until it does not end with `sandbox_lost`, a few times at most. `isAgain`: it did before. */
export async function retryIfSandboxLost<T>(act: (isAgain: boolean) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await act(tries > 1);
    } catch (error) {
      const isGone = error instanceof HoldfastError && error.code === 'sandbox_lost';
      if (!isGone || tries === MAX_ATTEMPTS) throw error;
      await sleep((tries - 1) * RETRY_DELAY_MS);
    }
  }
}
