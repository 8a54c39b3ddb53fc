import type { Content, ContentsVerification } from '../../protocol/contents.ts';
import { type EventEntry, contentsOf, parseEvent } from '../../protocol/events.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import { type CheckpointVerification, unprovenByCheckpoint } from '../../protocol/history.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { Contents, ContentState } from './contents.ts';
import type { EventLog, Verification } from './event-log.ts';

const MAX_REPORTED = 100;

export interface HistoryVerified extends Verification {
  readonly contents: ContentsVerification;
  /** What the chain begins with if the history was cut. */
  readonly checkpoint: CheckpointVerification | null;
  readonly unproven: string[];
}

export interface VerifiedParts {
  readonly events: EventLog;
  readonly contents: Contents;
  readonly checkpoints: Pick<Checkpoints, 'verify'>;
}

/**
 * Verifies the hash chain of a session, and every content that its events name. A history that was cut begins with its
 * checkpoint.
 */
export async function verifyHistory(
  { events, contents, checkpoints }: VerifiedParts,
  sessionId: string,
): Promise<HistoryVerified> {
  const chain = await events.verify(sessionId);
  const checkpoint = checkpoints.verify(sessionId);
  const { seq: end } = events.head(sessionId);
  const states = new Map<string, ContentState>();
  const damaged: ContentsVerification['damaged'] = [];
  for (let after = 0; after < end;) {
    const page = events.read(sessionId, { after });
    const last = page.at(-1);
    if (last === undefined) break;
    for (const event of page) {
      for (const content of contentsIn(event)) {
        if (states.has(content.sha256)) continue;
        const state = await contents.check(sessionId, content);
        states.set(content.sha256, state);
        if ((state === 'altered' || state === 'missing') && damaged.length < MAX_REPORTED)
          damaged.push({ seq: event.seq, sha256: content.sha256, problem: state });
      }
    }
    after = last.seq;
  }
  const counted = (wanted: ContentState): number =>
    [...states.values()].filter((state) => state === wanted).length;
  return {
    ...chain,
    ok: chain.ok && damaged.length === 0 && checkpoint?.valid !== false,
    contents: { intact: counted('intact'), removed: counted('removed'), damaged },
    checkpoint,
    unproven: checkpoint === null ? [] : unprovenByCheckpoint(checkpoint),
  };
}

/** An event that somebody changed may not be readable: the hash chain reports it. */
function contentsIn(event: SessionEvent): Content[] {
  let entry: EventEntry | null;
  try {
    entry = parseEvent(event);
  } catch {
    return [];
  }
  return entry === null ? [] : contentsOf(entry);
}
