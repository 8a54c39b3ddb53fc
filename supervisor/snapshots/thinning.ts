import type { SnapshotReason } from '../../protocol/snapshots.ts';

/** What the rule looks at. */
export interface Thinnable {
  readonly id: string;
  readonly createdAt: number;
  readonly reason: SnapshotReason;
  readonly label: string | null;
  readonly pinned: boolean;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Up to this age all are kept, */
const ALL_MS = DAY_MS;
/** up to this the newest of each hour, and beyond it the newest of each day. */
const HOURLY_MS = 7 * DAY_MS;

/**
 * Which snapshots of one session are thinned out now. Those that somebody asked for, named or pinned stay, and what a fork was
 * made of (`bases`), and with all this the newest one. Hours and days are those of UTC, so it does not matter how often it is asked.
 */
export function thinned(
  snapshots: readonly Thinnable[],
  bases: ReadonlySet<string>,
  now: number,
): Thinnable[] {
  const newestFirst = [...snapshots].sort((one, other) => other.createdAt - one.createdAt);
  const kept = new Set<string>();
  return newestFirst.filter(({ id, createdAt, reason, label, pinned }) => {
    if (pinned || label !== null || reason === 'manual' || bases.has(id)) return false;
    const age = now - createdAt;
    if (age <= ALL_MS) return false;
    const stretch = age <= HOURLY_MS ? HOUR_MS : DAY_MS;
    const place = `${stretch} ${Math.floor(createdAt / stretch)}`;
    if (kept.has(place)) return true;
    kept.add(place);
    return false;
  });
}
