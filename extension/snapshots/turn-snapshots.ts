import type { Turn } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';

/** Turns that are looked at for the one before and after. */
const MAX_TURNS = 1000;

export interface TurnSnapshots {
  /** The files before the turn. */
  readonly before: string;
  /** Those before the next one; null where there is none yet. */
  readonly after: string | null;
  /** No turn follows. */
  readonly isLast: boolean;
}

/** The snapshots around a turn; without an id, the last one that has any. Errors: `not_found` where there is none before it. */
export async function snapshotsOfTurn(
  connection: Connection,
  session: string,
  turnId?: string,
): Promise<TurnSnapshots> {
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
