import type { Migration } from './index.ts';

/** The events that say when files were restored, which the graph of snapshots reads of a whole history. */
export const restoreEvents: Migration = {
  version: 22,
  sql: `
    CREATE INDEX events_about_restores ON events (sessionId, seq)
      WHERE type IN ('session.forked', 'workspace.restored');
  `,
};
