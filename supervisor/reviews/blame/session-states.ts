import { z } from 'zod';
import type { EventLog } from '../../history/event-log.ts';
import type { SessionRow } from '../../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../../store/snapshots.ts';
import type { Turns } from '../../store/turns.ts';
import type { WorkspaceBases } from '../../store/workspace-bases.ts';
import type { StoredState, TurnSpan } from './intervals.ts';

/** Newer turns than these are known by their place in the history. */
const MAX_TURNS = 5000;
const OfTurnSchema = z.object({ turnId: z.string() });

export interface SessionStatesOptions {
  readonly snapshots: Pick<Snapshots, 'get' | 'listBySession'>;
  readonly bases: Pick<WorkspaceBases, 'get'>;
  readonly turns: Pick<Turns, 'listBySession'>;
  readonly events: Pick<EventLog, 'read'>;
}

/** The stored states of a session's workspace, the oldest first, and the turns that ran between them. */
export interface SessionStates {
  readonly states: readonly StoredState[];
  readonly turns: readonly TurnSpan[];
  /** When each turn started, ms since 1970. */
  readonly startedAt: ReadonlyMap<string, number>;
}

export function statesOf(session: SessionRow, options: SessionStatesOptions): SessionStates {
  const { snapshots, bases, turns, events } = options;
  const rows = snapshots.listBySession(session.id);
  const states = rows.map((row) => stateOf(row, row.eventSeq));
  const forkedAt = seqs(events, session.id, 'session.forked').at(-1)?.seq ?? 0;
  const origin = session.origin === null ? null : snapshots.get(session.origin);
  const base = bases.get(session.id);
  if (origin !== null && origin.lineage === session.lineage) states.unshift(stateOf(origin, forkedAt));
  else if (base !== null && base.seededAt <= (rows[0]?.createdAt ?? Infinity))
    states.unshift({ root: base.root, snapshotId: null, at: base.seededAt, seq: 0, endOf: null });

  const known = new Map(turns.listBySession(session.id, MAX_TURNS).map((turn) => [turn.id, turn]));
  const ends = new Map(
    seqs(events, session.id, 'turn.ended').map(({ turnId, seq }) => [turnId, seq] as const),
  );
  const spans = seqs(events, session.id, 'turn.started')
    .filter(({ seq }) => seq > forkedAt)
    .map(({ turnId, seq }) => ({
      id: turnId,
      startSeq: seq,
      endSeq: ends.get(turnId) ?? Infinity,
      before: known.get(turnId)?.snapshot?.snapshotId ?? null,
    }));
  const startedAt = new Map(
    [...known.values()].map(({ id, startedAt, createdAt }) => [id, startedAt ?? createdAt] as const),
  );
  return { states, turns: spans, startedAt };
}

function stateOf({ root, id, createdAt }: SnapshotRow, seq: number): StoredState {
  return { root, snapshotId: id, at: createdAt, seq, endOf: null };
}

/** The events of one type, in order. */
function seqs(
  events: Pick<EventLog, 'read'>,
  sessionId: string,
  type: string,
): { readonly seq: number; readonly turnId: string }[] {
  const found: { seq: number; turnId: string }[] = [];
  for (let after = 0; ;) {
    const page = events.read(sessionId, { after, type });
    for (const { seq, data } of page)
      found.push({ seq, turnId: OfTurnSchema.safeParse(data).data?.turnId ?? '' });
    const last = page.at(-1);
    if (last === undefined) return found;
    after = last.seq;
  }
}
