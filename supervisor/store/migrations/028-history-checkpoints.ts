import type { Migration } from './index.ts';

/** Where the history of a session begins that was cut. */
export const historyCheckpoints: Migration = {
  version: 28,
  sql: `
    CREATE TABLE history_checkpoints (
      sessionId TEXT PRIMARY KEY,
      seq INTEGER NOT NULL,
      -- Of the event \`seq\`.
      hash TEXT NOT NULL,
      madeAt INTEGER NOT NULL,
      -- JSON of the session and its turns after that event; NULL in a session that was deleted a week ago.
      state TEXT,
      -- JSON of the signed checkpoint.
      envelope TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
  `,
};
