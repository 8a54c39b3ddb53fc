import { z } from 'zod';
import { SnapshotIdSchema } from './ids.ts';

const count = z.number().int().nonnegative();

export const CHANGE_KINDS = ['added', 'modified', 'deleted', 'renamed', 'mode', 'typechange'] as const;

/** Totals of the whole comparison, not only of one page. Directories are counted separately from everything else. */
export const ChangeTotalsSchema = z.object({
  added: count,
  modified: count,
  deleted: count,
  renamed: count,
  mode: count,
  typechange: count,
  /** Directories that were added, deleted or changed. */
  directories: count,
  /** New sizes of the added and modified files. */
  bytes: count,
});
export type ChangeTotals = z.infer<typeof ChangeTotalsSchema>;

/** How many files differ, of whatever kind. Directories do not count. */
export function changedFiles({ added, modified, deleted, renamed, mode, typechange }: ChangeTotals): number {
  return added + modified + deleted + renamed + mode + typechange;
}

/** Lines that a change added and removed. */
export const LineCountsSchema = z.object({ added: count, removed: count });
export type LineCounts = z.infer<typeof LineCountsSchema>;

/** How many changed paths are stored with a turn, at most. */
export const MAX_TURN_PATHS = 1000;

/**
 * What a turn changed on disk, from the snapshots before and after it. It is computed once, when the turn has ended, and
 * stays when the snapshots are deleted.
 */
export const TurnChangesSchema = z.object({
  /** `pending`: it is being computed. `unknown`: it cannot be; `failure` says why. */
  state: z.enum(['pending', 'known', 'unknown']),
  /** The snapshots that were compared, which may have been deleted since. Null where there was none. */
  before: SnapshotIdSchema.nullable(),
  after: SnapshotIdSchema.nullable(),
  /** Null unless `known`. */
  totals: ChangeTotalsSchema.nullable(),
  /** Of all text files. Null unless `known`, and where there are too many or too large files to count. */
  lines: LineCountsSchema.nullable(),
  /** A snapshot lacks files that could not be read, or was completed while the turn ran: there may be more changes. */
  isComplete: z.boolean(),
  failure: z.object({ code: z.string(), why: z.string() }).nullable(),
});
export type TurnChanges = z.infer<typeof TurnChangesSchema>;

/** One path that a turn changed. Paths are as in `snapshot/diff`. */
export const TurnPathSchema = z.object({
  path: z.string(),
  kind: z.enum(CHANGE_KINDS),
  /** The old path, if it was renamed. */
  oldPath: z.string().optional(),
  type: z.enum(['file', 'directory', 'symlink', 'fifo', 'socket']),
  /** Null: no text, or not counted. */
  lines: LineCountsSchema.nullable(),
});
export type TurnPath = z.infer<typeof TurnPathSchema>;
