import type { Session } from '../../protocol/entities.ts';

/** The sessions whose agents wait for a person's answer, in an order that stays while they wait: the oldest first. */
export function waitingSessions(sessions: readonly Session[]): Session[] {
  return sessions
    .filter(({ waiting, status }) => waiting > 0 && status !== 'deleted')
    .sort((a, b) => compare(a.createdAt, b.createdAt) || compare(a.id, b.id));
}

/** The one after the session with the id `last`, then the first again; the first where `last` waits no more. */
export function nextWaiting(sessions: readonly Session[], last: string | undefined): Session | undefined {
  const waiting = waitingSessions(sessions);
  const index = waiting.findIndex(({ id }) => id === last);
  return waiting[(index + 1) % waiting.length];
}

/** `1 session waits for you` */
export function formatWaiting(count: number): string {
  return count === 1 ? '1 session waits for you' : `${count.toLocaleString('en-US')} sessions wait for you`;
}

/** The number on the view's icon: sessions that wait where there are any, else running turns. */
export function badgeOf(
  sessions: readonly Session[],
): { readonly value: number; readonly tooltip: string } | undefined {
  const waiting = waitingSessions(sessions).length;
  if (waiting > 0) return { value: waiting, tooltip: formatWaiting(waiting) };
  const running = sessions.filter(({ runningTurn }) => runningTurn !== null).length;
  if (running === 0) return undefined;
  return { value: running, tooltip: running === 1 ? '1 turn is running' : `${running} turns are running` };
}

/** What a click on a session runs: one that waits is answered on its page; of others the transcript is shown. */
export function clickCommandOf({ waiting }: Pick<Session, 'waiting'>): { command: string; title: string } {
  return waiting > 0
    ? { command: 'holdfast.openSessionPage', title: 'Open Session Page' }
    : { command: 'holdfast.openSession', title: 'Open Session' };
}

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
