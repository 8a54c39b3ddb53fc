import { z } from 'zod';
import { snapshotReasonRule } from '../../protocol/snapshot-reasons.ts';
import type { Snapshot } from '../../protocol/snapshots.ts';
import type { EventLog } from '../history/event-log.ts';
import { summarizePrompt } from '../history/prompt-summary.ts';
import { isoTime } from '../base/iso-time.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';

/** How much of a turn's input is read to find its prompt, which may be inside JSON. */
const MAX_INPUT_BYTES = 4_096;
const WithTurnSchema = z.object({ turnId: z.string() });

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
    const { by: author } = snapshotReasonRule(row.reason);
    return { ...rest, createdAt: isoTime(createdAt), author, turn: this.#turnOf(row) };
  }

  /**
   * The turn that the snapshot precedes: the first one started after it, or the one that started while it was being
   * created. Or the turn that had just ended. The event of the snapshot names the latter two.
   */
  #turnOf({ sessionId, reason, eventSeq, duringTurn }: SnapshotRow): Snapshot['turn'] {
    const { turn } = snapshotReasonRule(reason);
    if (turn === undefined) return null;
    const type = turn === 'last' || duringTurn ? 'snapshot.created' : 'turn.started';
    // The events that said it were removed.
    if (eventSeq < this.#events.start(sessionId).seq) return null;
    const [event] = this.#events.read(sessionId, { after: eventSeq, type, limit: 1 });
    const id = WithTurnSchema.safeParse(event?.data).data?.turnId;
    if (id === undefined) return null;
    const input = this.#turns.readInputStart(id, MAX_INPUT_BYTES);
    return { id, prompt: input === null ? '' : summarizePrompt(input) };
  }
}
