import type { SnapshotReason } from '../../protocol/snapshots.ts';

/** What the rule looks at. */
export interface ThinningCandidate {
  readonly id: string;
  readonly createdAt: number;
  readonly reason: SnapshotReason;
  readonly label: string | null;
  readonly pinned: boolean;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Until their hour has been over for this long all are kept, */
const ALL_MS = DAY_MS;
/** until their day has been over for this long the newest of each hour, and after that the newest of each day. */
const HOURLY_MS = 7 * DAY_MS;

/**
 * Which snapshots of one session are thinned out now. Those that somebody asked for, named or pinned stay, and what a fork was
 * made of (`bases`), and with all this the newest one. Hours and days are those of UTC, and what is in one is thinned out together:
 * it does not matter when and how often it is asked.
 */
export function snapshotsToThin(
  snapshots: readonly ThinningCandidate[],
  bases: ReadonlySet<string>,
  now: number,
): ThinningCandidate[] {
  const newestFirst = [...snapshots].sort((one, other) => other.createdAt - one.createdAt);
  const kept = new Set<string>();
  return newestFirst.filter(({ id, createdAt, reason, label, pinned }) => {
    if (pinned || label !== null || reason === 'manual' || bases.has(id)) return false;
    if (now - endOf(HOUR_MS, createdAt) <= ALL_MS) return false;
    const stretch = now - endOf(DAY_MS, createdAt) <= HOURLY_MS ? HOUR_MS : DAY_MS;
    const place = `${stretch} ${Math.floor(createdAt / stretch)}`;
    if (kept.has(place)) return true;
    kept.add(place);
    return false;
  });
}

/** Of the hour or day that a moment is in. */
function endOf(stretch: number, at: number): number {
  return (Math.floor(at / stretch) + 1) * stretch;
}
