import type { Migration } from './index.ts';

/** HOME on disk: the sandbox that it was prepared for, and the second root of snapshots. */
export const agentHome: Migration = {
  version: 9,
  sql: `
    -- The generation of the sandbox for which HOME was prepared; 0 before the first.
    ALTER TABLE sessions ADD COLUMN homeGeneration INTEGER NOT NULL DEFAULT 0;
    -- The tree of the agent's state; NULL where the snapshot has none.
    ALTER TABLE snapshots ADD COLUMN stateRoot TEXT;
  `,
};
