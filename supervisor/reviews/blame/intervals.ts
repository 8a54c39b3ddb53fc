/** A state of the workspace that is stored. */
export interface StoredState {
  /** Hash of its tree, hexadecimal. */
  readonly root: string;
  /** Null: no snapshot that can be opened. */
  readonly snapshotId: string | null;
  /** ms since 1970. */
  readonly at: number;
  /** The last event of the session before it. */
  readonly seq: number;
  /** The turn that had just ended; nobody else has changed anything since. */
  readonly endOf: string | null;
}

/** A turn in the session's history. */
export interface TurnSpan {
  readonly id: string;
  readonly startSeq: number;
  /** Infinity while it runs. */
  readonly endSeq: number;
  /** The snapshot that was created before it. */
  readonly before: string | null;
}

/** What can have changed a file between two states. */
export interface Cause {
  readonly kind: 'start' | 'turn' | 'person' | 'unknown';
  /** Of a turn: nobody else can have. */
  readonly isExact: boolean;
  /** Ids, in order. */
  readonly turns: readonly string[];
}

export const START: Cause = { kind: 'start', isExact: true, turns: [] };

export const UNKNOWN: Cause = { kind: 'unknown', isExact: false, turns: [] };

/**
 * What ran between two states of a workspace. `from` null: before the first state that is known; `to` null: now. `turns`:
 * all of the session, in order. `knownFrom`: the events up to this one were removed, and nobody knows which turns ran before.
 */
export function causeBetween(
  from: StoredState | null,
  to: StoredState | null,
  turns: readonly TurnSpan[],
  knownFrom = 0,
): Cause {
  if (from !== null && from.seq < knownFrom) return UNKNOWN;
  const fromSeq = from?.seq ?? 0;
  const toSeq = to?.seq ?? Infinity;
  const ran = turns.filter(({ startSeq, endSeq }) => startSeq <= toSeq && endSeq > fromSeq);
  // A snapshot serves a later turn too where nothing had changed: what ran before that turn changed nothing.
  const snapshot = from?.snapshotId ?? null;
  const since = snapshot === null ? -1 : ran.findLastIndex(({ before }) => before === snapshot);
  const candidates = since === -1 ? ran : ran.slice(since);
  const [turn, another] = candidates;
  if (turn === undefined) return from === null ? START : { kind: 'person', isExact: true, turns: [] };
  const ids = candidates.map(({ id }) => id);
  if (another !== undefined) return { kind: 'unknown', isExact: false, turns: ids };
  const begins = from !== null && (turn.startSeq <= fromSeq || turn.before === snapshot);
  const ends = turn.endSeq === Infinity || turn.endSeq > toSeq || to?.endOf === turn.id;
  return { kind: 'turn', isExact: begins && ends, turns: ids };
}
