import { formatPath } from '../../protocol/paths.ts';
import type { Hunk, Review, ReviewCounts, ReviewFile } from '../../protocol/review.ts';
import type { TreeEntry } from '../../snapshot-format/entries.ts';
import { isoTime } from '../base/iso-time.ts';
import type { DecisionState } from '../store/reviews.ts';
import type { OpenReview } from './reviews.ts';
import { isDecidedByHunk, type ReviewUnit } from './review-units.ts';
import { countHunks, stateOf, type UnitHunk } from './unit-state.ts';

/** The review as clients see it. */
export function viewOf({ row, compared, decisions }: OpenReview): Review {
  const counts: ReviewCounts = {
    files: compared.units.length,
    toReview: 0,
    accepted: 0,
    rejected: 0,
    partial: 0,
  };
  if (decisions.size === 0) counts.toReview = counts.files;
  else {
    for (const unit of compared.units) {
      const state = stateOf(unit, decisions.get(unit.key) ?? null);
      if (state === 'to-review') counts.toReview += 1;
      else if (state === 'accepted' || state === 'rejected') counts[state] += 1;
      else counts.partial += 1;
    }
  }
  return {
    id: row.id,
    sessionId: row.sessionId,
    createdAt: isoTime(row.createdAt),
    updatedAt: isoTime(row.updatedAt),
    base: { spec: row.baseSpec, snapshotId: row.baseSnapshot, root: row.baseRoot },
    target: { snapshotId: row.targetSnapshot, root: row.targetRoot },
    accepted: row.acceptedRoot === null ? null : { root: row.acceptedRoot },
    revision: row.revision,
    counts,
  };
}

export function fileView(unit: ReviewUnit, state: DecisionState | null): ReviewFile {
  const { before, after, origin } = unit;
  const hunks = countHunks(unit, state);
  const now = stateOf(unit, state);
  const sizeOf = (entry: TreeEntry | null): number | null => (entry?.type === 'file' ? entry.size : null);
  return {
    path: unit.key,
    id: unit.id,
    kind: unit.kind,
    ...(origin === null ? {} : { oldPath: formatPath(origin.path) }),
    type: (after ?? before)?.type ?? 'file',
    oldBytes: origin?.size ?? sizeOf(before),
    newBytes: sizeOf(after),
    oldMode: origin?.mode ?? before?.mode ?? null,
    newMode: after?.mode ?? null,
    state: now,
    // Where all that is left is decided, nothing waits for a second look.
    again: (now === 'to-review' || now === 'partial') && state?.again === true,
    byHunk: isDecidedByHunk(unit),
    below: unit.below,
    ...(hunks === null ? {} : { hunks }),
    risks: [...unit.risks],
  };
}

export function hunkView({ lines: _lines, ...hunk }: UnitHunk): Hunk {
  return hunk;
}
