import { MOST_BUNDLE_EVENTS } from '../../protocol/bundles.ts';
import { type EventEntry, parseEvent } from '../../protocol/events.ts';
import type { EventLog } from './event-log.ts';

export interface NewestImport {
  readonly seq: number;
  readonly entry: Extract<EventEntry, { type: 'session.imported' }>;
}

/**
 * The newest import of a session; null for one that never left its home. Another home may have written whatever comes before it. The
 * import is among the first events: bundles are bounded.
 */
export function newestImport(events: Pick<EventLog, 'newest'>, sessionId: string): NewestImport | null {
  const [event] = events.newest(sessionId, 'session.imported', 1, MOST_BUNDLE_EVENTS + 1);
  const entry = event === undefined ? null : parseEvent(event);
  if (event === undefined || entry?.type !== 'session.imported') return null;
  return { seq: event.seq, entry: { ...entry, at: Date.parse(event.at) } };
}
