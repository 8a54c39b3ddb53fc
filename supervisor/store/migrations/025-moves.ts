import type { Migration } from './index.ts';

/** Sessions on their way between two homes. */
export const moves: Migration = {
  version: 25,
  sql: `
    -- A row stays for good: it says where a session went, and a move that has ended cannot be repeated.
    CREATE TABLE moves (
      role TEXT NOT NULL CHECK (role IN ('source', 'target')),
      id TEXT NOT NULL,
      sessionId TEXT NOT NULL,
      state TEXT NOT NULL,
      profile TEXT NOT NULL,
      name TEXT NOT NULL,
      peerHome TEXT NOT NULL,
      peerName TEXT NOT NULL,
      peerKey TEXT NOT NULL,
      peerSession TEXT,
      snapshotId TEXT,
      bundles TEXT NOT NULL,
      offer TEXT NOT NULL,
      proof TEXT,
      createdAt INTEGER NOT NULL,
      updatedAt INTEGER NOT NULL,
      PRIMARY KEY (role, id)
    ) STRICT;
    CREATE INDEX moves_by_session ON moves (sessionId);
  `,
};
