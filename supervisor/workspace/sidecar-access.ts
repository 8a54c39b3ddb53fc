import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../protocol/errors.ts';

/** What is asked of a sidecar that turns out to have gone is asked again of the next one, so often at most. */
export const TRIES = 5;
/** Longer with each try: the engine may take a moment to see that one has gone. */
export const AGAIN_MS = 100;

export interface SidecarAccess {
  /** Starts the sidecar alone where it does not run; never touches the agent. `doubts`: a connection that stands is no proof. */
  ensure(sessionId: string, doubts?: boolean): Promise<void>;
  /** Keeps it until the returned function is called. */
  hold(sessionId: string): () => void;
  dial(sessionId: string): Promise<Duplex>;
}

/** `act` with a sidecar that runs; again with another one where it turns out to have gone just now. */
export function withLiving<T>(
  access: Pick<SidecarAccess, 'ensure'>,
  sessionId: string,
  act: () => Promise<T>,
): Promise<T> {
  return againIfGone(async (isAgain) => {
    await access.ensure(sessionId, isAgain);
    return await act();
  });
}

/** `act` until it does not end with `sandbox_lost`, a few times at most. `isAgain`: it did before. */
export async function againIfGone<T>(act: (isAgain: boolean) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await act(tries > 1);
    } catch (error) {
      const isGone = error instanceof HoldfastError && error.code === 'sandbox_lost';
      if (!isGone || tries === TRIES) throw error;
      await sleep((tries - 1) * AGAIN_MS);
    }
  }
}
