import type { Caveat } from '../../../protocol/snapshots.ts';
import type { ScanResult } from '../../../snapshot-format/sidecar-calls.ts';
import type { SnapshotRow } from '../../store/snapshots.ts';

/** What a comparison cannot know about a snapshot. */
export function snapshotCaveats(side: Caveat['side'], snapshot: SnapshotRow): Caveat[] {
  const { id: snapshotId, duringTurn, missing, missingPaths } = snapshot;
  const caveats: Caveat[] = [];
  if (duringTurn) caveats.push({ side, snapshotId, kind: 'during-turn', missing: 0, missingPaths: [] });
  if (missing > 0) caveats.push({ side, snapshotId, kind: 'incomplete', missing, missingPaths });
  return caveats;
}

/** As `snapshotCaveats`, for the current workspace. */
export function workspaceCaveats(
  side: Caveat['side'],
  { missing, missingPaths }: Pick<ScanResult, 'missing' | 'missingPaths'>,
): Caveat[] {
  return missing === 0 ? [] : [{ side, snapshotId: null, kind: 'incomplete', missing, missingPaths }];
}
