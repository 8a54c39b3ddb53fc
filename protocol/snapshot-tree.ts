import type { GraphNode } from './snapshot-lanes.ts';
import type { Snapshot, SnapshotGraph } from './snapshots.ts';

/** What the tree reads of a snapshot. */
export type TreeSnapshot = Pick<Snapshot, 'id' | 'createdAt' | 'reason' | 'eventSeq'>;

/** A row of the graph: the files of now, a snapshot, a session that was forked, or what the session itself began with. */
export type Entry<S extends TreeSnapshot = TreeSnapshot> = GraphNode &
  (
    | { readonly kind: 'now'; readonly restored: Restored | null }
    | { readonly kind: 'snapshot'; readonly snapshot: S; readonly restored: Restored | null }
    | { readonly kind: 'fork'; readonly fork: SnapshotGraph['forks'][number] }
    | { readonly kind: 'origin'; readonly origin: NonNullable<SnapshotGraph['origin']> }
  );

/** The files were restored from a snapshot before this state, and changed from there on. */
export interface Restored {
  readonly snapshotId: string;
  readonly at: string;
}

export const NOW = 'now';
export const ORIGIN = 'origin';

/**
 * The states of a session's files, newest first. A snapshot follows the one before it, or, after a restore, the one whose
 * files were restored: what was left then stays as a branch. After a reset a snapshot follows none.
 *
 * @param snapshots newest first
 * @param isWhole whether these are all; if not, the oldest one follows what is not there
 */
export function entriesOf<S extends TreeSnapshot>(
  snapshots: readonly S[],
  { restores, forks, origin }: SnapshotGraph,
  isWhole: boolean,
): Entry<S>[] {
  const known = new Set(snapshots.map(({ id }) => id));
  // One file that comes back does not change what the state follows.
  const whole = restores.filter(({ path }) => path === null);
  const states: Entry<S>[] = [];
  let current: string | null = isWhole && origin !== null ? ORIGIN : null;
  let restored: Restored | null = null;
  let next = whole.length - 1;
  const applyRestores = (upTo: number): void => {
    for (let one = whole[next]; one !== undefined && one.seq <= upTo; one = whole[--next]) {
      const { snapshotId, at } = one;
      if (origin !== null && snapshotId === origin.snapshotId) current = isWhole ? ORIGIN : null;
      else current = known.has(snapshotId) ? snapshotId : null;
      restored = { snapshotId, at };
    }
  };
  for (const snapshot of snapshots.toReversed()) {
    applyRestores(snapshot.eventSeq);
    states.push({ kind: 'snapshot', id: snapshot.id, parent: current, snapshot, restored });
    current = snapshot.reason === 'before-reset' ? null : snapshot.id;
    restored = null;
  }
  applyRestores(Infinity);
  states.push({ kind: 'now', id: NOW, parent: current, restored });
  return [...withForks<S>(states.toReversed(), forks, known), ...(isWhole ? originEntry<S>(origin) : [])];
}

/** Puts each fork above the first state that is older. */
function withForks<S extends TreeSnapshot>(
  states: readonly Entry<S>[],
  forks: SnapshotGraph['forks'],
  known: ReadonlySet<string>,
): Entry<S>[] {
  const left = forks
    .filter(({ snapshotId }) => known.has(snapshotId))
    .map((fork): Entry<S> => ({ kind: 'fork', id: fork.sessionId, parent: fork.snapshotId, fork }));
  const entries: Entry<S>[] = [];
  for (const state of states) {
    if (state.kind === 'snapshot') {
      const isAbove = (entry: Entry<S>): boolean =>
        entry.kind === 'fork' &&
        (entry.fork.at >= state.snapshot.createdAt || entry.fork.snapshotId === state.id);
      while (left[0] !== undefined && isAbove(left[0])) entries.push(...left.splice(0, 1));
      // A clock that was set back must not draw a fork below its snapshot.
      for (let at = left.length - 1; at >= 0; at -= 1) {
        const one = left[at];
        if (one?.parent === state.id) entries.push(...left.splice(at, 1));
      }
    }
    entries.push(state);
  }
  return entries;
}

function originEntry<S extends TreeSnapshot>(origin: SnapshotGraph['origin']): Entry<S>[] {
  return origin === null ? [] : [{ kind: 'origin', id: ORIGIN, parent: null, origin }];
}
