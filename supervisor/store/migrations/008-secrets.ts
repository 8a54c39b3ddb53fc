import type { Migration } from './index.ts';

/** `profile` is empty for a secret of all profiles, because a unique index takes two NULLs for different. */
export const secrets: Migration = {
  version: 8,
  sql: `
    CREATE TABLE secrets (
      profile TEXT NOT NULL,
      name TEXT NOT NULL,
      version INTEGER NOT NULL,
      file TEXT,
      setAt INTEGER NOT NULL,
      expiresAt INTEGER,
      usedAt INTEGER,
      removed INTEGER NOT NULL,
      PRIMARY KEY (profile, name)
    ) STRICT, WITHOUT ROWID;
  `,
};
