import type { Migration } from './index.ts';

/** The outcome of the snapshot before a turn, and the paths that a snapshot lacks. */
export const turnSnapshots: Migration = {
  version: 6,
  sql: `
    ALTER TABLE turns ADD COLUMN snapshot TEXT;
    ALTER TABLE snapshots ADD COLUMN duringTurn INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE snapshots ADD COLUMN missing INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE snapshots ADD COLUMN missingPaths TEXT NOT NULL DEFAULT '[]';
  `,
};
