import { z } from 'zod';
import type { Author } from '../../protocol/agent-events.ts';
import type { Snapshot, SnapshotReason } from '../../protocol/snapshots.ts';
import type { EventLog } from '../history/event-log.ts';
import { summarizePrompt } from '../history/prompt-summary.ts';
import { isoTime } from '../base/iso-time.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';

/** How much of a turn's input is read to find its prompt, which may be inside JSON. */
const MAX_INPUT_BYTES = 4_096;
const TurnStartedSchema = z.object({ turnId: z.string() });

/** Every reason but these two is the supervisor's own. */
function authorOf(reason: SnapshotReason): Author {
  if (reason === 'manual') return 'person';
  return reason === 'agent' ? 'agent' : 'supervisor';
}

/** Turns rows into the snapshots that clients see. */
export class SnapshotViews {
  readonly #events: EventLog;
  readonly #turns: Turns;

  constructor({ events, turns }: { readonly events: EventLog; readonly turns: Turns }) {
    this.#events = events;
    this.#turns = turns;
  }

  of(row: SnapshotRow): Snapshot {
    const { lineage: _lineage, root: _root, createdAt, ...rest } = row;
    return { ...rest, createdAt: isoTime(createdAt), author: authorOf(row.reason), turn: this.#turnOf(row) };
  }

  /**
   * The turn that the snapshot precedes: the first one started after it, or the one that started while it was being
   * created.
   */
  #turnOf({ sessionId, reason, eventSeq, duringTurn }: SnapshotRow): Snapshot['turn'] {
    if (reason !== 'before-turn') return null;
    const type = duringTurn ? 'snapshot.created' : 'turn.started';
    // The events that said it were removed.
    if (eventSeq < this.#events.start(sessionId).seq) return null;
    const [started] = this.#events.read(sessionId, { after: eventSeq, type, limit: 1 });
    const id = TurnStartedSchema.safeParse(started?.data).data?.turnId;
    if (id === undefined) return null;
    const input = this.#turns.readInputStart(id, MAX_INPUT_BYTES);
    return { id, prompt: input === null ? '' : summarizePrompt(input) };
  }
}
