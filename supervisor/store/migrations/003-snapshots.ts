import type { Migration } from './index.ts';

/** A session starts a lineage, which its forks share. */
export const snapshots: Migration = {
  version: 3,
  sql: `
    ALTER TABLE sessions ADD COLUMN lineage TEXT NOT NULL DEFAULT '';
    ALTER TABLE sessions ADD COLUMN origin TEXT;
    UPDATE sessions SET lineage = id;
    CREATE INDEX session_lineages ON sessions (lineage);
    CREATE INDEX session_origins ON sessions (origin) WHERE origin IS NOT NULL;

    CREATE TABLE snapshots (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      sessionId TEXT NOT NULL,
      lineage TEXT NOT NULL,
      createdAt INTEGER NOT NULL,
      reason TEXT NOT NULL,
      label TEXT,
      pinned INTEGER NOT NULL,
      base TEXT,
      root TEXT NOT NULL,
      files INTEGER NOT NULL,
      directories INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      changedFiles INTEGER NOT NULL,
      changedBytes INTEGER NOT NULL,
      newBytes INTEGER NOT NULL,
      scanMs REAL NOT NULL,
      frozenMs REAL NOT NULL,
      eventSeq INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX snapshots_of_session ON snapshots (sessionId, ordinal);
    CREATE INDEX snapshots_of_lineage ON snapshots (lineage, ordinal);

    -- Agents that are frozen while a snapshot is taken: whoever finds a row here after a crash thaws that one.
    CREATE TABLE freezes (sessionId TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  `,
};
