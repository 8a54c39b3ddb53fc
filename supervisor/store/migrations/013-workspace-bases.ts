import type { Migration } from './index.ts';

/** The tree that each workspace began with, which a handoff compares with. */
export const workspaceBases: Migration = {
  version: 13,
  sql: `
    CREATE TABLE workspace_bases (
      sessionId TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
      lineage TEXT NOT NULL,
      root TEXT NOT NULL,
      seededAt INTEGER NOT NULL,
      codeVersion INTEGER NOT NULL,
      origin TEXT NOT NULL,
      folder TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX workspace_bases_of_lineage ON workspace_bases (lineage);
  `,
};
