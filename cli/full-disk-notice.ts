import type { Context } from './context.ts';

const LOOK_MS = 3000;

/** Tells whoever waits for a turn when a full disk holds it up, and when it goes on. Returns the end of it. */
export function reportFullDisk(context: Context, turnId: string): () => void {
  let isWaiting = false;
  let isAsking = false;
  const look = async (): Promise<void> => {
    const { turn } = await context.client().call('turn/show', { turn: turnId });
    if ((turn.waitingFor === 'disk_space') === isWaiting) return;
    isWaiting = !isWaiting;
    if (turn.endedAt !== null) return;
    await context.printNote(
      isWaiting
        ? `The disk of the home is full: the end of ${turnId} waits for room there. Make some, or end it: holdfast turn cancel ${turnId}`
        : `There is room on the disk again: ${turnId} goes on`,
    );
  };
  const timer = setInterval(() => {
    if (isAsking) return;
    isAsking = true;
    look()
      // Whoever follows the turn hears of a broken connection by itself.
      .catch(() => undefined)
      .finally(() => {
        isAsking = false;
      });
  }, LOOK_MS);
  return () => clearInterval(timer);
}
