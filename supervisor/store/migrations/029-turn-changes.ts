import type { Migration } from './index.ts';

/** What each turn changed on disk. The changed paths have a table of their own, because lists of turns do not need them. */
export const turnChanges: Migration = {
  version: 29,
  sql: `
    ALTER TABLE turns ADD COLUMN changes TEXT;
    CREATE INDEX turns_with_pending_changes ON turns (sessionId)
      WHERE json_extract(changes, '$.state') = 'pending';
    CREATE TABLE turn_paths (
      turnId TEXT PRIMARY KEY,
      paths TEXT NOT NULL,
      omitted INTEGER NOT NULL
    ) STRICT;
  `,
};
