import type { Caveat } from '../../../protocol/snapshots.ts';
import type { ScanResult } from '../../../snapshot-format/sidecar-calls.ts';
import type { SnapshotRow } from '../../store/snapshots.ts';

/** What a comparison cannot tell of one of its sides. */
export function snapshotCaveats(side: Caveat['side'], snapshot: SnapshotRow): Caveat[] {
  const { id: snapshotId, duringTurn, missing, missingPaths } = snapshot;
  const caveats: Caveat[] = [];
  if (duringTurn) caveats.push({ side, snapshotId, kind: 'during-turn', missing: 0, missingPaths: [] });
  if (missing > 0) caveats.push({ side, snapshotId, kind: 'incomplete', missing, missingPaths });
  return caveats;
}

/** The same of the workspace as it is. */
export function workspaceCaveats(
  side: Caveat['side'],
  { missing, missingPaths }: Pick<ScanResult, 'missing' | 'missingPaths'>,
): Caveat[] {
  return missing === 0 ? [] : [{ side, snapshotId: null, kind: 'incomplete', missing, missingPaths }];
}
