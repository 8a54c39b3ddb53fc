import type { Migration } from './index.ts';

/** Reviews, what was decided in them, and the steps that can be undone. */
export const reviews: Migration = {
  version: 11,
  sql: `
    -- Roots are hexadecimal. One review of a session is open (\`endedAt\` is null); of the others the newest stays.
    CREATE TABLE reviews (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      lineage TEXT NOT NULL,
      createdAt INTEGER NOT NULL,
      updatedAt INTEGER NOT NULL,
      endedAt INTEGER,
      baseSpec TEXT NOT NULL,
      baseSnapshot TEXT,
      baseRoot TEXT NOT NULL,
      targetSnapshot TEXT NOT NULL,
      targetRoot TEXT NOT NULL,
      acceptedRoot TEXT,
      revision INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX open_review ON reviews (sessionId) WHERE endedAt IS NULL;
    CREATE INDEX reviews_of_lineage ON reviews (lineage);

    -- A path without a row is not decided. \`state\` is JSON.
    CREATE TABLE review_decisions (
      reviewId TEXT NOT NULL REFERENCES reviews (id) ON DELETE CASCADE,
      path TEXT NOT NULL,
      fileId TEXT NOT NULL,
      state TEXT NOT NULL,
      PRIMARY KEY (reviewId, path)
    ) STRICT, WITHOUT ROWID;

    -- \`before\` is JSON: the decisions as they were.
    CREATE TABLE review_steps (
      reviewId TEXT NOT NULL REFERENCES reviews (id) ON DELETE CASCADE,
      seq INTEGER NOT NULL,
      verdict TEXT NOT NULL,
      before TEXT NOT NULL,
      PRIMARY KEY (reviewId, seq)
    ) STRICT, WITHOUT ROWID;
  `,
};
