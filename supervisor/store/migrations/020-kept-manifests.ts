import type { Migration } from './index.ts';

/** Manifests that were made when a session was resumed or a snapshot was created. */
export const keptManifests: Migration = {
  version: 20,
  sql: `
    -- \`envelope\` is the JSON of the signed envelope. Those of handoffs are in the history.
    CREATE TABLE kept_manifests (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      reason TEXT NOT NULL,
      snapshotId TEXT,
      madeAt INTEGER NOT NULL,
      envelope TEXT NOT NULL
    ) STRICT;
    CREATE INDEX kept_manifests_by_session ON kept_manifests (sessionId, ordinal);
  `,
};
