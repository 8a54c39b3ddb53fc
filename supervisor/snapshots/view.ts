import type { Snapshot } from '../../protocol/snapshots.ts';
import { iso } from '../sessions/view.ts';
import type { SnapshotRow } from '../store/snapshots.ts';

export function snapshotView(row: SnapshotRow): Snapshot {
  const { lineage: _lineage, root: _root, createdAt, ...rest } = row;
  return { ...rest, createdAt: iso(createdAt) };
}
