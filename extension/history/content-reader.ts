import { isText } from '../../protocol/contents.ts';
import { contentOf, parseEvent } from '../../protocol/events.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import type { Connection } from '../connection/connection.ts';

/** Of one prompt or output. `holdfast turn output` has all of it. */
export const MAX_CONTENT_BYTES = 200_000;

/**
 * Reads the beginning of the content that an event names. Undefined for an event without one, and for a content that is
 * not text. Errors: as `content/read`.
 */
export async function readEventText(
  connection: Pick<Connection, 'callWithBytes'>,
  event: SessionEvent,
): Promise<string | undefined> {
  const entry = parseEvent(event);
  const content = entry === null ? null : contentOf(entry);
  if (content === null || !isText(content)) return undefined;
  const params = { session: event.sessionId, id: content.sha256, offset: 0, limit: MAX_CONTENT_BYTES };
  const { bytes } = await connection.callWithBytes('content/read', params);
  return bytes.toString('utf8');
}
