import { type SnapshotReason, snapshotReasonRule } from '../../protocol/snapshot-reasons.ts';

/** The fields of a snapshot that decide whether it is thinned out. */
export interface ThinningCandidate {
  readonly id: string;
  readonly createdAt: number;
  readonly reason: SnapshotReason;
  readonly label: string | null;
  readonly pinned: boolean;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** All snapshots are kept until their hour ended this long ago. */
const KEEP_ALL_MS = DAY_MS;
/** After that the newest of each hour is kept until its day ended this long ago, and then the newest of each day. */
const KEEP_HOURLY_MS = 7 * DAY_MS;
/** So many of those that the session's agent made, however young they are. */
const KEEP_OF_AGENT = 20;

/**
 * The snapshots of one session to delete now. Those of a reason that is kept, pinned and (but for an agent's own) labelled snapshots stay, as do those that a fork began
 * with (`bases`) and the newest one. Hours and days are those of UTC and are thinned as a whole, so the result does not
 * depend on when and how often this runs.
 */
export function snapshotsToThin(
  snapshots: readonly ThinningCandidate[],
  bases: ReadonlySet<string>,
  now: number,
): ThinningCandidate[] {
  const newestFirst = [...snapshots].sort((one, other) => other.createdAt - one.createdAt);
  const kept = new Set<string>();
  let ofAgent = 0;
  return newestFirst.filter(({ id, createdAt, reason, label, pinned }) => {
    const { by, isKept } = snapshotReasonRule(reason);
    if (pinned || isKept === true || bases.has(id)) return false;
    // An agent names its own: a name must not keep them for ever.
    if (label !== null && by !== 'agent') return false;
    if (by === 'agent') ofAgent += 1;
    if (by === 'agent' && ofAgent > KEEP_OF_AGENT) return true;
    if (now - endOf(HOUR_MS, createdAt) <= KEEP_ALL_MS) return false;
    const period = now - endOf(DAY_MS, createdAt) <= KEEP_HOURLY_MS ? HOUR_MS : DAY_MS;
    const bucket = `${period} ${Math.floor(createdAt / period)}`;
    if (kept.has(bucket)) return true;
    kept.add(bucket);
    return false;
  });
}

/** The end of the hour or day that contains `at`. */
function endOf(period: number, at: number): number {
  return (Math.floor(at / period) + 1) * period;
}
