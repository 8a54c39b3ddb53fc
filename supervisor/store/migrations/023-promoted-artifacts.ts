import type { Migration } from './index.ts';

/** Results that people keep. They outlive their session, so nothing refers to it. */
export const promotedArtifacts: Migration = {
  version: 23,
  sql: `
    -- \`list\` is the JSON of its files, \`envelope\` that of the signed statement about them. The contents are in a file.
    CREATE TABLE promoted_artifacts (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      kind TEXT NOT NULL,
      name TEXT NOT NULL,
      createdAt INTEGER NOT NULL,
      sessionId TEXT NOT NULL,
      sessionName TEXT NOT NULL,
      profile TEXT NOT NULL,
      snapshotId TEXT NOT NULL,
      files INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      sha256 TEXT NOT NULL,
      leftOut INTEGER NOT NULL,
      list TEXT NOT NULL,
      envelope TEXT NOT NULL
    ) STRICT;
  `,
};
