import type { TurnChanges } from '../../protocol/changes.ts';
import type { Turn } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';

/** Turns that are looked at for the one before and after. */
const MAX_TURNS = 1000;

export interface TurnSnapshots {
  /** The files before the turn. */
  readonly before: string;
  /** Those after it, or before the next one; null where there is none yet. */
  readonly after: string | null;
  /** No turn follows. */
  readonly isLast: boolean;
}

/** What the turn changed, as the supervisor has stored it; waits a moment where that is being compared. */
export async function storedChanges(connection: Connection, turnId: string): Promise<TurnChanges | null> {
  const { turn } = await connection.call('turn/show', { turn: turnId });
  if (turn.changes?.state !== 'pending') return turn.changes;
  return (await connection.call('turn/changes', { turn: turnId })).changes;
}

/**
 * The snapshots around a turn, which may have been deleted; without an id, the last one that has any. Errors: `not_found` where
 * there is none before it.
 */
export async function snapshotsOfTurn(
  connection: Connection,
  session: string,
  turnId?: string,
): Promise<TurnSnapshots> {
  const stored = turnId === undefined ? null : await storedChanges(connection, turnId);
  if (stored?.state === 'known' && stored.before !== null && stored.after !== null)
    return { before: stored.before, after: stored.after, isLast: false };
  const { turns } = await connection.call('turn/list', { session, limit: MAX_TURNS });
  const ordered = [...turns].sort((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  const hasSnapshot = ({ snapshot }: Turn): boolean => (snapshot?.snapshotId ?? null) !== null;
  const index =
    turnId === undefined
      ? ordered.findLastIndex(hasSnapshot)
      : ordered.findIndex((turn) => turn.turnId === turnId);
  const before = ordered[index]?.snapshot?.snapshotId ?? null;
  if (before === null) {
    throw new HoldfastError(
      'not_found',
      turnId === undefined
        ? 'There is no snapshot from before a turn'
        : 'There is no snapshot of the files before this turn',
      {
        why:
          turnId === undefined
            ? 'no turn has started, or none was created'
            : 'none was created, or the turn is too old',
        next: 'choose a snapshot in the tab Snapshots',
      },
    );
  }
  const later = ordered.slice(index + 1).find(({ snapshot }) => snapshot !== null);
  return { before, after: later?.snapshot?.snapshotId ?? null, isLast: later === undefined };
}
