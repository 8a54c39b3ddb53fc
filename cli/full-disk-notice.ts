import type { Context } from './context.ts';

const POLL_MS = 3000;

/** Reports on standard error when a full disk blocks a turn, and when the turn continues. Returns the function that stops it. */
export function reportFullDisk(context: Context, turnId: string): () => void {
  let isWaiting = false;
  let isAsking = false;
  const poll = async (): Promise<void> => {
    const { turn } = await context.client().call('turn/show', { turn: turnId });
    if ((turn.waitingFor === 'disk_space') === isWaiting) return;
    isWaiting = !isWaiting;
    if (turn.endedAt !== null) return;
    await context.printNote(
      isWaiting
        ? `The disk of the Holdfast home is full: ${turnId} cannot finish. Free some space, or cancel it: holdfast turn cancel ${turnId}`
        : `The disk has free space again: ${turnId} continues`,
    );
  };
  const timer = setInterval(() => {
    if (isAsking) return;
    isAsking = true;
    poll()
      // The code that follows the turn reports a broken connection.
      .catch(() => undefined)
      .finally(() => {
        isAsking = false;
      });
  }, POLL_MS);
  return () => clearInterval(timer);
}
