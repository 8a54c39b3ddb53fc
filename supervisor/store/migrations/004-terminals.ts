import type { Migration } from './index.ts';

export const terminals: Migration = {
  version: 4,
  sql: `
    CREATE TABLE terminals (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      generation INTEGER NOT NULL,
      command TEXT NOT NULL,
      cwd TEXT NOT NULL,
      createdAt INTEGER NOT NULL,
      endedAt INTEGER,
      exitCode INTEGER,
      why TEXT
    ) STRICT;
    CREATE INDEX terminals_of_session ON terminals (sessionId, ordinal);
    CREATE INDEX terminals_open ON terminals (sessionId) WHERE endedAt IS NULL;
  `,
};
