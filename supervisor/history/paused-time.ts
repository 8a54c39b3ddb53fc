import { parseEvent } from '../../protocol/events.ts';
import type { EventLog } from './event-log.ts';

/** How long the session was paused since its newest turn started, in ms, also while no supervisor ran. `now`: ms since 1970. */
export function pausedTime(
  events: Pick<EventLog, 'newest' | 'read'>,
  sessionId: string,
  now: number,
): number {
  const [started] = events.newest(sessionId, 'turn.started', 1);
  if (started === undefined) return 0;
  let total = 0;
  let pausedAt: number | null = null;
  let after = started.seq;
  for (;;) {
    const page = events.read(sessionId, { after, type: 'session.status' });
    for (const event of page) {
      after = event.seq;
      const entry = parseEvent(event);
      if (entry?.type !== 'session.status') continue;
      const at = Date.parse(event.at);
      if (pausedAt !== null) total += Math.max(0, at - pausedAt);
      pausedAt = entry.data.to === 'paused' ? at : null;
    }
    if (page.length === 0) break;
  }
  return pausedAt === null ? total : total + Math.max(0, now - pausedAt);
}
