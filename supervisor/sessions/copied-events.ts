import type { SessionEvent } from '../../protocol/entities.ts';
import {
  contentsOf as contentsOfEvent,
  currentType,
  type EventEntry,
  parseEvent,
  withoutPromptText,
} from '../../protocol/events.ts';
import { firstLine, PREVIEW_BYTES, PROMPT_CHARACTERS, toSingleLine } from '../base/single-line.ts';

/** An event of another session as its copy records it, with its original `seq`. */
export interface CopiedEvent {
  readonly seq: number;
  readonly entry: EventEntry;
}

/**
 * The events of a session as another one records them. `turnIds`: the new ids of the turns that are copied; events of other turns are
 * left out.
 */
export function copyEvents(
  history: readonly (Pick<SessionEvent, 'seq' | 'type' | 'at'> & {
    readonly data: Record<string, unknown>;
  })[],
  turnIds: ReadonlyMap<string, string>,
): CopiedEvent[] {
  const copied: CopiedEvent[] = [];
  for (const { seq, type, data, at } of history) {
    const { turnId } = data;
    const newTurnId = typeof turnId === 'string' ? turnIds.get(turnId) : undefined;
    if (turnId !== undefined && newTurnId === undefined) continue;
    const changed: Record<string, unknown> = { ...withoutPromptText(currentType(type), data) };
    if (newTurnId !== undefined) changed['turnId'] = newTurnId;
    // Where the copy begins, as its own events are counted. Some of those before may have stayed.
    if (type === 'history.cut') {
      const removedUpTo = Number(data['seq']);
      changed['seq'] = Math.max(1, countUpTo(copied, removedUpTo));
    }
    // The event was validated when it was written; only ids and places differ.
    copied.push({ seq, entry: { type, data: changed, at: Date.parse(at) } as unknown as EventEntry });
  }
  return copied;
}

/** How many events, in the order of `seq`, are not later. A bundle may have thousands of cuts: it does not read them all. */
function countUpTo(events: readonly CopiedEvent[], seq: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((events[middle]?.seq ?? Infinity) <= seq) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The contents that these events name. */
export function contentsOf(entries: readonly EventEntry[]): string[] {
  const ids = entries.flatMap((entry) => {
    const parsed = parseEvent(entry);
    return parsed === null ? [] : contentsOfEvent(parsed).map(({ sha256 }) => sha256);
  });
  return [...new Set(ids)];
}

/**
 * What lists show of a session: the beginning of its first prompt. Null before that. `read`: the first bytes of a content,
 * null for one that was removed.
 */
export function firstPrompt(
  entries: Iterable<EventEntry>,
  read: (sha256: string, limit: number) => Uint8Array | null,
): string | null {
  for (const entry of entries) {
    if (entry.type !== 'turn.queued') continue;
    const { content, preview = '' } = entry.data;
    const head = content ? read(content.sha256, PREVIEW_BYTES) : null;
    return head === null ? toSingleLine(preview, PROMPT_CHARACTERS) : firstLine(head, PROMPT_CHARACTERS);
  }
  return null;
}

/** An event for `replay`, which uses neither times nor hashes. */
export function asEvent(sessionId: string, seq: number, { type, data }: EventEntry): SessionEvent {
  return { sessionId, seq, at: '', type, data: data as SessionEvent['data'], prevHash: '', hash: '' };
}
