import type { Migration } from './index.ts';

/** Setups of profiles: each makes a prepared image, or failed to. */
export const setups: Migration = {
  version: 16,
  sql: `
    CREATE TABLE setups (
      id TEXT PRIMARY KEY,
      profile TEXT NOT NULL,
      key TEXT NOT NULL,
      state TEXT NOT NULL,
      step TEXT NOT NULL,
      backing TEXT NOT NULL,
      uid INTEGER NOT NULL,
      gid INTEGER NOT NULL,
      baseImage TEXT NOT NULL,
      image TEXT,
      imageId TEXT,
      bytes INTEGER,
      error TEXT,
      startedAt INTEGER NOT NULL,
      endedAt INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX setups_of_profile ON setups (profile, startedAt);
  `,
};
