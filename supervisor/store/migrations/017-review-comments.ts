import type { Migration } from './index.ts';

/** Comments of people about lines of reviewed files. */
export const reviewComments: Migration = {
  version: 17,
  sql: `
    -- Lines are from 0; \`end\` is exclusive. \`quote\` is their text. \`batch\` is the opId of the prompt that takes the
    -- comment along; \`turnId\` is null until that turn exists.
    CREATE TABLE review_comments (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      path TEXT NOT NULL,
      side TEXT NOT NULL,
      start INTEGER NOT NULL,
      "end" INTEGER NOT NULL,
      quote BLOB NOT NULL,
      text TEXT NOT NULL,
      createdAt INTEGER NOT NULL,
      batch TEXT,
      turnId TEXT,
      sentAt INTEGER
    ) STRICT;
    CREATE INDEX review_comments_of_session ON review_comments (sessionId);
  `,
};
