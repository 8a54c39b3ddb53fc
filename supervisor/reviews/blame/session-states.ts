import { z } from 'zod';
import { count, json, parseRow } from '../../store/columns.ts';
import type { Database } from '../../store/database.ts';
import type { SessionRow } from '../../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../../store/snapshots.ts';
import type { Turns } from '../../store/turns.ts';
import type { WorkspaceBases } from '../../store/workspace-bases.ts';
import type { StoredState, TurnSpan } from './intervals.ts';

/** Newer turns than these are known by their place in the history. */
const MAX_TURNS = 5000;
/** Without the name of the index SQLite would look at the whole history of a session. */
export const SPANS = `SELECT seq, type, data FROM events INDEXED BY events_about_spans
  WHERE sessionId = ? AND type IN ('session.forked', 'turn.started', 'turn.ended') ORDER BY seq`;
const SpanRowSchema = z.object({
  seq: count,
  type: z.string(),
  data: json(z.object({ turnId: z.string().default('') })),
});

export interface SessionStatesOptions {
  readonly snapshots: Pick<Snapshots, 'get' | 'listBySession'>;
  readonly bases: Pick<WorkspaceBases, 'get'>;
  readonly turns: Pick<Turns, 'listBySession'>;
  readonly database: Pick<Database, 'all'>;
}

/** The stored states of a session's workspace, the oldest first, and the turns that ran between them. */
export interface SessionStates {
  readonly states: readonly StoredState[];
  readonly turns: readonly TurnSpan[];
  /** When each turn started, ms since 1970. */
  readonly startedAt: ReadonlyMap<string, number>;
}

export function statesOf(session: SessionRow, options: SessionStatesOptions): SessionStates {
  const { snapshots, bases, turns, database } = options;
  const rows = snapshots.listBySession(session.id);
  const known = new Map(turns.listBySession(session.id, MAX_TURNS).map((turn) => [turn.id, turn]));
  // The oldest turn wins: the later ones that share its snapshot changed nothing.
  const endOf = new Map(
    [...known.values()].flatMap(({ id, changes }) => {
      const after = changes?.after ?? null;
      return after === null ? [] : [[after, id] as const];
    }),
  );
  const states = rows.map((row) => {
    // The snapshot before the next turn can show what a person changed after this one too.
    const end = row.reason === 'before-turn' ? null : endOf.get(row.id);
    return stateOf(row, row.eventSeq, end);
  });
  const events = database.all(SPANS, session.id).map((row) => parseRow(SpanRowSchema, 'events', row));
  const forkedAt = events.findLast(({ type }) => type === 'session.forked')?.seq ?? 0;
  const origin = session.origin === null ? null : snapshots.get(session.origin);
  const base = bases.get(session.id);
  if (origin !== null && origin.lineage === session.lineage) states.unshift(stateOf(origin, forkedAt));
  else if (base !== null && base.seededAt <= (rows[0]?.createdAt ?? Infinity))
    states.unshift({ root: base.root, snapshotId: null, at: base.seededAt, seq: 0, endOf: null });

  const ends = new Map(
    events.flatMap(({ type, seq, data }) => (type === 'turn.ended' ? [[data.turnId, seq] as const] : [])),
  );
  const spans = events
    .filter(({ type, seq }) => type === 'turn.started' && seq > forkedAt)
    .map(({ data, seq }) => ({
      id: data.turnId,
      startSeq: seq,
      endSeq: ends.get(data.turnId) ?? Infinity,
      before: known.get(data.turnId)?.snapshot?.snapshotId ?? null,
    }));
  const startedAt = new Map(
    [...known.values()].map(({ id, startedAt, createdAt }) => [id, startedAt ?? createdAt] as const),
  );
  return { states, turns: spans, startedAt };
}

function stateOf(
  { root, id, createdAt }: SnapshotRow,
  seq: number,
  endOf: string | null = null,
): StoredState {
  return { root, snapshotId: id, at: createdAt, seq, endOf };
}
