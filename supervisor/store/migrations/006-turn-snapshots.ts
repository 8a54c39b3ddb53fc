import type { Migration } from './index.ts';

/** What became of the snapshot before a turn, and what a snapshot does not hold. */
export const turnSnapshots: Migration = {
  version: 6,
  sql: `
    ALTER TABLE turns ADD COLUMN snapshot TEXT;
    ALTER TABLE snapshots ADD COLUMN duringTurn INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE snapshots ADD COLUMN missing INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE snapshots ADD COLUMN missingPaths TEXT NOT NULL DEFAULT '[]';
  `,
};
